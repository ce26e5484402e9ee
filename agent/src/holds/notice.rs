//! What calls report to the hold session: one notice for each operation on a hold.
//!
//! Knows nothing of records and sockets. What stays true: notices of one hold come in the order of
//! its operations, and notices of different holds in the order of their stamps.

use std::sync::Arc;

use tokio::sync::oneshot;
use tollgate_shared::holdings::TransferId;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::Scope;
use tollgate_shared::wire::verdict::{EndedBy, HoldStatus, Why};

use crate::resource::ResourceId;

/// One notice.
#[derive(Debug)]
pub(crate) struct HoldNotice {
    /// Counts all notices of an agent.
    pub(crate) order: u64,
    pub(crate) resource: ResourceId,
    /// The hold.
    pub(crate) number: u64,
    pub(crate) at: Timestamp,
    pub(crate) what: NoticeKind,
}

/// The operation. Rare operations are boxed, so that a notice of the hot path stays small.
#[derive(Debug)]
pub(crate) enum NoticeKind {
    /// Copies are in use.
    Hold { domain: Arc<str>, copies: u32 },
    /// This many copies were given back.
    Release { copies: u32 },
    /// No copies are in use any more; or a reserve is cancelled.
    Cancel,
    /// Everything else.
    Rare(Box<RareNotice>),
}

/// A rare operation.
#[derive(Debug)]
pub(crate) enum RareNotice {
    /// Copies have to be granted before they are used.
    Reserve {
        domain: Arc<str>,
        copies: u32,
        /// Fewer are not useful.
        min: u32,
        answer: oneshot::Sender<HoldAnswer>,
    },
    /// Copies move to the staging area.
    Transfer {
        copies: u32,
        to: TransferId,
        ttl: Span,
    },
    /// Takes over staged copies.
    Seize {
        from: TransferId,
        answer: oneshot::Sender<HoldAnswer>,
    },
    /// A caller waits for the verdict on the hold.
    Confirm {
        answer: oneshot::Sender<HoldStanding>,
    },
    /// A caller waits until it should give the hold up.
    Watch {
        answer: oneshot::Sender<HoldStanding>,
    },
}

/// The answer to a reserve or a seize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldAnswer {
    /// These copies may be used.
    Granted { domain: Arc<str>, copies: u32 },
    /// No copies: this scope is full.
    Full(Scope),
    /// The operation was refused.
    Refused(Why),
    /// The operation was never ruled: the caller should ask again.
    Lost,
}

/// What is known of a hold in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldStanding {
    /// The hold counts, and was not too much.
    Confirmed,
    /// The hold counts, and this many of its copies were too many, because that scope was full.
    Excess(u32, Option<Scope>),
    /// The hold is over.
    Ended(EndedBy),
    /// The hold does not count: an operation, or the hold in a list, was refused.
    Uncounted(Why),
}

impl HoldStanding {
    /// What the status of a hold that counts means for the copies that its holder has now.
    pub(crate) fn of(status: &HoldStatus, copies: u32) -> Self {
        // Of the copies that were given away since, those that were too many went first, as in the aggregators' count.
        let given = status.copies.saturating_sub(copies);
        match status.excess.saturating_sub(given) {
            0 => Self::Confirmed,
            left => Self::Excess(left, status.scope.clone()),
        }
    }
}
