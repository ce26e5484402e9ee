//! Appends of one partition that the log has not answered yet.
//!
//! Each partition numbers its own appends, so that no number depends on what other partitions do at the same time;
//! a ticket has the partition in its upper bits. What stays true: tickets of a partition rise, and no ticket is used
//! twice during the life of the process.

use std::collections::HashMap;

use tollgate_log::Ticket;

/// Bits of a ticket for the number: a million appends a second for half a year.
const NUMBER_BITS: u32 = 44;

/// The purpose of an append.
#[derive(Clone, Debug)]
pub enum AppendPurpose {
    /// A tick.
    Tick,
    /// A limits activation.
    LimitsActivation,
    /// A total of this resource.
    Total(Box<str>),
    /// A state digest. It is not appended again.
    StateDigest,
}

/// The appends of one partition that are on their way.
#[derive(Debug)]
pub struct Appends {
    last: Ticket,
    purposes: HashMap<Ticket, AppendPurpose>,
}

impl Appends {
    /// No appends yet.
    pub fn new(partition: u32) -> Self {
        Self {
            last: Ticket((u64::from(partition) + 1) << NUMBER_BITS),
            purposes: HashMap::new(),
        }
    }

    /// Issues the ticket of the next append.
    pub fn send(&mut self, purpose: AppendPurpose) -> Ticket {
        let ticket = self.send_unnoted();
        self.purposes.insert(ticket, purpose);
        ticket
    }

    /// Issues the ticket of an append whose purpose its sender notes: decision records are many.
    pub fn send_unnoted(&mut self) -> Ticket {
        self.last.0 += 1;
        self.last
    }

    /// The purpose of an append that was answered; `None`: none was noted, or the partition does not wait for the
    /// answer any more.
    pub fn answered(&mut self, ticket: Ticket) -> Option<AppendPurpose> {
        self.purposes.remove(&ticket)
    }
}

/// The partition that issued a ticket; `None`: no partition did.
pub fn sender_of(ticket: Ticket) -> Option<u32> {
    let sender = (ticket.0 >> NUMBER_BITS).checked_sub(1)?;
    u32::try_from(sender).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_names_the_partition_that_appended() {
        for partition in [0, 1, 100_000] {
            let mut appends = Appends::new(partition);
            let first = appends.send(AppendPurpose::Tick);
            let second = appends.send(AppendPurpose::LimitsActivation);
            assert!(first < second);
            assert_eq!(sender_of(second), Some(partition));
            assert!(appends.answered(first).is_some());
            assert!(appends.answered(first).is_none());
        }
        assert_eq!(sender_of(Ticket(7)), None);
    }
}
