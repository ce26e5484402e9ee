//! Law 3, refusal by refusal: does the log, as the independent model rules it, deny the pair at that instant?
//!
//! ```text
//! agent refuses acme at T, naming 3-18250-0-1
//! the newest statement of the model about acme that the agent may know: @18250, until E
//! the log's clock at T, by its ticks: before E?      justified
//! ```
//!
//! An agent must have applied every statement that it has received without a gap: a refusal by an older
//! statement is unjustified even if that statement would justify it. The log's clock is known from its ticks;
//! between two ticks it advances as true time does. Clocks may be wrong by 100 ppm each, so a little slack
//! grows with the time counted down.

use tollgate_model::log::{ModelPlace, ScopeName};
use tollgate_shared::place::{Code, LogId, Place};

use super::compare::end_us;
use super::watch::Watch;

impl Watch {
    /// Describes why a statement is from another log of the same generation than the one
    /// that the agent knows, if it is.
    pub fn is_of_another_log(&self, code: Code, known: Option<LogId>) -> Option<String> {
        let known = known?;
        let stated = self
            .of_place_in(code.partition, code.place, Some(known))?
            .log?;
        let now = self.ruled[code.partition as usize].log?;
        // Both logs may have a statement there: then it is taken to be that of the log that the agent knows.
        let is_gone = now == known && stated.generation == now.generation && stated != now;
        is_gone.then(|| format!("it is of {stated:?}, the log is {known:?}"))
    }

    /// Until when (true time) the model justifies a refusal of this pair that names `code`, by an agent that takes
    /// the log to be `known` and has received everything below `heard`.
    ///
    /// # Errors
    ///
    /// Why it does not justify the refusal at all.
    pub fn justified_until(
        &self,
        code: Code,
        resource: &str,
        domain: &str,
        (known, heard): (Option<LogId>, Option<Place>),
        now_us: u64,
    ) -> Result<u64, String> {
        let generation = code.place.generation;
        let Some(ruled) = self.of_place_in(code.partition, code.place, known) else {
            return Err(format!("nobody knows generation {generation}"));
        };
        if let Some(heard) = heard
            && generation < heard.generation
        {
            return Err(format!("it has heard of generation {}", heard.generation));
        }
        let mut upto = ModelPlace {
            offset: code.place.offset,
            entry: code.place.entry,
        };
        if let Some(heard) = heard.filter(|heard| heard.generation == generation)
            && let Some(before) = heard.offset.checked_sub(1)
        {
            upto = upto.max(ModelPlace {
                offset: before,
                entry: u32::MAX,
            });
        }
        let scopes = [
            ScopeName::new(resource, Some(domain)),
            ScopeName::new(resource, None),
        ];
        let mut why = Vec::new();
        let mut latest = None;
        for scope in &scopes {
            let statements = ruled.model.statements(scope);
            let mut known = statements.partition_point(|one| one.place <= upto);
            let shown_us = ruled.log_shown_us(now_us, self.behind_us) + self.ticks_late_us;
            // A denial that was over by the log's clock at its ruling is not published, and an agent that counts
            // down an earlier statement continues with it, by as much as the log's clock was put forward.
            while let Some(newest) = known.checked_sub(1).map(|at| &statements[at])
                && code.place.offset < newest.place.offset
                && newest
                    .denied
                    .is_some_and(|denial| end_us(denial.end) <= shown_us)
            {
                known -= 1;
            }
            // Statements of a record that brings several versions are published in slices: an agent that has not
            // received all of them may know any of them about the scope.
            let of_it = |at: &usize| statements[*at].place.offset == code.place.offset;
            let is_heard = heard.is_some_and(|heard| {
                heard.generation == generation && code.place.offset < heard.offset
            });
            let mut of_it = (0..known).rev().take_while(of_it);
            if !is_heard && let Some(at) = of_it.find(|at| statements[*at].denied.is_some()) {
                known = at + 1;
            }
            let Some(newest) = known.checked_sub(1).map(|at| statements[at]) else {
                continue;
            };
            let Some(denial) = newest.denied else {
                why.push(format!("it was opened at {:?}", newest.place));
                continue;
            };
            // A refusal that names an older position shows that an older statement won.
            if code.place.offset < newest.place.offset {
                why.push(format!("it was denied anew at {:?}", newest.place));
                continue;
            }
            let until = ruled.true_time_of(
                end_us(denial.end),
                newest.place.offset,
                (now_us, self.behind_us),
            );
            latest = latest.max(Some(until));
        }
        latest.ok_or_else(|| match why.is_empty() {
            true => "the model never denied it".to_owned(),
            false => why.join(", "),
        })
    }
}
