//! What calls tell the keeper of holdings: one word for each thing that was done with a hold.
//!
//! Knows nothing of records and sockets. What stays true: words about one hold come in the order in
//! which they were said, and words of different holds in the order of their stamps.

use std::sync::Arc;

use tokio::sync::oneshot;
use tollgate_shared::holdings::TransferId;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::holds::Op;
use tollgate_shared::wire::statement::Scope;
use tollgate_shared::wire::verdict::{EndedBy, Why};

use crate::resource::ResourceId;

/// One word.
#[derive(Debug)]
pub(crate) struct HoldNotice {
    /// Counts all words of an agent.
    pub(crate) order: u64,
    pub(crate) resource: ResourceId,
    /// The hold.
    pub(crate) number: u64,
    pub(crate) at: Timestamp,
    pub(crate) what: NoticeKind,
}

/// What was done. What is done seldom is boxed, so that a word of the hot path stays small.
#[derive(Debug)]
pub(crate) enum NoticeKind {
    /// Copies are in use.
    Hold { domain: Arc<str>, copies: u32 },
    /// So many fewer are.
    Release { copies: u32 },
    /// None are any more, or none shall be.
    Cancel,
    /// Everything else.
    Seldom(Box<RareNotice>),
}

/// What is done seldom.
#[derive(Debug)]
pub(crate) enum RareNotice {
    /// Copies are to be granted before they are used.
    Reserve {
        domain: Arc<str>,
        copies: u32,
        /// Fewer are of no use.
        min: u32,
        answer: oneshot::Sender<HoldAnswer>,
    },
    /// Copies move to the staging area.
    Transfer {
        copies: u32,
        to: TransferId,
        ttl: Span,
    },
    /// What is staged is to be had.
    Seize {
        from: TransferId,
        answer: oneshot::Sender<HoldAnswer>,
    },
    /// Somebody wants to know whether the hold counts.
    Confirm {
        answer: oneshot::Sender<HoldStanding>,
    },
    /// Somebody wants to know when the hold is to be given up.
    Watch {
        answer: oneshot::Sender<HoldStanding>,
    },
}

/// The answer to a reserve or a seize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldAnswer {
    /// These copies may be used.
    Granted { domain: Arc<str>, copies: u32 },
    /// None: this scope is full.
    Full(Option<Scope>),
    /// The operation was refused.
    Refused(Why),
    /// It never came to be ruled: to be asked again.
    Lost,
}

/// What is known of a hold in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldStanding {
    /// It counts, and was not too much.
    Confirmed,
    /// It counts, and so much of it was too much, because that scope was full.
    Excess(u32, Option<Scope>),
    /// It is over.
    Ended(EndedBy),
    /// It does not count: an operation, or the hold in a list, was refused.
    Uncounted(Option<Op>, Why),
}

impl HoldStanding {
    /// So many copies were given away: what was too much goes first, as in the aggregators' count.
    pub(crate) fn lessen(&mut self, by: u32) {
        if let Self::Excess(excess, _) = self {
            *excess = excess.saturating_sub(by);
            if *excess == 0 {
                *self = Self::Confirmed;
            }
        }
    }
}
