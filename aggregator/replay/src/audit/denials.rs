//! The stream `denials`, read beside the hits of a partition.

use std::collections::VecDeque;

use tollgate_shared::wire::denial::Announced;

use super::ledger::Recorded;
use super::report::{Difference, DifferenceKind, PartitionAudit};
use crate::replay::ReplayError;
use crate::source::{Cursor, ReadStep};
use tollgate_log::Delivered;

/// The recorded statements, read ahead by one batch.
pub(super) struct Denials {
    pub(super) cursor: Box<dyn Cursor>,
    pub(super) batch: VecDeque<Delivered>,
    pub(super) next: Option<u64>,
    /// Recorded statements whose cause the replay has not reached.
    pub(super) ahead: Vec<(Recorded, Announced)>,
}

impl Denials {
    /// Reads the next batch; false at the end.
    pub(super) fn refill(
        &mut self,
        index: u32,
        part: &mut PartitionAudit,
    ) -> Result<bool, ReplayError> {
        match self.cursor.read()? {
            ReadStep::Records(records) => {
                for record in records {
                    let next = self.next.replace(record.offset + 1);
                    if let Some(next) = next.filter(|next| *next < record.offset) {
                        let text =
                            format!("records are missing, up to offset {}", record.offset - 1);
                        let place = (index, "denials", next);
                        part.differs(Difference::of_record(DifferenceKind::Gap, place, text));
                    }
                    self.batch.push_back(record);
                }
                Ok(true)
            }
            ReadStep::Gone { .. } => Ok(true),
            ReadStep::End => Ok(false),
        }
    }

    pub(super) fn reaches(&self, next: u64) -> bool {
        self.ahead
            .iter()
            .any(|(_, announced)| next <= announced.statement.position.offset)
    }
}
