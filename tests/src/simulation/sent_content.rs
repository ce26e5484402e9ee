//! What an agent's record contains, whenever it was sent.
//!
//! A record that is sent again has the stamp of that sending, from which its other stamps are counted, so its bytes differ.
//! Knows nothing of connections.

use tollgate_shared::wire::heartbeat::{Heartbeat, HoldsRead};
use tollgate_shared::wire::hits::Sender;
use tollgate_shared::wire::record::Record;

use super::trace::hash_of;

/// A hash of it.
pub(super) fn content_of(record: &[u8]) -> u64 {
    let text = match Record::decode(record) {
        Ok(Record::Hits(batch)) => {
            let refused: Vec<_> = batch.refused().collect();
            let (resources, hits) = (batch.resources(), batch.hits());
            format!("{:?}", (whose(&batch.sender), resources, hits, refused))
        }
        Ok(Record::Holds(batch)) => {
            let ops: Vec<_> = batch.ops().collect();
            format!("{:?}", (whose(&batch.sender), batch.resources(), ops))
        }
        Ok(Record::Heartbeat(heartbeat)) => of_heartbeat(&heartbeat),
        _ => return hash_of(record),
    };
    hash_of(text.as_bytes())
}

fn whose<'a>(sender: &Sender<'a>) -> (&'a str, u128, u64) {
    (sender.agent, sender.epoch, sender.sequence)
}

fn of_heartbeat(heartbeat: &Heartbeat<'_>) -> String {
    let head = (&heartbeat.sender, &heartbeat.head);
    let mut text = format!("{:?}", (whose(head.0), head.1, heartbeat.resources()));
    for part in heartbeat.parts() {
        let holds = match &part.holds {
            HoldsRead::Digest(digest) => format!("{digest:?}"),
            HoldsRead::List { from, upto, .. } => format!("{from} {upto}"),
        };
        let (listed, awaiting) = (part.listed(), part.awaiting());
        let all = (
            part.resource,
            holds,
            listed.collect::<Vec<_>>(),
            awaiting.collect::<Vec<_>>(),
            part.asked().collect::<Vec<_>>(),
        );
        text += &format!("{all:?}");
    }
    text
}
