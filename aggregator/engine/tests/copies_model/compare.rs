//! Everything that can be seen of the engine, beside the model.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_engine::copies::{Effects, HoldState};
use tollgate_shared::holdings::Holdings;

use crate::driver::{AGENTS, Check, DOMAINS, Driver, Op, agent_of, same};
use crate::model::{self, Answer};
use crate::words::{named, said, scope_of};

impl Driver {
    pub fn compare(&self) -> Check {
        let (engine, model) = (&self.engine, &self.model);
        engine.audit().map_err(|miscount| miscount.to_string())?;
        same("total", engine.total().copies, model.total())?;
        same("optimistic", engine.optimistic(), model.optimistic())?;
        for domain in DOMAINS {
            same(
                domain,
                engine.domain(domain).copies,
                model.of_domain(domain),
            )?;
        }
        let counted: BTreeMap<&str, u64> = engine
            .counts_of_domains()
            .iter()
            .map(|count| (count.name, count.copies))
            .collect();
        let held = DOMAINS.map(|domain| (domain, model.of_domain(domain)));
        let held = held.into_iter().filter(|(_, copies)| 0 < *copies).collect();
        same("domains that hold", counted, held)?;
        for (scope, full) in model.scopes(&DOMAINS.map(str::to_owned)) {
            same(&scope, engine.is_full(scope_of(&scope)), full)?;
        }
        for count in engine.counts_of_groups() {
            same(
                count.name,
                count.copies,
                model.of_group(&count.name.to_owned()),
            )?;
        }
        self.compare_lists()?;
        for (agent, (name, epoch)) in AGENTS.into_iter().enumerate() {
            let Some(ix) = engine.known_agent(name, epoch) else {
                same("holds of a stranger", 0, model.of_agent(&agent_of(agent)))?;
                continue;
            };
            same(
                "copies of an agent",
                engine.copies_of(ix),
                model.of_agent(&agent_of(agent)),
            )?;
            let held = model.held_without(&agent_of(agent), &[]);
            let digest = held
                .iter()
                .fold(Holdings::default(), |sum, (n, c)| sum.with(*n, *c));
            same("holdings", engine.holdings_of(ix), digest)?;
            let ended: BTreeSet<u64> = engine.ended_of(ix).collect();
            let model_ended = model.ended.iter().filter(|(of, _)| *of == agent_of(agent));
            same(
                "ended ids",
                ended,
                model_ended.map(|(_, number)| *number).collect(),
            )?;
        }
        Ok(())
    }

    fn compare_lists(&self) -> Check {
        let views = self.engine.oldest_first().map(|view| model::Hold {
            agent: (view.agent.to_owned(), view.epoch),
            number: view.id.number,
            domain: view.domain.to_owned(),
            groups: view.groups.iter().map(|name| (*name).to_owned()).collect(),
            copies: view.copies,
            start: view.start.as_micros(),
            strict: view.strict,
            seized: view.seized,
            lost: view.state == HoldState::Lost,
            excess: {
                let taken = self.engine.excess_of(view.id);
                (taken.excess.into(), named(&self.engine, taken.by))
            },
        });
        let mut holds = self.model.holds.clone();
        holds.sort_by_key(|hold| (hold.start, hold.agent.clone(), hold.number));
        same("holds, the oldest first", views.collect(), holds)?;
        let views = self.engine.staged().map(|view| model::Staged {
            id: view.id.0,
            domain: view.domain.to_owned(),
            groups: view.groups.iter().map(|name| (*name).to_owned()).collect(),
            copies: view.copies,
            start: view.start.as_micros(),
            end: view.end.as_micros(),
            strict: view.strict,
        });
        let mut staged = self.model.staged.clone();
        staged.sort_by_key(|staged| (staged.end, staged.id));
        if let Some(age) = self.model.limits.max_age {
            for staged in &mut staged {
                staged.end = staged.end.min(staged.start + age);
            }
        }
        same(
            "staged, by the end of its transfer",
            views.collect(),
            staged,
        )
    }

    /// What is said is so; a scope that opened is named; who takes or asks hears what is full.
    pub fn check_said(
        &self,
        op: &Op,
        answer: &Answer,
        out: &Effects,
        before: &BTreeMap<String, bool>,
    ) -> Check {
        if matches!(op, Op::Limits { .. }) || matches!(answer, Answer::Refused(_)) {
            return same("said by a version or a refusal", said(out), Vec::new());
        }
        if matches!(op, Op::Transfer { .. } | Op::Seize { .. }) {
            // Copies change hands and no count moves.
            return same("said by a move", said(out), Vec::new());
        }
        let said: BTreeMap<String, bool> = said(out).into_iter().collect();
        let after = self.model.scopes(&DOMAINS.map(str::to_owned));
        for (scope, full) in &said {
            let is = after.get(scope).copied().unwrap_or(false);
            same(&format!("said of {scope}"), *full, is)?;
        }
        for (scope, was) in before {
            let is = after.get(scope).copied().unwrap_or(false);
            if *was && !is && said.get(scope) != Some(&false) {
                return Err(format!("{scope} opened, and nobody said so"));
            }
        }
        let (Op::Reserve { domain, .. } | Op::Hold { domain, .. }) = op else {
            return Ok(());
        };
        let groups = self.model.groups_of(domain);
        let touched = groups.iter().map(|group| format!("group:{group}"));
        let touched = touched.chain([format!("domain:{domain}"), "global".to_owned()]);
        for scope in touched {
            if after[&scope] && said.get(&scope) != Some(&true) {
                return Err(format!("{scope} is full, and the asker was not told"));
            }
        }
        Ok(())
    }
}
