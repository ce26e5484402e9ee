//! Reading snapshots: the list of them, and the chunks of one.
//!
//! Waits for Kafka. What stays true: chunks are returned only if their digest is the one in the
//! manifest.

use std::time::Instant;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{Offset, TopicPartitionList};

use super::super::consumer::{self, Logging};
use super::super::{KafkaFault, properties, rights};
use super::catalogue::{Candidate, Catalogue, Gathered, Record};
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

    /// Another reader of the same topic, with a client of its own.
    ///
    /// # Errors
    ///
    /// If a property is wrong.
    pub fn reopen(&self) -> Result<Self, KafkaFault> {
        self.state.reader()
    }

    /// Examines all snapshots of a partition and returns those that look whole, newest first. Logs
    /// the others.
    ///
    /// # Errors
    ///
    /// If Kafka does not answer.
    pub fn candidates(&self, partition: u32) -> Result<Vec<Candidate>, StateError> {
        let mut seen = Catalogue::default();
        let rules = self.state.rules;
        self.read(partition, Offset::Beginning, |message| {
            let at = unsigned(message.timestamp().to_millis().unwrap_or(0));
            let record = record(message);
            if seen.enter_record(partition, &record, at, rules).is_err() {
                let offset = record.offset;
                tracing::warn!(
                    partition,
                    offset,
                    "a record that is not part of a snapshot is skipped"
                );
            }
            true
        })?;
        let (whole, passed_over) = seen.candidates();
        for (id, why) in passed_over {
            let (upto, group) = (id.upto, &id.group);
            tracing::warn!(partition, upto, %group, why, "a snapshot is skipped");
        }
        self.state.with_catalogue(partition, |known| *known = seen);
        Ok(whole)
    }

    /// The chunks of a snapshot.
    ///
    /// # Errors
    ///
    /// [`StateError::Corrupt`] if they are not what was written.
    pub fn chunks(
        &self,
        partition: u32,
        candidate: &Candidate,
    ) -> Result<Vec<Vec<u8>>, StateError> {
        let mut found = Gathered::default();
        let first = i64::try_from(candidate.manifest.first).unwrap_or(i64::MAX);
        self.read(partition, Offset::Offset(first), |message| {
            found.enter(candidate, &record(message))
        })?;
        found
            .whole(&candidate.manifest)
            .map_err(StateError::Corrupt)
    }

    /// Passes a partition's records to `take`, until there are no more or `take` has had enough.
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
                break Err(self.state.kafka("nothing was received in time"));
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
        // Drop what was fetched beyond.
        let _ = self.client.unassign();
        read
    }
}

fn record<'a>(message: &'a BorrowedMessage<'_>) -> Record<'a> {
    Record {
        offset: unsigned(message.offset()),
        key: message.key().unwrap_or_default(),
        value: message.payload(),
    }
}
