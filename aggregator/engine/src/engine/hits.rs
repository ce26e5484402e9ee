//! A record of hits: each entry is ruled on its pair, in the order of the record.
//!
//! ```text
//! batch of agent a, sequence 7, sent 12:00:00.010, appended 12:00:00.012
//!   fresh? by how much is its clock wrong?
//!   entry 0   api.search, acme, 12:00:00.004   -> its pair is opened, ruled, closed; a statement
//!                                                 if the end of its denial changed
//!   at the end, one total for each globally limited resource: the granted copies, and the excess
//!   that every constraint of its domain counted
//! ```
//!
//! Knows nothing of other kinds of records. What stays true: an entry of a known pair allocates nothing unless it
//! causes a statement.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::names;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::hits::{Hit, HitBatch, HitKind};
use tollgate_shared::wire::record::Total;

use super::Engine;
use super::activations::rule_of_amended;
use super::candidates::RuledEntry;
use super::denials::ScopeStanding;
use super::near::NearFrom;
use super::rule::{Rule, RulingContext, copies_of, event_of, rule, shows_open};
use super::rulings::{Counts, Fate, ResourceCounts, Rulings, TotalDue, add};
use super::senders::Clock;
use crate::pairs::{Hint, Identity, Opened, Prefix};
use crate::stream::{Pair, PairEvent, Ruled};
use tollgate_limits::{Limits, RateClass};

/// A hit stamped longer than this before its append is only counted.
pub const TOO_OLD: Span = Span::from_secs(600);

/// How many blocks a record searches for evicted pairs, and how many of those it frees: for each entry more than
/// it can add, but few enough to cause no pause.
const SWEEP_BLOCKS: u32 = 64;
const SWEEP_BLOCKS_PER_ENTRY: u32 = 32;
const SWEEP_PAIRS: u32 = 64;
const SWEEP_PAIRS_PER_ENTRY: u32 = 2;
const SWEEP_ENTRIES_MAX: u32 = 500;

/// Entries that are looked up before the first of them is ruled: enough to wait for memory once for all of them,
/// few enough to stay in the cache.
const AHEAD: usize = 24;

/// One resource of a batch.
struct Context<'l, 'a> {
    name: &'a str,
    /// The name, shared by statements, once there is one.
    shared_name: Option<Arc<str>>,
    rule: Rule<'l>,
    prefix: Prefix,
    counts: Counts,
    /// Calls let through.
    calls: u64,
    /// Copies that count against the global limit, in the order of the entries; empty without such a limit.
    global_copies: Vec<GlobalCopies>,
    near: NearFrom,
}

/// Copies of one entry that count against the global limit.
struct GlobalCopies {
    ms: u64,
    unguarded: bool,
    copies: u64,
}

/// Why an entry has no pair here.
#[derive(Clone, Copy)]
enum Unkept {
    /// Its pair belongs to another partition.
    Misrouted,
    /// Its pair is new, and there are as many pairs as allowed.
    AtCap,
}

/// An entry that will be ruled soon.
struct Ahead<'a> {
    /// Its number in the record.
    number: u32,
    hit: &'a Hit<'a>,
    /// Index of its resource's context.
    context: usize,
    identity: Identity,
    hint: Hint,
}

/// What all entries of a batch have in common.
struct Common<'l> {
    limits: &'l Limits,
    /// The class of a resource without limits.
    nothing: RateClass,
    clock: Clock,
    position: LogPosition,
}

impl Common<'_> {
    #[inline]
    fn position_of(&self, ahead: &Ahead<'_>) -> LogPosition {
        LogPosition {
            entry: ahead.number,
            ..self.position
        }
    }
}

impl Context<'_, '_> {
    /// Counts an entry, and its calls if they were let through.
    fn meet(&mut self, hit: &Hit<'_>) {
        self.counts.entries += 1;
        if matches!(hit.kind, HitKind::Hit | HitKind::Estimate) {
            add(&mut self.calls, u64::from(hit.calls));
        }
    }

    /// Whether entries are ruled by a candidate, too.
    #[inline]
    fn has_candidate(&self) -> bool {
        matches!(self.rule, Rule::Limited { rate, .. } if rate.candidate().is_some())
    }

    /// Whether a pair of this resource is near its limit.
    fn is_near(&mut self, pair: &Pair, class: &RateClass) -> bool {
        let from = self.near.of(class, self.rule.near());
        from.is_some_and(|from| pair.is_near(class, from))
    }

    /// Counts an entry's copies by their ruling.
    fn count(&mut self, ruled: Ruled, hit: &Hit<'_>, at: Timestamp) {
        self.counts.count(ruled, hit);
        self.count_global(ruled, hit, at);
    }

    /// Adds an entry's copies to the total for the global limit, if there is one.
    fn count_global(&mut self, ruled: Ruled, hit: &Hit<'_>, at: Timestamp) {
        let copies = ruled.granted.saturating_add(ruled.counted);
        if 0 < copies && self.rule.global().is_some() {
            let (ms, unguarded) = (at.as_millis(), hit.unguarded);
            self.global_copies.push(GlobalCopies {
                ms,
                unguarded,
                copies,
            });
        }
    }

    /// Counts an entry without a pair.
    ///
    /// At the cap, it adds to the total for the global limit what a pair without memory would add. So a flood of
    /// new domains is limited together, and a single entry of very many copies does not close the resource for
    /// everybody.
    fn meet_unkept(
        &mut self,
        unkept: Unkept,
        (class, event): (&RateClass, PairEvent),
        (hit, at): (&Hit<'_>, Timestamp),
        banned: bool,
    ) {
        match unkept {
            Unkept::Misrouted => add(&mut self.counts.misrouted, copies_of(hit)),
            Unkept::AtCap => {
                add(&mut self.counts.at_cap, copies_of(hit));
                if self.rule.global().is_some() {
                    let ruled = Pair::of(class).rule(class, at, event, banned);
                    self.count_global(ruled, hit, at);
                }
            }
        }
    }

    fn shared_name(&mut self) -> Arc<str> {
        self.shared_name
            .get_or_insert_with(|| self.name.into())
            .clone()
    }
}

impl Engine {
    /// Applies a record of hits.
    pub(super) fn hits(
        &mut self,
        offset: u64,
        appended: Timestamp,
        batch: &HitBatch<'_>,
        rulings: &mut Rulings,
    ) -> Fate {
        let entries = batch.hits().len() as u32;
        let limits = self.steps.newest().limits.clone();
        let clock = match self.admit(&batch.sender, appended, entries, rulings) {
            Ok(clock) => clock,
            Err(fate) => return fate,
        };
        let common = Common {
            limits: &limits,
            nothing: RateClass::inaccessible(),
            clock,
            position: LogPosition::of_record(self.log.unwrap_or_default(), offset),
        };
        let (numbers, mut contexts) = self.contexts(&limits, batch);
        self.entries(&common, batch, &numbers, &mut contexts, rulings);
        for refused in batch.refused() {
            let counts = &mut contexts[numbers[refused.resource as usize]].counts;
            counts.refused_calls = counts.refused_calls.saturating_add(refused.calls);
            counts.refused_copies = counts.refused_copies.saturating_add(refused.copies);
        }
        for context in contexts {
            self.conclude(offset, context, rulings);
        }
        rulings.evicted += self.table.take_evicted();
        // A record that adds many pairs frees only a part of as many at once.
        let entries = entries.min(SWEEP_ENTRIES_MAX);
        self.table.sweep(
            SWEEP_BLOCKS + entries * SWEEP_BLOCKS_PER_ENTRY,
            SWEEP_PAIRS + entries * SWEEP_PAIRS_PER_ENTRY,
        );
        Fate::Applied
    }

    /// Rules the entries of a batch, in their order.
    fn entries(
        &mut self,
        common: &Common<'_>,
        batch: &HitBatch<'_>,
        numbers: &[usize],
        contexts: &mut [Context<'_, '_>],
        rulings: &mut Rulings,
    ) {
        let mut ahead = Vec::with_capacity(AHEAD);
        let mut hits = (0..).zip(batch.hits());
        loop {
            ahead.clear();
            for (number, hit) in hits.by_ref().take(AHEAD) {
                let context = numbers[hit.resource as usize];
                let identity = contexts[context].prefix.of(hit.domain);
                ahead.push(Ahead {
                    number,
                    hit,
                    context,
                    identity,
                    hint: Hint::default(),
                });
            }
            if ahead.is_empty() {
                break;
            }
            let pairs = ahead.iter_mut();
            self.table
                .read_ahead(pairs.map(|ahead| (ahead.identity, &mut ahead.hint)));
            for ahead in &ahead {
                self.entry(common, &mut contexts[ahead.context], ahead, rulings);
            }
        }
    }

    /// The contexts of the resources that a batch names, and for each resource index of the batch its context: a
    /// batch may name a resource twice.
    fn contexts<'l, 'a>(
        &self,
        limits: &'l Limits,
        batch: &HitBatch<'a>,
    ) -> (Vec<usize>, Vec<Context<'l, 'a>>) {
        let names = batch.resources();
        let mut contexts: Vec<Context<'l, 'a>> = Vec::with_capacity(names.len());
        let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
        let numbers = names.iter().map(|name| {
            *by_name.entry(name).or_insert_with(|| {
                contexts.push(Context {
                    name,
                    shared_name: None,
                    rule: Rule::of(limits, name),
                    prefix: self.identities.of_resource(name),
                    counts: Counts::default(),
                    calls: 0,
                    global_copies: Vec::new(),
                    near: NearFrom::default(),
                });
                contexts.len() - 1
            })
        });
        (numbers.collect(), contexts)
    }

    /// Rules one entry. Almost always its pair was not denied, and is not.
    fn entry(
        &mut self,
        common: &Common<'_>,
        context: &mut Context<'_, '_>,
        ahead: &Ahead<'_>,
        rulings: &mut Rulings,
    ) {
        let (hit, limits, copies) = (ahead.hit, common.limits, copies_of(ahead.hit));
        context.meet(hit);
        let at = common.clock.instant(hit.at);
        let amended = self.amended.of(ahead.identity, context.name, hit.domain);
        let amended = rule_of_amended(limits, context.name, amended);
        let (class, stated) = match context.rule.class_of(limits, &common.nothing, hit.domain) {
            Some(ruled) => ruled,
            None if amended.is_banned(at) => (&common.nothing, false),
            None => {
                return add(&mut context.counts.unconfigured, copies);
            }
        };
        if TOO_OLD < common.clock.appended.since(at) {
            return add(&mut context.counts.too_old, copies);
        }
        let event = event_of(hit, |stamp| common.clock.instant(stamp));
        let opened = match self.open_pair(limits, class, context, ahead) {
            Ok(opened) => opened,
            Err(unkept) => {
                context.meet_unkept(unkept, (class, event), (hit, at), amended.is_banned(at));
                return;
            }
        };
        let working = self.table.working();
        let before = working.stated;
        let ruling_context = RulingContext {
            rule: context.rule,
            stated,
            version: self.steps.newest().version,
            amended,
        };
        let (ruled, denial) = rule(working, class, (at, event), &ruling_context);
        let now = working.pair.now();
        let is_near = rulings.tells_near && stated && context.is_near(&working.pair, class);
        if !self.table.close() {
            add(&mut context.counts.at_cap, copies);
            context.count_global(ruled, hit, at);
            return;
        }
        self.sweep_if_crowded(opened, limits);
        if amended.pardon.is_some() && shows_open(&ruled, at, now) {
            self.amended.end_pardon(ahead.identity);
        }
        context.count(ruled, hit, at);
        rulings.note(ahead.number, ruled.excess, is_near);
        if context.has_candidate() {
            let ruled = (at, amended.is_banned(at), ruled);
            self.entry_beside(common, context, ahead, ruled, rulings);
        }
        if before.is_some() || denial.is_some() {
            let standing = ScopeStanding {
                identity: ahead.identity,
                position: common.position_of(ahead),
                now,
                over: self.now(),
                before,
                denial,
            };
            let names = || (context.shared_name(), Some(hit.domain.into()));
            self.denials.follow(standing, names, rulings);
        }
    }

    /// Frees evicted pairs for a new one.
    fn sweep_if_crowded(&mut self, opened: Opened, limits: &Limits) {
        if opened == Opened::New && self.table.is_crowded(cap_of(limits)) {
            self.table
                .sweep(SWEEP_BLOCKS_PER_ENTRY, SWEEP_PAIRS_PER_ENTRY);
        }
    }

    /// Rules an entry by the candidate of its resource.
    fn entry_beside(
        &mut self,
        common: &Common<'_>,
        context: &mut Context<'_, '_>,
        ahead: &Ahead<'_>,
        (at, banned, ruled): (Timestamp, bool, Ruled),
        rulings: &mut Rulings,
    ) {
        let domain = ahead.hit.domain;
        let Rule::Limited { rate, .. } = context.rule else {
            return;
        };
        let Some(class) = rate.candidate_class_of(domain) else {
            return;
        };
        // A candidate refuses nobody. What it would have refused is let through all the same, and must use no room, or
        // a domain that stays above it would be counted as refused for ever. Costs are charged whatever was refused.
        let is_charge = ahead.hit.kind == HitKind::Charge;
        let hit = Hit {
            unguarded: ahead.hit.unguarded || !is_charge,
            ..*ahead.hit
        };
        let entry = RuledEntry {
            resource: context.name,
            domain,
            identity: ahead.identity,
            position: common.position_of(ahead),
            at,
            event: event_of(&hit, |stamp| common.clock.instant(stamp)),
            is_charge,
            banned,
            ruled,
        };
        let counts = &mut context.counts.candidate;
        let closed = self.rule_beside(common.limits.class(class), &entry, counts);
        rulings.candidates.extend(closed);
    }

    /// Opens the pair of an entry; fails if the entry has no pair here.
    #[inline]
    fn open_pair(
        &mut self,
        limits: &Limits,
        class: &RateClass,
        context: &mut Context<'_, '_>,
        ahead: &Ahead<'_>,
    ) -> Result<Opened, Unkept> {
        let (resource, domain) = (context.name, ahead.hit.domain);
        let ordinal = self.steps.newest().ordinal;
        if self.table.open_near(ahead.identity, ahead.hint) == Opened::Known {
            let working = self.table.working();
            if working.ordinal != ordinal {
                let forgot = self.steps.migrate(working, resource, domain);
                context.counts.pairs_forgotten += u64::from(forgot);
            }
            return Ok(Opened::Known);
        }
        let unkept = if self.is_misrouted(resource, domain) {
            Unkept::Misrouted
        } else if self.table.is_full(cap_of(limits)) {
            Unkept::AtCap
        } else {
            self.table.working().begin(class, ordinal);
            return Ok(Opened::New);
        };
        self.table.abandon();
        Err(unkept)
    }

    /// Whether a pair belongs to another partition. Called for new pairs only: a known pair belongs here.
    fn is_misrouted(&self, resource: &str, domain: &str) -> bool {
        1 < self.partitions
            && names::partition_of_pair(resource, domain, self.partitions) != self.partition
    }

    /// Adds the counts of one resource of a batch to the rulings, and the total that is due.
    fn conclude(&mut self, offset: u64, context: Context<'_, '_>, rulings: &mut Rulings) {
        if context.counts != Counts::default() {
            rulings.counts.push(ResourceCounts {
                resource: context.name.into(),
                counts: context.counts,
            });
            rulings.calls.push(context.calls);
        }
        if context.global_copies.is_empty() {
            return;
        }
        self.last_totals
            .total(&self.identities, context.name, offset);
        rulings.totals_due.push(TotalDue {
            resource: context.name.into(),
            source_partition: self.partition,
            source_offset: offset,
            counted: by_millisecond(context.global_copies),
        });
    }
}

/// How many pairs are kept at a time.
fn cap_of(limits: &Limits) -> u64 {
    limits.engine().pairs_per_partition_max
}

/// Sums up copies by millisecond and guard, ascending. The sums saturate: no global limit is as high.
fn by_millisecond(mut global_copies: Vec<GlobalCopies>) -> Vec<Total> {
    global_copies.sort_unstable_by_key(|global_copies| (global_copies.ms, global_copies.unguarded));
    let mut sums: Vec<Total> = Vec::new();
    for GlobalCopies {
        ms,
        unguarded,
        copies,
    } in global_copies
    {
        let copies = u32::try_from(copies).unwrap_or(u32::MAX);
        match sums.last_mut() {
            Some(last) if (last.ms, last.unguarded) == (ms, unguarded) => {
                last.copies = last.copies.saturating_add(copies);
            }
            _ => sums.push(Total {
                ms,
                copies,
                unguarded,
            }),
        }
    }
    sums
}
