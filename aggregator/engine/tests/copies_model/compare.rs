//! Compares everything observable of the engine with the model.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_engine::copies::{Effects, HoldState};
use tollgate_model::copies::{CopyScope, HoldsModel, ModelHold, StagedCopies};
use tollgate_shared::holdings::Holdings;

use crate::driver::{AGENTS, Check, DOMAINS, Driver, Op, agent_of, same};
use crate::statements::{Answer, borrowed, kept, statements_of};

/// Every scope that the model knows, each with whether it is full.
pub fn scopes(model: &HoldsModel) -> BTreeMap<CopyScope, bool> {
    let domains = DOMAINS.map(|domain| CopyScope::Domain(domain.to_owned()));
    let held = model.holds.iter().filter(|hold| !hold.lost);
    let held = held.flat_map(|hold| hold.groups.iter());
    let staged = model.staged.iter().flat_map(|staged| staged.groups.iter());
    let groups = model.limits.groups.keys().chain(held).chain(staged);
    let groups = groups.cloned().map(CopyScope::Group);
    let all = domains
        .into_iter()
        .chain(groups)
        .chain([CopyScope::Resource]);
    all.map(|scope| (scope.clone(), model.is_full(&scope)))
        .collect()
}

impl Driver {
    pub fn compare(&self) -> Check {
        let (engine, model) = (&self.engine, &self.model);
        engine.audit().map_err(|miscount| miscount.to_string())?;
        same("optimistic", engine.optimistic(), model.optimistic())?;
        for (scope, full) in scopes(model) {
            let count = engine.count_of(borrowed(&scope));
            let found = (count.copies, engine.is_full(borrowed(&scope)));
            same(
                &format!("{scope:?}"),
                found,
                (model.copies_in(&scope), full),
            )?;
        }
        let counted: BTreeMap<&str, u64> = engine
            .counts_of_domains()
            .iter()
            .map(|count| (count.name, count.copies))
            .collect();
        let held = DOMAINS.map(|name| (name, model.copies_in(&CopyScope::Domain(name.to_owned()))));
        let held = held.into_iter().filter(|(_, copies)| 0 < *copies).collect();
        same("domains that hold", counted, held)?;
        for count in engine.counts_of_groups() {
            let group = CopyScope::Group(count.name.to_owned());
            same(count.name, count.copies, model.copies_in(&group))?;
        }
        self.compare_lists()?;
        for (agent, (name, epoch)) in AGENTS.into_iter().enumerate() {
            let agent = agent_of(agent);
            let Some(ix) = engine.known_agent(name, epoch) else {
                same("holds of a stranger", 0, model.copies_of(&agent))?;
                continue;
            };
            let copies = engine.copies_of(ix);
            same("copies of an agent", copies, model.copies_of(&agent))?;
            let held = model.held_without(&agent, &[]);
            let held = held.iter();
            let digest = held.fold(Holdings::default(), |sum, (n, c)| sum.with(*n, *c as u32));
            same("holdings", engine.holdings_of(ix), digest)?;
            let ended: BTreeSet<u64> = engine.ended_of(ix).collect();
            let of_it = model.ended.iter().filter(|(of, _)| *of == agent);
            same(
                "ended ids",
                ended,
                of_it.map(|(_, number)| *number).collect(),
            )?;
        }
        Ok(())
    }

    fn compare_lists(&self) -> Check {
        let owned = |groups: &[&str]| groups.iter().map(|name| (*name).to_owned()).collect();
        let views = self.engine.oldest_first().map(|view| ModelHold {
            process: (view.agent.to_owned(), view.epoch),
            number: view.id.number,
            domain: view.domain.to_owned(),
            groups: owned(&view.groups),
            copies: view.copies.into(),
            start_us: view.start.as_micros(),
            strict: view.strict,
            seized: view.seized,
            lost: view.state == HoldState::Lost,
            excess: {
                let taken = self.engine.excess_of(view.id);
                kept(&self.engine, view.domain, (taken.excess, taken.by))
            },
        });
        let mut holds = self.model.holds.clone();
        holds.sort_by_key(|hold| (hold.start_us, hold.process.clone(), hold.number));
        same("holds, the oldest first", views.collect(), holds)?;
        let views = self.engine.staged().map(|view| StagedCopies {
            id: view.id.0,
            domain: view.domain.to_owned(),
            groups: owned(&view.groups),
            copies: view.copies.into(),
            start_us: view.start.as_micros(),
            end_us: view.end.as_micros(),
            strict: view.strict,
        });
        let mut staged = self.model.staged.clone();
        staged.sort_by_key(|staged| (staged.end_us, staged.id));
        if let Some(age_us) = self.model.limits.max_age_us {
            for staged in &mut staged {
                staged.end_us = staged.end_us.min(staged.start_us + age_us);
            }
        }
        let what = "staged, by the end of its transfer";
        same(what, views.collect(), staged)
    }

    /// Checks the engine's statements: each is true, every scope that opened is named, and an operation that takes
    /// or asks for copies gets the full scopes stated.
    pub fn check_statements(
        &self,
        op: &Op,
        answer: &Answer,
        out: &Effects,
        before: &BTreeMap<CopyScope, bool>,
    ) -> Check {
        if matches!(op, Op::Limits { .. }) || matches!(answer, Answer::Refused(_)) {
            return same(
                "said by a version or a refusal",
                statements_of(out),
                Vec::new(),
            );
        }
        if matches!(op, Op::Transfer { .. } | Op::Seize { .. }) {
            // A transfer or seize changes no count, so it may state nothing.
            return same("said by a move", statements_of(out), Vec::new());
        }
        let statements_of: BTreeMap<CopyScope, bool> = statements_of(out).into_iter().collect();
        let after = scopes(&self.model);
        for (scope, full) in &statements_of {
            let is = after.get(scope).copied().unwrap_or(false);
            same(&format!("said of {scope:?}"), *full, is)?;
        }
        for (scope, was) in before {
            let is = after.get(scope).copied().unwrap_or(false);
            if *was && !is && statements_of.get(scope) != Some(&false) {
                return Err(format!("{scope:?} opened, and nobody said so"));
            }
        }
        for scope in &self.model.asked {
            let is = after.get(scope).copied().unwrap_or(false);
            if is && statements_of.get(scope) != Some(&true) {
                return Err(format!("{scope:?} is full, and the asker was not told"));
            }
        }
        Ok(())
    }
}
