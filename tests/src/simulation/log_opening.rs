//! The log at the start of an aggregator's process: the journal is opened, and what it has kept is compared with the
//! records that were acknowledged.
//!
//! Knows nothing of appends and deliveries afterwards. What stays true: a journal opens after any end of its process;
//! only a power cut may remove acknowledged records, only records of hits and denials, and only if the log acknowledges
//! records before they are durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_log::journal::core::Core as Journal;
use tollgate_log::journal::disk::Disk;
use tollgate_log::journal::{Ack, JournalReader, LastStop, OpenError};
use tollgate_log::{Delivered, Stream};
use tollgate_server::core::Start;

use super::log_host::LogHost;
use super::world::World;

impl World {
    /// Opens the log for an aggregator's process that starts. Returns the state in which it was found.
    pub(super) fn open_log(&mut self, owner: usize) -> Option<Start> {
        let wall = self.log_clock.wall(self.now_us);
        let LogHost::Journal {
            disk,
            config,
            core,
            boot,
            is_cut,
            generation,
        } = &mut self.log
        else {
            // As with Kafka: the begin of a partition is known when it has been read.
            return Some(Start {
                generation: 1,
                unbegun: Vec::new(),
                snapshots: BTreeMap::new(),
            });
        };
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let boot = format!("boot-{boot}");
        let opened = Journal::open(config.clone(), shared, Some(&boot), wall);
        if disk.has_crashed() {
            drop(opened);
            self.crashed_in_opening(owner);
            return None;
        }
        match opened {
            Ok((journal, report)) => {
                *core = Some(Box::new(journal));
                let cover = &mut self.watch.cover;
                cover.see_if("torn end cut off", !report.torn.is_empty());
                let is_clean = report.last_stop == LastStop::Clean;
                cover.see_if("journal closed in order", is_clean);
                // The previous process may have ended while it opened the journal, and noticed the power cut first.
                let power = std::mem::take(is_cut);
                cover.see_if("power cut under synced", power && config.ack == Ack::Synced);
                let may_lose = power && config.ack == Ack::Written;
                let before = std::mem::replace(generation, report.generation);
                if may_lose && report.generation == before {
                    let what = format!("generation {before} after a power cut, and it was before");
                    self.violated(
                        5,
                        "a log that may have lost records is of another generation",
                        what,
                    );
                    return None;
                }
                self.recover(may_lose)?;
                self.watch.unbegun = report.unbegun.iter().copied().collect();
                Some(Start {
                    generation: report.generation,
                    unbegun: report.unbegun,
                    snapshots: BTreeMap::new(),
                })
            }
            // If the disk refuses an operation, an operator tries again.
            Err(OpenError::Io { .. }) => {
                self.after(300_000, move |world| world.owner_starts(owner));
                None
            }
            Err(error) => {
                self.violated(5, "a journal opens after any end", error.to_string());
                None
            }
        }
    }

    /// Reads the journal's content directly, and compares it with the acknowledged records.
    fn recover(&mut self, may_lose: bool) -> Option<()> {
        let found = match self.read_journal() {
            Ok(found) => found,
            Err(what) => {
                self.violated(5, "a journal that opened can be read", what);
                return None;
            }
        };
        let left: BTreeMap<(Stream, u32), u64> = found
            .iter()
            .map(|(at, records)| (*at, records.len() as u64))
            .collect();
        let known: Vec<(Stream, u32)> = self.watch.records.keys().copied().collect();
        for (stream, partition) in known {
            let (has, had) = (
                left.get(&(stream, partition)).copied().unwrap_or(0),
                self.watch.len(stream, partition),
            );
            // Records of limits are made durable before they are acknowledged, whatever the setting for hits.
            let is_durable = !may_lose || stream == Stream::Limits;
            let what = "checked: limits survive a power cut";
            self.see_if(what, may_lose && is_durable && 0 < had);
            if has < had && is_durable {
                let what = format!("{stream:?} {partition}: {had} records, {has} are left");
                self.violated(5, "what was acknowledged survives", what);
                return None;
            }
        }
        match self.watch.cut_to(&left, self.now_us) {
            Ok(0) => {}
            Ok(lost) => {
                self.see("power cut lost acknowledged records");
                self.event(&[30, lost], || format!("{lost} records are lost"));
            }
            Err(violation) => {
                self.violated_by(violation);
                return None;
            }
        }
        let order = [Stream::Limits, Stream::Hits, Stream::Denials];
        for stream in order {
            for ((_, partition), records) in found.iter().filter(|((of, _), _)| *of == stream) {
                for record in records {
                    self.seen_in_log(stream, *partition, record)?;
                }
            }
        }
        Some(())
    }

    fn read_journal(&self) -> Result<BTreeMap<(Stream, u32), Vec<Delivered>>, String> {
        let mut found = BTreeMap::new();
        let LogHost::Journal { disk, config, .. } = &self.log else {
            return Ok(found);
        };
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let reader = JournalReader::open(&config.dir, shared).map_err(|e| e.to_string())?;
        let streams = [
            (Stream::Limits, 1),
            (Stream::Hits, config.partitions),
            (Stream::Denials, config.partitions),
        ];
        for (stream, count) in streams {
            for partition in 0..count {
                let records: Result<Vec<_>, _> =
                    reader.read(stream, partition, 0).into_iter().collect();
                let records = records.map_err(|error| error.to_string())?;
                found.insert((stream, partition), records);
            }
        }
        Ok(found)
    }
}
