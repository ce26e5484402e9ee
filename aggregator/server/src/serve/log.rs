//! Opens the log that the configuration names.

use std::num::NonZeroU32;
use std::sync::Arc;

use tokio::sync::mpsc;
use tollgate_shared::time::Span;

use crate::ServeError;
use crate::config::{self, Config, LogKind};
use crate::core::Start;
use crate::edge;
use tollgate_log::journal::disk::OsDisk;
use tollgate_log::journal::snapshots::Snapshots;
use tollgate_log::journal::{self, JournalConfig, JournalContext, LastStop, OpenReport};
use tollgate_log::{Log, LogSender};

/// An open log, and the state in which it was found.
pub struct OpenedLog {
    /// The log.
    pub log: Box<dyn Log>,
    /// Its state.
    pub start: Start,
    /// Reports later, if at all, that the log cannot be used as it is configured.
    pub faults: mpsc::Receiver<ServeError>,
    /// The settings of a fleet's member, if this aggregator is one.
    #[cfg(feature = "kafka")]
    pub place: Option<(super::fleet::FleetSettings, mpsc::Sender<ServeError>)>,
}

/// Opens the log; its events go to `events`.
///
/// # Errors
///
/// If it cannot be used.
pub fn open(config: &Config, events: LogSender) -> Result<OpenedLog, ServeError> {
    match config.log {
        LogKind::Journal => open_journal(&config.journal, events),
        LogKind::Kafka => open_kafka(config, events),
    }
}

fn open_journal(config: &config::Journal, events: LogSender) -> Result<OpenedLog, ServeError> {
    let defaults = JournalConfig::new(&config.dir);
    // Why an existing journal cannot be read is reported when it is opened.
    let existing = || journal::partitions_of(&config.dir, &OsDisk);
    let partitions = config.partitions.map_or_else(
        || existing().unwrap_or(defaults.partitions),
        NonZeroU32::get,
    );
    edge::check_room_for_journal(partitions).map_err(ServeError::Refused)?;
    let journal = JournalConfig {
        partitions,
        ack: match config.ack {
            config::Ack::Written => journal::Ack::Written,
            config::Ack::Synced => journal::Ack::Synced,
        },
        retention: Span::from_std(config.retention),
        until_snapshot: true,
        ..defaults
    };
    let journal = journal.bounded(config.retention_bytes).map_err(|least| {
        ServeError::Refused(format!(
            "{}: journal.retention_bytes = {} bytes: expected at least {}MiB for {partitions} partitions",
            config.retention_bytes_origin,
            config.retention_bytes,
            least >> 20
        ))
    })?;
    let (journal, report) =
        journal::Journal::open(journal, JournalContext::of_this_machine(), events)
            .map_err(ServeError::Journal)?;
    log_report(&report);
    Ok(OpenedLog {
        log: Box::new(journal),
        start: Start {
            generation: report.generation,
            unbegun: report.unbegun,
            snapshots: Snapshots::beside(&config.dir, Arc::new(OsDisk)).read_all(partitions),
        },
        faults: mpsc::channel(1).1,
        #[cfg(feature = "kafka")]
        place: None,
    })
}

fn log_report(report: &OpenReport) {
    let how = match report.last_stop {
        LastStop::New => "new",
        LastStop::Clean => "it was closed in order",
        LastStop::Killed => "its process was killed",
        LastStop::PowerCut => "the machine went down under it",
    };
    tracing::info!(generation = report.generation, how, "journal open");
    for torn in &report.torn {
        tracing::warn!(
            file = %torn.file.display(),
            position = torn.position,
            cut_bytes = torn.cut_bytes,
            "a torn last record was cut off"
        );
    }
}

#[cfg(feature = "kafka")]
fn open_kafka(config: &Config, events: LogSender) -> Result<OpenedLog, ServeError> {
    use tollgate_log::kafka::{KafkaFault, KafkaLog, Missing, check};

    let kafka = config.kafka.of_log();
    let log = KafkaLog::open(kafka.clone(), events)?;
    // Topics are checked in the background, because that takes seconds if no broker answers, and then there is no
    // fault that could not disappear.
    let (sender, faults) = mpsc::channel(2);
    let (place, checked) = (
        super::fleet::FleetSettings {
            kafka: kafka.clone(),
            name: config.name.clone(),
            keep_hourly: config.snapshot.keep_hourly,
        },
        sender.clone(),
    );
    std::thread::spawn(move || match check(&kafka, Missing::Create) {
        Ok(_) | Err(KafkaFault::Unreachable { .. }) => {}
        Err(fault) => drop(checked.blocking_send(fault.into())),
    });
    Ok(OpenedLog {
        log: Box::new(log),
        // Which partitions need an identity is known when they have been read.
        start: Start {
            generation: 1,
            unbegun: Vec::new(),
            snapshots: Default::default(),
        },
        faults,
        place: Some((place, sender)),
    })
}

#[cfg(not(feature = "kafka"))]
fn open_kafka(_: &Config, _: LogSender) -> Result<OpenedLog, ServeError> {
    // The configuration was refused already.
    Err(ServeError::Refused(
        "log.kind = \"kafka\": built without the feature `kafka`".to_owned(),
    ))
}
