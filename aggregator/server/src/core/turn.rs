//! Ticks and limits activations: a partition appends them at the end of a turn, and handles activations that it
//! reads.

use tollgate_shared::time::Span;
use tollgate_shared::wire::record::{LimitsActivation, RecordPen, Tick};

use super::partition::appends::AppendPurpose;
use super::partition::event::PartitionStep;
use super::partition::{Partition, Stage};
use tollgate_log::{Delivered, Stream};

impl Partition {
    /// Whether [`tick_and_point`](Self::tick_and_point) could do anything, if limits of the version `latest` are to be
    /// activated.
    pub(super) fn may_tick_or_point(&self, clock: Span, latest: Option<u64>) -> bool {
        self.is_tick_due(clock) || latest.is_some_and(|latest| self.ruler.version() < latest)
    }

    /// Appends a tick and an activation, if they are due.
    pub(super) fn tick_and_point(&mut self, step: &mut PartitionStep<'_>) {
        self.tick(step);
        self.point(step);
    }

    /// Appends a tick: one at a time, and none before the log's identity is known.
    fn tick(&mut self, step: &mut PartitionStep<'_>) {
        let (context, clock) = (step.context, step.clock());
        let is_due = self.is_tick_due(clock);
        let Some(log) = self.log().filter(|_| is_due) else {
            return;
        };
        if self.is_ending_its_key(context) {
            self.ticks.wait_from(clock);
            return;
        }
        self.ticks.number += 1;
        self.ticks.sent = clock;
        self.ticks.under = self.ruler.version();
        let tick = Tick {
            log,
            aggregator: &context.settings.aggregator,
            instance: context.instance,
            number: self.ticks.number,
        };
        let record = RecordPen::new(context.writer(self.ticks.under), self.index).tick(&tick);
        let ticket = self.append(Stream::Hits, record, AppendPurpose::Tick, step);
        step.counters().ticks += 1;
        self.ticks.slot.ticket = Some(ticket);
        self.ticks.wait_from(clock);
    }

    /// Activates the newest limits version if it is not in force in the partition yet.
    fn point(&mut self, step: &mut PartitionStep<'_>) {
        let context = step.context;
        let Some(latest) = context.limits.to_point_at(&context.settings.keys) else {
            return;
        };
        let wanted = self.stage == Stage::Ruling
            && self.log().is_some()
            && self.ruler.version() < latest.number
            && self.pointing.slot.is_free(step.clock());
        if !wanted {
            return;
        }
        let activation = LimitsActivation {
            version: latest.number,
            digest: latest.digest,
        };
        self.pointing.under = self.ruler.version();
        let pen = RecordPen::new(context.writer(self.pointing.under), self.index);
        let record = pen.limits_activation(&activation);
        let ticket = self.append(Stream::Hits, record, AppendPurpose::LimitsActivation, step);
        step.counters().limits_activations += 1;
        self.pointing.slot.ticket = Some(ticket);
        self.pointing.version = activation.version;
    }

    fn is_tick_due(&self, clock: Span) -> bool {
        self.next_tick().is_some_and(|due| due <= clock)
    }

    /// When the next tick is due, if none is on its way.
    pub(super) fn next_tick(&self) -> Option<Span> {
        let is_free =
            self.stage == Stage::Ruling && self.log().is_some() && self.ticks.slot.ticket.is_none();
        is_free.then(|| self.ticks.due())
    }
}

impl Partition {
    /// Whether an activation may be ruled now. If not, the partition waits for the version, or the activation was
    /// refused and passed over.
    pub(super) fn may_activate(
        &mut self,
        delivered: &Delivered,
        activation: &LimitsActivation,
        step: &mut PartitionStep<'_>,
    ) -> bool {
        let limits = step.context.limits;
        let known = self.ruler.version();
        if activation.version <= known {
            return true;
        }
        if let Some(version) = limits.book.newer_between(known, activation.version) {
            self.stop(format!("limits version {version} needs a later build"));
            return false;
        }
        let found = limits.book.get(activation.version);
        if found.is_some_and(|version| version.digest == activation.digest) {
            return match self.why_no_key(activation.version, step) {
                Some(why) => {
                    self.stop(why);
                    false
                }
                None => true,
            };
        }
        if found.is_none() && limits.next <= activation.version {
            let version = activation.version;
            tracing::debug!(partition = self.index, version, "waits for limits");
            self.stage = Stage::Waiting { version };
            return false;
        }
        step.counters().forged += 1;
        let why = format!("no limits version {} with this digest", activation.version);
        self.advance(delivered, step);
        self.keep_dead_letter(delivered, why, step);
        false
    }
}
