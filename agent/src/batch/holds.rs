//! What the hold session sends: operations and heartbeats, owned until a courier encodes them as
//! records.
//!
//! Ages are relative to the instant of the sending, so nothing is encoded earlier. Knows
//! nothing of holdings.

use std::sync::Arc;

use tollgate_shared::holdings::{Holdings, TransferId};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::heartbeat::{HeartbeatHead, Holds, Listed, Part, write_heartbeat};
use tollgate_shared::wire::hits::Sender;
use tollgate_shared::wire::holds::{HoldAction, HoldOp, write_holds};

use crate::resource::ResourceId;

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) resource: ResourceId,
    pub(crate) number: u64,
    pub(crate) at: Timestamp,
    pub(crate) act: HoldAct,
}

/// The act of an operation, as on the wire, but owned.
#[derive(Clone, Debug)]
pub(crate) enum HoldAct {
    Reserve {
        domain: Arc<str>,
        copies: u32,
        min: u32,
    },
    Hold {
        domain: Arc<str>,
        copies: u32,
    },
    Release {
        copies: u32,
    },
    Transfer {
        copies: u32,
        to: TransferId,
        ttl: Span,
    },
    Seize {
        from: TransferId,
    },
    Cancel,
}

impl Operation {
    /// About as many bytes as it takes in a record.
    pub(crate) fn bytes(&self) -> usize {
        64 + match &self.act {
            HoldAct::Reserve { domain, .. } | HoldAct::Hold { domain, .. } => domain.len(),
            _ => 0,
        }
    }

    fn action(&self) -> HoldAction<'_> {
        match &self.act {
            HoldAct::Reserve {
                domain,
                copies,
                min,
            } => HoldAction::Reserve {
                domain,
                copies: *copies,
                min: *min,
            },
            HoldAct::Hold { domain, copies } => HoldAction::Hold {
                domain,
                copies: *copies,
            },
            HoldAct::Release { copies } => HoldAction::Release { copies: *copies },
            HoldAct::Transfer { copies, to, ttl } => HoldAction::Transfer {
                copies: *copies,
                to: *to,
                ttl: *ttl,
            },
            HoldAct::Seize { from } => HoldAction::Seize { from: *from },
            HoldAct::Cancel => HoldAction::Cancel,
        }
    }
}

/// Operations for one partition.
#[derive(Debug, Default)]
pub(crate) struct HoldOps {
    pub(crate) partition: u32,
    resources: Vec<(ResourceId, Arc<str>)>,
    operations: Vec<(u32, Operation)>,
    bytes: usize,
}

impl HoldOps {
    pub(crate) fn new(partition: u32) -> Self {
        Self {
            partition,
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, name: &Arc<str>, operation: Operation) {
        let known = self
            .resources
            .iter()
            .rposition(|(id, _)| *id == operation.resource);
        let index = known.unwrap_or_else(|| {
            self.resources.push((operation.resource, Arc::clone(name)));
            self.bytes += name.len() + 4;
            self.resources.len() - 1
        });
        self.bytes += operation.bytes();
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        self.operations.push((index, operation));
    }

    /// How many resources the operations have.
    pub(crate) fn resources(&self) -> usize {
        self.resources.len()
    }

    #[cfg(test)]
    pub(crate) fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.operations.iter().map(|(_, operation)| operation)
    }

    /// Writes the record.
    pub(crate) fn encode(&self, writer: &mut Writer, sender: &Sender<'_>) {
        let names: Vec<&str> = self.resources.iter().map(|(_, name)| &**name).collect();
        let ops = self.operations.iter().map(|(index, operation)| HoldOp {
            resource: *index,
            number: operation.number,
            at: operation.at,
            action: operation.action(),
        });
        write_holds(writer, sender, &names, ops);
    }
}

/// A heartbeat for one partition.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    pub(crate) partition: u32,
    pub(crate) head: HeartbeatHead,
    pub(crate) parts: Vec<HeartbeatPart>,
}

/// What a heartbeat states about one resource.
#[derive(Debug)]
pub(crate) struct HeartbeatPart {
    pub(crate) name: Arc<str>,
    pub(crate) awaiting: Vec<u64>,
    pub(crate) asked: Vec<u64>,
    pub(crate) content: HeartbeatContent,
}

#[derive(Debug)]
pub(crate) enum HeartbeatContent {
    Digest(Holdings),
    List {
        from: u64,
        upto: u64,
        listed: Vec<HeartbeatHold>,
    },
}

#[derive(Debug)]
pub(crate) struct HeartbeatHold {
    pub(crate) number: u64,
    pub(crate) domain: Arc<str>,
    pub(crate) copies: u32,
    pub(crate) start: Timestamp,
    pub(crate) strict: bool,
    pub(crate) seized: Option<TransferId>,
}

impl HeartbeatPart {
    /// About as many bytes as it takes in a record.
    pub(crate) fn bytes(&self) -> usize {
        let listed: usize = match &self.content {
            HeartbeatContent::Digest(_) => 0,
            HeartbeatContent::List { listed, .. } => listed.iter().map(HeartbeatHold::bytes).sum(),
        };
        64 + self.name.len() + 9 * (self.awaiting.len() + self.asked.len()) + listed
    }
}

impl HeartbeatHold {
    pub(crate) fn bytes(&self) -> usize {
        64 + self.domain.len()
    }
}

impl Heartbeat {
    /// Writes the record.
    pub(crate) fn encode(&self, writer: &mut Writer, sender: &Sender<'_>) {
        // A resource whose list was cut is in several parts, and its name is written once.
        let mut names: Vec<&str> = Vec::new();
        let mut indices = Vec::new();
        for part in &self.parts {
            if names.last() != Some(&&*part.name) {
                names.push(&part.name);
            }
            indices.push(u32::try_from(names.len() - 1).unwrap_or(u32::MAX));
        }
        let lists: Vec<Vec<Listed<'_>>> = self.parts.iter().map(HeartbeatPart::listed).collect();
        let parts: Vec<Part<'_>> = self
            .parts
            .iter()
            .zip(&lists)
            .zip(indices)
            .map(|((part, listed), resource)| Part {
                resource,
                awaiting: &part.awaiting,
                asked: &part.asked,
                holds: match part.content {
                    HeartbeatContent::Digest(digest) => Holds::Digest(digest),
                    HeartbeatContent::List { from, upto, .. } => Holds::List { from, upto, listed },
                },
            })
            .collect();
        write_heartbeat(writer, sender, &names, self.head, &parts);
    }
}

impl HeartbeatPart {
    fn listed(&self) -> Vec<Listed<'_>> {
        let HeartbeatContent::List { listed, .. } = &self.content else {
            return Vec::new();
        };
        listed
            .iter()
            .map(|hold| Listed {
                number: hold.number,
                domain: &hold.domain,
                copies: hold.copies,
                start: hold.start,
                strict: hold.strict,
                seized: hold.seized,
            })
            .collect()
    }
}
