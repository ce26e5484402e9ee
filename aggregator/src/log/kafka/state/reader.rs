//! Reading snapshots: which there are, and the chunks of one.
//!
//! Waits for Kafka. What stays true: chunks are handed out only with the digest that they were written with.

use std::collections::BTreeMap;
use std::time::Instant;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{Offset, TopicPartitionList};

use super::super::consumer::{self, Logging};
use super::super::{KafkaFault, properties, rights};
use super::catalogue::{Candidate, Catalogue};
use super::wire::{Key, Manifest};
use super::{SILENCE_MAX, StateError, StateTopic, unsigned};

/// Reads snapshots.
pub struct StateReader {
    client: BaseConsumer<Logging>,
    state: StateTopic,
}

impl StateReader {
    pub(super) fn new(state: StateTopic) -> Result<Self, KafkaFault> {
        Ok(Self {
            client: properties::reader(&state.config)?
                .create_with_context(Logging)
                .map_err(properties::fault_of)?,
            state,
        })
    }

    /// Another client for the same.
    ///
    /// # Errors
    ///
    /// Where a property is wrong.
    pub fn anew(&self) -> Result<Self, KafkaFault> {
        self.state.reader()
    }

    /// Looks at all snapshots of a partition: those that look whole, newest first. The others are
    /// passed over, loudly.
    ///
    /// # Errors
    ///
    /// Where Kafka does not answer.
    pub fn candidates(&self, partition: u32) -> Result<Vec<Candidate>, StateError> {
        let mut seen = Catalogue::default();
        let rules = self.state.rules;
        self.read(partition, Offset::Beginning, |message| {
            match Key::decode(message.key().unwrap_or_default()) {
                Ok(key) if key.partition == partition => {
                    let is_manifest = key.chunk.is_none();
                    let offset = unsigned(message.offset());
                    match message.payload() {
                        Some(value) if is_manifest => {
                            let manifest = Manifest::decode(value, rules);
                            let at = unsigned(message.timestamp().to_millis().unwrap_or(0));
                            seen.enter(key, Some(manifest), offset, at);
                        }
                        Some(_) => {
                            let Key { id, chunk, .. } = key;
                            seen.enter_chunk(&id, chunk.unwrap_or_default());
                        }
                        None => seen.enter(key, None, offset, 0),
                    }
                }
                Ok(_) | Err(_) => {
                    let offset = message.offset();
                    tracing::warn!(partition, offset, "a foreign record among snapshots");
                }
            }
            true
        })?;
        let (whole, passed_over) = seen.candidates();
        for (id, why) in passed_over {
            let (upto, group) = (id.upto, &id.group);
            tracing::warn!(partition, upto, %group, why, "a snapshot is passed over");
        }
        self.state.with_catalogue(partition, |known| *known = seen);
        Ok(whole)
    }

    /// The chunks of a snapshot.
    ///
    /// # Errors
    ///
    /// [`StateError::Corrupt`] where they are not what was written.
    pub fn chunks(
        &self,
        partition: u32,
        candidate: &Candidate,
    ) -> Result<Vec<Vec<u8>>, StateError> {
        let Candidate {
            id,
            manifest,
            offset,
        } = candidate;
        let mut found: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        let first = i64::try_from(manifest.first).unwrap_or(i64::MAX);
        self.read(partition, Offset::Offset(first), |message| {
            if let Ok(key) = Key::decode(message.key().unwrap_or_default())
                && key.id == *id
                && let (Some(chunk), Some(bytes)) = (key.chunk, message.payload())
            {
                found.insert(chunk, bytes.to_vec());
            }
            unsigned(message.offset()) < *offset
        })?;
        let mut digest = blake3::Hasher::new();
        for chunk in found.values() {
            digest.update(chunk);
        }
        if found.keys().copied().eq(0..manifest.chunks)
            && digest.finalize().as_bytes() == &manifest.digest
        {
            Ok(found.into_values().collect())
        } else {
            Err(StateError::Corrupt(format!(
                "its {} chunks, {} expected, do not have the digest that they were written with",
                found.len(),
                manifest.chunks
            )))
        }
    }

    /// Hands out a partition's records, until there are no more or `take` has had enough.
    fn read(
        &self,
        partition: u32,
        from: Offset,
        mut take: impl FnMut(&BorrowedMessage<'_>) -> bool,
    ) -> Result<(), StateError> {
        let kafka = |error: KafkaError| match rights::is_about_a_topic(&error) {
            true => self.state.kafka(format!("Read: {error}")),
            false => self.state.kafka(error),
        };
        let mut list = TopicPartitionList::new();
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        list.add_partition_offset(&self.state.topic, number, from)
            .map_err(kafka)?;
        self.client.assign(&list).map_err(kafka)?;
        let mut deadline = Instant::now() + SILENCE_MAX;
        let read = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(self.state.kafka("nothing was heard in time"));
            }
            match self.client.poll(left) {
                Some(Ok(message)) => {
                    deadline = Instant::now() + SILENCE_MAX;
                    if !take(&message) {
                        break Ok(());
                    }
                }
                Some(Err(KafkaError::PartitionEOF(_))) => break Ok(()),
                Some(Err(error)) if consumer::is_about_the_network(&error) => {
                    tracing::debug!(%error, "kafka state");
                }
                Some(Err(error)) => break Err(kafka(error)),
                None => {}
            }
        };
        // What was fetched beyond is let go.
        let _ = self.client.unassign();
        read
    }
}
