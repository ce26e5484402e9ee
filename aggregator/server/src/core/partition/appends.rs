//! What one partition has appended to the log, and was not answered yet.
//!
//! Each partition numbers its appends by itself, so that no number depends on what others do at the same time; a
//! ticket has the partition in its upper bits. What stays true: tickets of a partition rise, and none is given
//! twice as long as the process lives.

use std::collections::HashMap;

use tollgate_log::Ticket;

/// Bits of a ticket that count: a million appends a second for half a year.
const NUMBER_BITS: u32 = 44;

/// What an append was for.
#[derive(Clone, Debug)]
pub enum AppendPurpose {
    /// Time.
    Tick,
    /// New limits.
    Pointer,
    /// A total of this resource.
    Total(Box<str>),
    /// Evidence of a statement.
    Evidence,
    /// What the state was. It is not appended again.
    Testimony,
}

/// The appends of one partition that are on their way.
#[derive(Debug)]
pub struct Appends {
    last: Ticket,
    purposes: HashMap<Ticket, AppendPurpose>,
}

impl Appends {
    /// None yet.
    pub fn new(partition: u32) -> Self {
        Self {
            last: Ticket((u64::from(partition) + 1) << NUMBER_BITS),
            purposes: HashMap::new(),
        }
    }

    /// Names the next one.
    pub fn send(&mut self, purpose: AppendPurpose) -> Ticket {
        self.last.0 += 1;
        self.purposes.insert(self.last, purpose);
        self.last
    }

    /// What an append was for that is answered; `None` means that nobody waits for the answer.
    pub fn answered(&mut self, ticket: Ticket) -> Option<AppendPurpose> {
        self.purposes.remove(&ticket)
    }
}

/// The partition that named an append; `None` means that no partition did.
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
            let second = appends.send(AppendPurpose::Pointer);
            assert!(first < second);
            assert_eq!(sender_of(second), Some(partition));
            assert!(appends.answered(first).is_some());
            assert!(appends.answered(first).is_none());
        }
        assert_eq!(sender_of(Ticket(7)), None);
    }
}
