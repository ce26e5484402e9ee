//! The independent model beside the engine: does it rule the same, pair by pair?
//!
//! The model is slow and shares no code with the engine. It rules a sample of pairs, chosen by their names'
//! hash, so that each audit samples the same pairs. A pair is ruled by its own entries alone, so leaving other
//! pairs out changes nothing about it. Knows nothing of what was announced.
//!
//! What stays true: pairs in shadow, ignored or unconfigured are not compared, since the model states what the
//! engine keeps to itself; neither is anything after a record that reached the cap on pairs.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::Serialize;
use tollgate_engine::engine::{Fate, ResourceStatement};
use tollgate_model::log::{EntryRuling, ScopeChange};
use tollgate_model::{Denial as ModelDenial, End, PartitionModel};
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::{Cause, Denial, Scope, StatementKind};

use super::checked::{CheckedResources, ModelRules, Unchecked};
use super::reorder::Reorder;
use super::report::{Difference, DifferenceKind, PartitionAudit, Stated};
use crate::model_check::{RecordPosition, Versions, cause_to_wire, feed};
use crate::range::Utc;
use crate::replay::Replay;
use tollgate_log::Delivered;

/// What the model ruled in one partition, or in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelPart {
    /// Pairs that it ruled.
    pub pairs: u64,
    /// Entries that it ruled.
    pub entries: u64,
    /// Statements of the engine that were compared with the model.
    pub statements: u64,
    /// How long its pairs were denied beyond a replay in order of time.
    pub reorder_denied_us: u64,
    /// How long its pairs were denied.
    pub denied_us: u64,
    /// Entries that were checked against law 8.
    pub effect_entries: u64,
    /// Scopes and constraints of which more was let through in some span.
    pub effect_violations: u64,
    /// Entries that were not checked against law 8, because too many are remembered.
    pub effect_unjudged: u64,
}

/// The model of one partition.
pub struct Sample {
    model: PartitionModel,
    partition: u32,
    partitions: u32,
    /// The sample consists of pairs whose hash is below this.
    below: u64,
    versions: Versions,
    newest: u64,
    checked: CheckedResources,
    pairs: HashSet<u64>,
    reorder: Reorder,
    /// The instant of the first record in the range.
    first_us: Option<u64>,
    last_us: u64,
    at_cap: bool,
}

impl Sample {
    /// A sample of a partition whose log is read from its beginning; `None` if the share is zero.
    pub fn new(partition: u32, partitions: u32, share: f64) -> Option<Self> {
        (0.0 < share).then(|| Self {
            model: PartitionModel::with_effect(),
            partition,
            partitions,
            below: match 1.0 <= share {
                true => u64::MAX,
                false => (share * u64::MAX as f64) as u64,
            },
            versions: Versions::default(),
            newest: 0,
            checked: CheckedResources::default(),
            pairs: HashSet::new(),
            reorder: Reorder::default(),
            first_us: None,
            last_us: 0,
            at_cap: false,
        })
    }

    /// Gives the model a record that the engine has applied. Reports differences if the record lies in the
    /// audited range.
    pub fn apply(
        &mut self,
        delivered: &Delivered,
        record: &Record<'_>,
        replay: &Replay,
        in_range: bool,
        part: &mut PartitionAudit,
    ) {
        self.learn(replay);
        // The model knows a single log, so it must not get a tick of another one.
        if replay.rulings().fates.contains(&Fate::OfAnotherLog) {
            return;
        }
        let at = RecordPosition {
            offset: delivered.offset,
            appended_us: delivered.appended.as_micros(),
        };
        if in_range {
            self.note_unchecked(at.offset, record, part);
        }
        let mut model = std::mem::take(&mut self.model);
        let wanted = |resource: &str, domain: &str| self.is_asked(resource, domain);
        let fed = feed(&mut model, at, record, &self.versions, &wanted);
        self.model = model;
        self.last_us = at.appended_us;
        if !fed.versions.is_empty() {
            self.reorder.limits(at.appended_us, fed.versions);
        }
        for (entry, ruling) in &fed.entries {
            if let EntryRuling::Ruled { at_us, .. } = ruling {
                self.pairs.insert(hash(entry.resource, entry.domain));
                self.reorder.hit(entry, *at_us);
                part.model.entries += u64::from(in_range);
            }
        }
        let by_limits = matches!(record, Record::LimitsActivation(_));
        if in_range {
            self.first_us.get_or_insert(at.appended_us);
        }
        for change in &fed.changes {
            let end = change.denied.map(|denial| denial.end);
            let not_before_us = if by_limits { at.appended_us } else { 0 };
            self.reorder
                .take_statement(&change.scope, not_before_us, end);
        }
        self.reorder.reached(at.appended_us);
        // In a higher generation the engine states every denial again, which tests no rule.
        if in_range && !matches!(record, Record::Genesis(_) | Record::Tick(_)) {
            self.compare(at.offset, by_limits, fed.changes, replay, part);
        }
    }

    /// Takes the versions up to the one that the engine rules by: a later one says nothing about entries before it.
    fn learn(&mut self, replay: &Replay) {
        let upto = replay.engine().version().unwrap_or(0);
        let book = replay.book();
        while let Some(version) = book.after(self.newest)
            && version.number <= upto
        {
            self.newest = version.number;
            self.versions.insert(version);
            self.checked.learn(&version.limits);
        }
    }

    fn is_asked(&self, resource: &str, domain: &str) -> bool {
        (self.below == u64::MAX || hash(resource, domain) < self.below)
            && self.rules_of(resource) == ModelRules::All
            && partition_of_pair(resource, domain, self.partitions) == self.partition
    }

    /// Remarks entries of resources with limits that the model does not check.
    fn note_unchecked(&self, offset: u64, record: &Record<'_>, part: &mut PartitionAudit) {
        let Record::Hits(batch) = record else {
            return;
        };
        for hit in batch.hits() {
            if let ModelRules::Nothing(why) = self.rules_of(batch.resource(hit.resource)) {
                let (kind, text) = why.remark();
                part.remark(kind, 1, offset, text);
            }
        }
    }

    /// What the model rules of a resource, by all versions so far.
    fn rules_of(&self, resource: &str) -> ModelRules {
        let versions = self.versions.limits();
        self.checked
            .rules_of(resource, versions.map(|limits| &**limits))
    }

    fn compare(
        &mut self,
        offset: u64,
        by_limits: bool,
        changes: Vec<ScopeChange>,
        replay: &Replay,
        part: &mut PartitionAudit,
    ) {
        let rulings = replay.rulings();
        // With only a sample of pairs, the model cannot know when the cap was reached, nor which pairs were
        // evicted.
        let counted = rulings.counts.iter().any(|of| 0 < of.counts.at_cap);
        if self.at_cap || counted || 0 < rulings.evicted {
            self.at_cap = true;
            let text = "records that the model did not check: the log was at the cap on pairs";
            return part.remark("model_at_cap", 1, offset, text);
        }
        for stated in &rulings.statements {
            if let ModelRules::Nothing(why @ Unchecked::NotEnforced) =
                self.rules_of(&stated.resource)
            {
                let (kind, text) = why.remark();
                part.remark(kind, 1, offset, text);
            }
        }
        let mut engine: Vec<&ResourceStatement> = rulings
            .statements
            .iter()
            .filter(|stated| self.is_compared(stated))
            .collect();
        part.model.statements += engine.len() as u64;
        for change in changes {
            if self.rules_of(&change.scope.resource) != ModelRules::All {
                continue;
            }
            let at = engine.iter().position(|stated| {
                let entry = stated.statement.position.entry;
                let same_position = by_limits || entry == change.position.entry;
                same_position && is_about(stated, &change)
            });
            let stated = at.map(|at| engine.remove(at));
            let says = stated.map(|stated| denial_of(&stated.statement.kind));
            if says != Some(change.denied.map(of_model)) {
                part.differs(self.difference(offset, Some(&change), stated, replay));
            }
        }
        for stated in engine {
            part.differs(self.difference(offset, None, Some(stated), replay));
        }
    }

    fn is_compared(&self, stated: &ResourceStatement) -> bool {
        match &stated.statement.scope {
            Scope::Pair(domain) => self.is_asked(&stated.resource, domain),
            Scope::Resource => self.rules_of(&stated.resource) == ModelRules::All,
            Scope::Group(_) => false,
        }
    }

    fn difference(
        &self,
        offset: u64,
        model: Option<&ScopeChange>,
        engine: Option<&ResourceStatement>,
        replay: &Replay,
    ) -> Difference {
        let text = "the independent model rules otherwise than the engine (expected: the model)";
        let base = match engine {
            Some(stated) => {
                let about = Announced {
                    log: replay.engine().log().unwrap_or_default(),
                    partition: self.partition,
                    resource: (*stated.resource).into(),
                    statement: stated.statement.clone(),
                };
                Difference::of_statement(DifferenceKind::Model, &about, text)
            }
            None => Difference::of_record(
                DifferenceKind::Model,
                (self.partition, "hits", offset),
                text,
            ),
        };
        let scope = model.map(|change| &change.scope);
        let resource = scope.map(|scope| scope.resource.as_str().into());
        let domain = scope.and_then(|scope| scope.domain.as_deref().map(Into::into));
        Difference {
            resource: resource.or_else(|| base.resource.clone()),
            domain: domain.or_else(|| base.domain.clone()),
            expected: model.map(|change| stated(change.denied)),
            found: engine.map(|stated| Stated::of(&stated.statement.kind)),
            ..base
        }
    }

    /// Law 8: in no span that reaches into the range was more let through than a limit and one denial delay
    /// explain.
    fn check_effect(&self, part: &mut PartitionAudit) {
        let (judged, unjudged) = self.model.effect_entries();
        part.model.effect_entries += judged;
        part.model.effect_unjudged += unjudged;
        // At the cap, the engine lets some pairs through that the model still rules.
        let Some(first_us) = self.first_us.filter(|_| !self.at_cap) else {
            return;
        };
        for (scope, found) in self.model.effect_violations() {
            if found.to_us < first_us {
                continue;
            }
            part.model.effect_violations += 1;
            let text = format!(
                "{} were let through from {} to {} under {}, which allows {}",
                found.let_through,
                Utc(Timestamp::from_micros(found.from_us)),
                Utc(Timestamp::from_micros(found.to_us)),
                cause_to_wire(found.constraint),
                found.allowed
            );
            part.differs(Difference {
                resource: Some(scope.resource.into()),
                scope: Some(if scope.domain.is_some() {
                    "pair"
                } else {
                    "resource"
                }),
                domain: scope.domain.map(Into::into),
                ..Difference::of_record(DifferenceKind::Effect, (self.partition, "hits", 0), text)
            });
        }
    }

    /// Takes the end of the log.
    pub fn end(self, part: &mut PartitionAudit) {
        self.check_effect(part);
        part.model.pairs += self.pairs.len() as u64;
        let (denied_us, beyond_us) = self.reorder.end(self.last_us);
        part.model.denied_us += denied_us;
        part.model.reorder_denied_us += beyond_us;
    }
}

fn hash(resource: &str, domain: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (resource, domain).hash(&mut hasher);
    hasher.finish()
}

fn is_about(stated: &ResourceStatement, change: &ScopeChange) -> bool {
    let domain = match &stated.statement.scope {
        Scope::Pair(domain) => Some(&**domain),
        Scope::Resource | Scope::Group(_) => None,
    };
    *stated.resource == *change.scope.resource && domain == change.scope.domain.as_deref()
}

/// The part of a denial that is compared: its end, and its cause.
type ComparedDenial = Option<(Timestamp, Cause)>;

fn denial_of(says: &StatementKind) -> ComparedDenial {
    match says {
        // The model takes a resource without tiers for one whose tiers are full.
        StatementKind::Denied(Denial {
            end,
            cause: Cause::Inaccessible,
            ..
        }) => Some((*end, Cause::Tier(0))),
        StatementKind::Denied(denial) => Some((denial.end, denial.cause)),
        StatementKind::Lifted => None,
    }
}

fn of_model(denial: ModelDenial) -> (Timestamp, Cause) {
    let end = match denial.end {
        End::At(us) => Timestamp::from_micros(us),
        End::Never => Timestamp::MAX,
    };
    (end, cause_to_wire(denial.cause))
}

fn stated(denied: Option<ModelDenial>) -> Stated {
    let open = Stated::of(&StatementKind::Lifted);
    let Some((end, cause)) = denied.map(of_model) else {
        return open;
    };
    Stated {
        says: "denied",
        cause: Some(cause.to_string()),
        end_us: (end < Timestamp::MAX).then_some(end.as_micros()),
        ..open
    }
}
