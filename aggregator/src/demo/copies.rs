//! The demonstration's part with copies: a process that holds copies is killed with signal 9, and another one waits
//! until it can have them.
//!
//! ```text
//! one      holds all copies of a domain         ── kill -9 ──► gone
//! other    is refused, because the domain is full ............ takes them all, confirmed
//!                                                └─── copies_back_ms ───┘
//! ```
//!
//! What stays true: copies are reported as back only when the aggregators have confirmed it; in the end both
//! processes are gone, one killed and the other ended after it has released all copies.

use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tollgate_limits::{Limits, Reserve, Resource};

use super::clock::monotonic_ns;
use super::fleet::{ChildGuard, News, Who};
use super::holder::HolderNotice;
use super::inbox::Inbox;
use super::plan::Log;

/// How long a process may take to start and to hold its copies.
const WITHIN: Duration = Duration::from_secs(30);

/// How long, beyond the agents' timeout, copies may take to be back before they are reported as lost.
const GRACE: Duration = Duration::from_secs(10);

/// With a longer agent timeout the part is left out.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// What is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The resource.
    pub resource: String,
    /// A domain made for this run.
    pub domain: String,
    /// All its copies.
    pub copies: u32,
    /// Whether the resource is strict.
    pub strict: bool,
    /// The silence after which an agent is gone.
    pub agent_timeout: Duration,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// Copies that the killed process held.
    pub held: u32,
    /// Copies of these that could not be taken again in time.
    pub lost: u32,
    /// From the kill until the other process held them all, confirmed; `None` if that never happened.
    pub back: Option<Duration>,
}

impl Subject {
    /// The subject that these limits allow: the first resource of which one domain's copies can be taken without
    /// taking much from others.
    pub fn choose(limits: &Limits, run: &str, attached: bool) -> Option<Self> {
        let agent_timeout = Duration::from_micros(limits.engine().agent_timeout.as_micros());
        if TIMEOUT_MAX < agent_timeout {
            return None;
        }
        let domain = format!("demo-{run}");
        limits.resources().iter().find_map(|resource| {
            let Resource::Copies(of) = resource else {
                return None;
            };
            let copies = u32::try_from(of.limit_of(&domain)).ok()?;
            // In a fleet that others use, at most half is taken.
            let most = of.global.map_or(u64::MAX, |global| global / 2);
            let much = attached && most < u64::from(copies);
            let ignored = limits.namespace_of(of.name()).ignore_configured;
            (0 < copies && !much && !ignored).then(|| Self {
                resource: of.name().to_owned(),
                domain: domain.clone(),
                copies,
                strict: of.reserve == Reserve::Strict,
                agent_timeout,
            })
        })
    }
}

/// What the part needs from the demonstration.
pub struct Scene<'a> {
    /// Receives news of processes.
    pub inbox: &'a mut Inbox,
    /// Given to processes to send their news.
    pub sender: &'a Sender<News>,
    /// The log.
    pub log: &'a Log,
    /// The properties file of its Kafka clients.
    pub kafka_properties: &'a Path,
    /// The aggregator's address for agents.
    pub aggregator: &'a str,
    /// Shows what happens.
    pub say: &'a dyn Fn(&str),
}

impl Scene<'_> {
    /// Plays the part. `None` if others hold too much of the resource for a demonstration.
    ///
    /// # Errors
    ///
    /// If a process cannot be started, or does not report in time.
    pub fn play(&mut self, subject: &Subject) -> anyhow::Result<Option<Returned>> {
        let mut one = self.start(0, subject)?;
        let mut other = self.start(1, subject)?;
        for holder in [0, 1] {
            let ready = self.wait(holder, WITHIN, |notice| match notice {
                HolderNotice::Ready(ready) => Some(ready),
                _ => None,
            })?;
            if !ready {
                bail!("holder {} received nothing from the aggregator", holder + 1);
            }
        }
        one.send_line("take");
        let (held, _) = self.wait(0, WITHIN, held_of)?;
        let wanted = subject.copies;
        let (resource, domain) = (&subject.resource, &subject.domain);
        if held < wanted {
            (self.say)(&format!(
                "{held} of {wanted} copies of {resource} could be reserved"
            ));
            return Ok(None);
        }
        let within = subject.agent_timeout + GRACE;
        other.send_line(&format!("follow {}", (WITHIN + within).as_millis()));
        self.wait(1, WITHIN, |notice| match notice {
            HolderNotice::Denied { at_ns } => Some(at_ns),
            _ => None,
        })?;
        (self.say)(&format!(
            "one process holds {held} copies of {resource} for {domain}, another is refused; killing the one"
        ));
        let killed_ns = monotonic_ns();
        one.kill();
        let (again, at_ns) = self.wait(1, WITHIN + within + GRACE, held_of)?;
        let took = Duration::from_nanos(at_ns.saturating_sub(killed_ns));
        let lost = held.saturating_sub(again);
        (self.say)(&format!("{again} of its copies are free again"));
        self.end(other)?;
        Ok(Some(Returned {
            held,
            lost,
            back: (lost == 0).then_some(took),
        }))
    }

    fn start(&mut self, holder: usize, subject: &Subject) -> anyhow::Result<ChildGuard> {
        let name = format!("demo-{}-holder-{}", std::process::id(), holder + 1);
        let copies = subject.copies.to_string();
        let mut args: Vec<String> = [
            "demo-holder",
            "--name",
            &name,
            "--aggregator",
            self.aggregator,
            "--resource",
            &subject.resource,
            "--domain",
            &subject.domain,
            "--copies",
            &copies,
        ]
        .map(str::to_owned)
        .into();
        if subject.strict {
            args.push("--strict".to_owned());
        }
        args.extend(self.log.agent_args(self.kafka_properties));
        ChildGuard::holder(holder, &args, self.sender.clone()).context("cannot start a holder")
    }

    fn wait<T>(
        &mut self,
        holder: usize,
        within: Duration,
        wanted: impl Fn(HolderNotice) -> Option<T>,
    ) -> anyhow::Result<T> {
        self.inbox
            .wait_for(within, "a process that holds copies", |news| match news {
                News::Holder(who, notice) if *who == holder => Ok(wanted(*notice)),
                News::Ended(Who::Holder(who)) if *who == holder => {
                    bail!("holder {} ended", holder + 1)
                }
                _ => Ok(None),
            })
    }

    fn end(&mut self, mut holder: ChildGuard) -> anyhow::Result<()> {
        holder.close();
        if holder.wait(WITHIN).is_none() {
            bail!("a holder did not end within {} s", WITHIN.as_secs());
        }
        Ok(())
    }
}

fn held_of(notice: HolderNotice) -> Option<(u32, u64)> {
    match notice {
        HolderNotice::Held { copies, at_ns } => Some((copies, at_ns)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(text: &str, attached: bool) -> Option<(String, u32, bool)> {
        let limits = Limits::parse(text).expect("limits");
        let subject = Subject::choose(&limits, "7", attached)?;
        assert_eq!(subject.domain, "demo-7");
        Some((subject.resource, subject.copies, subject.strict))
    }

    #[test]
    fn a_demo_takes_few_copies_of_a_shared_fleet() {
        let text = "[copies.a]\nlimit = 0\n[copies.b]\nlimit = 6\nglobal = 10\n\
                    [copies.c]\nlimit = 2\nreserve = \"strict\"\n";
        assert_eq!(chosen(text, false), Some(("b".into(), 6, false)));
        assert_eq!(chosen(text, true), Some(("c".into(), 2, true)));
    }

    #[test]
    fn resources_that_a_demonstration_cannot_show_are_skipped() {
        assert_eq!(chosen("[rate.a]\nrate = \"1/s\"\n", false), None);
        let patient = "[engine]\nagent_timeout = \"1h\"\n[copies.a]\nlimit = 1\n";
        assert_eq!(chosen(patient, false), None);
    }
}
