//! The link: the one address that agents need. ZeroMQ ROUTER; what is said stands in `wire::link`.
//!
//! What an agent sends is decoded here, whole, before anything else sees it: what only aggregators may
//! write, what cannot be read and what is not there is refused with a reason, and never reaches the
//! log. Knows nothing of rules.
//!
//! What stays true: an agent that does not read its answers costs the others nothing; what is lost on
//! the way to it (at a bound, or with its connection) it asks or sends again by its own rules.

mod socket;

pub use socket::{Answers, LinkCounters, serve};

use tollgate_shared::wire::Writer;
use tollgate_shared::wire::link::{FromAgent, FromAggregator, Refusal};
use tollgate_shared::wire::record::{Record, kind};

use crate::core::event::Request;

/// The most resources that one ask may name. An agent with more asks twice.
pub const ASK_RESOURCES_MAX: usize = 10_000;

/// What becomes of a message of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// It goes on to the core.
    Request(Request),
    /// It is answered at once: it asks for what can never be.
    Refused(FromAggregator),
    /// It cannot be read, so nobody knows what to answer.
    Garbage,
}

/// Decodes and checks a message; `partitions` is how many the log has.
pub fn admit(message: &[u8], partitions: u32) -> Admitted {
    match FromAgent::decode(message) {
        Ok(FromAgent::Hello { nonce, .. }) => Admitted::Request(Request::Hello { nonce }),
        Ok(FromAgent::Ask { nonce, resources }) if resources.len() <= ASK_RESOURCES_MAX => {
            let resources = resources.into_iter().map(Into::into).collect();
            Admitted::Request(Request::Ask { nonce, resources })
        }
        Ok(FromAgent::Append {
            id,
            partition,
            record,
        }) => match check_record(partition, record, partitions) {
            Ok(()) => Admitted::Request(Request::Append {
                id,
                partition,
                record: record.to_vec(),
            }),
            Err(text) => Admitted::Refused(FromAggregator::Refused {
                id,
                reason: Refusal::Never,
                text: text.into(),
            }),
        },
        Ok(FromAgent::Ask { .. }) | Err(_) => Admitted::Garbage,
    }
}

fn check_record(partition: u32, record: &[u8], partitions: u32) -> Result<(), String> {
    if partitions <= partition {
        return Err(format!(
            "partition {partition} does not exist, there are {partitions}"
        ));
    }
    // The kind stands behind the version byte; a record too short for it does not decode.
    if let Some(&found) = record.get(1)
        && !kind::is_agents(found)
    {
        return Err(format!("kind {found} is not an agent's to write"));
    }
    Record::decode(record)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// The bytes of an answer.
pub fn encode(answer: &FromAggregator, writer: &mut Writer) -> Vec<u8> {
    answer.encode(writer);
    writer.as_slice().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_shared::mac::MacKey;
    use tollgate_shared::place::LogId;
    use tollgate_shared::time::Timestamp;
    use tollgate_shared::wire::hits::{Hit, Sender, write_hits};
    use tollgate_shared::wire::record::OwnersPen;

    fn hits() -> Vec<u8> {
        let sender = Sender {
            agent: "a",
            epoch: 1,
            sequence: 1,
            sent: Timestamp::from_millis(5),
        };
        let hit = Hit::one(0, "acme", Timestamp::from_millis(5), 1);
        let mut writer = Writer::new();
        write_hits(
            &mut writer,
            &sender,
            &["r"],
            [hit].into_iter(),
            [].into_iter(),
        );
        writer.as_slice().to_vec()
    }

    fn append(partition: u32, record: &[u8]) -> Admitted {
        let mut writer = Writer::new();
        FromAgent::Append {
            id: 7,
            partition,
            record,
        }
        .encode(&mut writer);
        admit(writer.as_slice(), 4)
    }

    fn refusal(admitted: Admitted) -> String {
        match admitted {
            Admitted::Refused(FromAggregator::Refused {
                id: 7,
                reason: Refusal::Never,
                text,
            }) => text.into(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_agent_may_write_hits_and_nothing_else() {
        assert!(matches!(
            append(3, &hits()),
            Admitted::Request(Request::Append { id: 7, .. })
        ));
        assert!(refusal(append(4, &hits())).contains("partition 4"));
        let genesis = OwnersPen::new(&MacKey::UNPROTECTED, 0).genesis(LogId::default());
        assert!(refusal(append(0, &genesis)).contains("kind 1"));
        // A skippable kind of a later build is still not an agent's.
        assert!(refusal(append(0, &[1, 0x85])).contains("kind 133"));
    }

    #[test]
    fn garbage_is_refused_with_the_place_of_the_fault() {
        let mut cut = hits();
        cut.truncate(cut.len() - 1);
        assert!(refusal(append(0, &cut)).starts_with("byte "));
        assert!(refusal(append(0, &[])).starts_with("byte 0"));
        assert_eq!(admit(b"\x01\x63nothing", 4), Admitted::Garbage);
        assert_eq!(admit(&[], 4), Admitted::Garbage);
    }
}
