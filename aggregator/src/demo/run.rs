//! Runs a demonstration: prepares, starts, plays, kills and restarts the aggregator, and checks the result.

use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tollgate_shared::kafka_properties::is_of_connection;
use tollgate_shared::keyring::Keyring;

use super::clock::wall_us;
use super::copies::{Returned, Scene, Subject};
use super::fleet::{Addresses, CHILDREN_FIND, ChildGuard, News, Who, arg, place};
use super::inbox::Inbox;
use super::log_source;
use super::outage::Outage;
use super::plan::{Log, Plan, TrafficSource};
use super::player::{PlayerNotice, read_seen};
use super::replayed::BusyStretch;
use super::report::{AgentCounts, DemoReport};
use super::schedule::Schedule;
use super::secured;
use super::verdict::{Bench, Observations};
use super::view::View;
use crate::hang_up::HangUp;
use tollgate_replay::model_check::{ModelCheck, Versions};
use tollgate_replay::source::limits_of;
use tollgate_server::http::client::{Client, explained};

/// Agent processes of a demonstration.
pub const AGENTS: u32 = 2;

/// How long a process may take to start.
const START_WITHIN: Duration = Duration::from_secs(30);

/// How long agents may take after the schedule to send the rest and to end.
const END_WITHIN: Duration = Duration::from_secs(15);

/// The time from when all are ready until the first call.
const LEAD_US: u64 = 300_000;

/// Partitions of the topics that a demonstration makes.
const KAFKA_PARTITIONS: u32 = 16;

struct DemoStage {
    plan: Plan,
    place: tempfile::TempDir,
    sender: Sender<News>,
    inbox: Inbox,
    view: View,
    aggregator: Option<ChildGuard>,
    aggregators: u32,
    addresses: Addresses,
    client: Client,
}

/// Runs a demonstration to its report.
///
/// # Errors
///
/// [`Interrupted`](super::Interrupted) after a signal; errors of files, processes and the log.
pub fn run(plan: Plan) -> anyhow::Result<DemoReport> {
    let (sender, news) = channel();
    watch_signals(sender.clone())?;
    let view = View::new(AGENTS as usize, plan.seconds, plan.quiet);
    let mut stage = DemoStage {
        place: place().context("cannot make a directory for the demonstration")?,
        plan,
        sender,
        inbox: Inbox::new(news),
        view,
        aggregator: None,
        aggregators: 0,
        addresses: Addresses::default(),
        client: Client::default(),
    };
    let result = stage.perform();
    stage.view.end();
    if result.is_err() {
        for line in stage.inbox.last_log() {
            remark!("aggregator: {line}");
        }
    }
    result
}

fn watch_signals(sender: Sender<News>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let guard = runtime.enter();
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let mut int = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
    let mut hang_up = HangUp::caught()?;
    drop(guard);
    std::thread::spawn(move || {
        runtime.block_on(async {
            let number = tokio::select! {
                () = hang_up.received() => 1,
                _ = int.recv() => 2,
                _ = term.recv() => 15,
            };
            let _ = sender.send(News::Interrupted(number));
        });
    });
    Ok(())
}

impl DemoStage {
    fn perform(&mut self) -> anyhow::Result<DemoReport> {
        let (schedule, stretch) = self.schedule()?;
        if let Some(stretch) = &stretch {
            self.view.say(&format!(
                "replaying {} requests: {} s of the log ({} lines, {} unreadable)",
                schedule.calls.len(),
                stretch.covered_s,
                stretch.lines,
                stretch.skipped
            ));
        }
        self.write_kafka_properties()?;
        self.make_keys()?;
        let attached = matches!(self.plan.log, Log::Attached { .. });
        if let Log::Attached { agents, .. } = &self.plan.log {
            self.addresses.agents = agents.clone();
        } else {
            std::fs::write(self.limits_file(), &self.plan.limits_text)?;
            self.start_aggregator()?;
        }
        let names: Vec<String> = (1..=AGENTS)
            .map(|n| format!("demo-{}-{n}", std::process::id()))
            .collect();
        let by_agent = |schedule: &Schedule| -> Vec<Schedule> {
            (0..AGENTS).map(|agent| schedule.of_agent(agent)).collect()
        };
        let schedules = by_agent(&schedule);
        let mut agents = self.start_agents(&names, &schedules)?;

        let start_us = wall_us() + LEAD_US;
        agents
            .iter_mut()
            .for_each(|agent| agent.send_line(&format!("start {start_us}")));
        self.view.begin();
        let outage = (!attached).then(|| Outage::planned(self.plan.seconds));
        let (notice, outage) = self.play(&mut agents, outage)?;
        drop(agents);
        let returned = self.copies(attached)?;
        self.view.say("judging: the model replays the log");
        let mut report = self.check_observations(
            &names,
            &by_agent(&schedule.as_limited(&self.plan.limits)),
            &notice,
            start_us,
            &outage,
            stretch.as_ref(),
        )?;
        if let Some((subject, returned)) = &returned {
            report.add_copies(subject, returned);
        }
        if let Some(mut aggregator) = self.aggregator.take()
            && aggregator.stop(Duration::from_secs(6)).is_none()
        {
            bail!("the aggregator did not stop within 6 s");
        }
        Ok(report)
    }

    fn make_keys(&mut self) -> anyhow::Result<()> {
        let mut found = self.plan.reach.variables();
        if self.plan.tls {
            (found, self.client) = secured::make(&self.place.path().join("keys"))?;
            self.view.say("keys were created: TLS 1.3, and a token");
        }
        // Once per process, which runs one demonstration.
        let _ = CHILDREN_FIND.set(found);
        Ok(())
    }

    fn limits_file(&self) -> PathBuf {
        self.place.path().join("limits.toml")
    }

    fn schedule(&self) -> anyhow::Result<(Schedule, Option<BusyStretch>)> {
        let Plan { seed, seconds, .. } = self.plan;
        Ok(match &self.plan.source {
            TrafficSource::MadeUp => (Schedule::made_up(seed, seconds, AGENTS), None),
            TrafficSource::Against { resources, run } => (
                Schedule::against(resources, run, seed, seconds, AGENTS),
                None,
            ),
            TrafficSource::AccessLog(log) => {
                let (schedule, stretch) = Schedule::replay(log, seconds, AGENTS)?;
                stretch.notes.iter().for_each(|note| self.view.say(note));
                (schedule, Some(stretch))
            }
        })
    }

    fn start_aggregator(&mut self) -> anyhow::Result<()> {
        self.aggregators += 1;
        let number = self.aggregators;
        // After an outage the same addresses are used: agents expect the aggregator there.
        let or_any = |address: &str| {
            if address.is_empty() {
                "127.0.0.1:0".to_owned()
            } else {
                address.to_owned()
            }
        };
        let mut args: Vec<String> = ["serve", "--with-stdin", "--name", "demo"]
            .map(str::to_owned)
            .into();
        args.extend(["--limits".to_owned(), arg(&self.limits_file())]);
        args.extend(["--http".to_owned(), or_any(&self.addresses.http)]);
        args.extend(["--agents".to_owned(), or_any(&self.addresses.agents)]);
        args.extend(["--feed".to_owned(), or_any(&self.addresses.feed)]);
        match &self.plan.log {
            Log::Journal => args.extend(["--journal".to_owned(), arg(&self.journal())]),
            Log::Kafka { bootstrap, prefix } => {
                // On Kafka, operators push limits, unless the configuration has a file. A static
                // member that returns gets its partitions at once.
                let mut properties = self.plan.kafka_properties.clone();
                properties.insert("group.instance.id".to_owned(), "demo".to_owned());
                let config = format!(
                    "[limits]\nfollow_file = true\n[kafka]\npartitions = {KAFKA_PARTITIONS}\n\
                     [kafka.properties]\n{}",
                    toml::to_string(&properties)?
                );
                let file = self.place.path().join("tollgate.toml");
                std::fs::write(&file, config)?;
                args.extend(["--config".to_owned(), arg(&file)]);
                args.extend(["--kafka", bootstrap, "--topic-prefix", prefix].map(str::to_owned));
            }
            Log::Attached { .. } => {}
        }
        let kept = ChildGuard::aggregator(number, &args, self.sender.clone())
            .context("cannot start the aggregator")?;
        self.aggregator = Some(kept);
        let addresses =
            self.inbox.wait_for(
                START_WITHIN,
                "the aggregator to listen",
                |news| match news {
                    News::Listening(addresses) => Ok(Some(addresses.clone())),
                    News::Ended(Who::Aggregator(ended)) if *ended == number => {
                        bail!("the aggregator ended")
                    }
                    _ => Ok(None),
                },
            )?;
        self.view.say(&format!(
            "aggregator {number} listens on {}",
            addresses.agents
        ));
        self.addresses = addresses;
        self.wait_until_ready()
    }

    /// Waits until the aggregator reports that it has caught up.
    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let url = format!("http://{}", self.addresses.http);
        let opened = self.client.open(&url, None)?;
        let until = Instant::now() + START_WITHIN;
        loop {
            let found = match opened.get("/readyz").call() {
                Ok(answer) if answer.status().as_u16() == 200 => return Ok(()),
                Ok(answer) => format!("status {}", answer.status()),
                Err(error) => explained(&error),
            };
            if until < Instant::now() {
                bail!("the aggregator did not become ready: {found}");
            }
            self.inbox.pass(Duration::from_millis(20))?;
        }
    }

    /// The file with the properties of agents' Kafka clients.
    fn kafka_properties(&self) -> PathBuf {
        self.place.path().join("kafka.properties")
    }

    /// Writes that file. Other users cannot read the directory.
    fn write_kafka_properties(&self) -> anyhow::Result<()> {
        let mut text = String::new();
        for (name, value) in &self.plan.kafka_properties {
            if value.contains('\n') {
                bail!(
                    "kafka property `{name}`: has several lines, expected one: name a file instead"
                );
            }
            if is_of_connection(name) {
                text += &format!("{name}={value}\n");
            }
        }
        Ok(std::fs::write(self.kafka_properties(), text)?)
    }

    fn journal(&self) -> PathBuf {
        self.place.path().join("journal")
    }

    fn seen_file(&self, agent: usize) -> PathBuf {
        self.place.path().join(format!("seen-{agent}"))
    }

    fn start_agents(
        &mut self,
        names: &[String],
        schedules: &[Schedule],
    ) -> anyhow::Result<Vec<ChildGuard>> {
        let mut agents = Vec::new();
        for (index, (name, schedule)) in names.iter().zip(schedules).enumerate() {
            let file = self.place.path().join(format!("schedule-{index}.json"));
            std::fs::write(&file, serde_json::to_vec(schedule)?)?;
            let mut args: Vec<String> = ["demo-agent", "--name", name].map(str::to_owned).into();
            args.extend(["--aggregator".to_owned(), self.addresses.agents.clone()]);
            args.extend([
                "--schedule".to_owned(),
                arg(&file),
                "--seen".to_owned(),
                arg(&self.seen_file(index)),
            ]);
            args.extend(self.plan.log.agent_args(&self.kafka_properties()));
            agents.push(
                ChildGuard::agent(index, &args, self.sender.clone())
                    .context("cannot start an agent")?,
            );
        }
        let mut ready = vec![false; agents.len()];
        while ready.contains(&false) {
            let (index, is_ready) =
                self.inbox
                    .wait_for(START_WITHIN, "the agents to be ready", |news| match news {
                        News::Agent(index, notice) => Ok(Some((*index, notice.ready))),
                        News::Ended(Who::Agent(index)) => bail!("agent {} ended", index + 1),
                        _ => Ok(None),
                    })?;
            if !is_ready {
                bail!("agent {} received nothing from the aggregator", index + 1);
            }
            ready[index] = true;
        }
        self.view.say("agents are ready");
        Ok(agents)
    }

    /// Plays the schedule, from the first call to the agents' last reports.
    fn play(
        &mut self,
        agents: &mut [ChildGuard],
        mut outage: Option<Outage>,
    ) -> anyhow::Result<(Vec<PlayerNotice>, Option<Outage>)> {
        const STEP: Duration = Duration::from_millis(20);
        let began = Instant::now();
        let until = began
            + Duration::from_micros(LEAD_US)
            + Duration::from_secs(self.plan.seconds)
            + END_WITHIN;
        let mut notice = vec![PlayerNotice::default(); agents.len()];
        while notice.iter().any(|notice| !notice.done) {
            if until < Instant::now() {
                bail!("the agents did not end in time");
            }
            match self.inbox.next(STEP)? {
                Some(News::Agent(index, counts)) => {
                    if outage.as_mut().is_some_and(|o| o.received(index, &counts)) {
                        self.view
                            .say("the log has all that was recorded while it was away");
                    }
                    notice[index] = counts;
                }
                Some(News::Ended(Who::Agent(index))) if !notice[index].done => {
                    bail!("agent {} ended early", index + 1)
                }
                Some(News::Ended(Who::Aggregator(number)))
                    if number == self.aggregators && self.aggregator.is_some() =>
                {
                    bail!("the aggregator ended by itself");
                }
                _ => {}
            }
            self.view.show(&notice);
            if let Some(outage) = &mut outage {
                self.outage_step(
                    outage,
                    began
                        .elapsed()
                        .saturating_sub(Duration::from_micros(LEAD_US)),
                    agents,
                )?;
            }
        }
        Ok((notice, outage))
    }

    /// Plays the part with copies, if the limits allow one.
    fn copies(&mut self, attached: bool) -> anyhow::Result<Option<(Subject, Returned)>> {
        let run = format!("{:x}", std::process::id());
        let Some(subject) = Subject::choose(&self.plan.limits, &run, attached) else {
            return Ok(None);
        };
        let kafka_properties = self.kafka_properties();
        let mut scene = Scene {
            inbox: &mut self.inbox,
            sender: &self.sender,
            log: &self.plan.log,
            kafka_properties: &kafka_properties,
            aggregator: &self.addresses.agents,
            say: &|line| self.view.say(line),
        };
        let returned = scene.play(&subject)?;
        Ok(returned.map(|returned| (subject, returned)))
    }

    fn outage_step(
        &mut self,
        outage: &mut Outage,
        passed: Duration,
        agents: &mut [ChildGuard],
    ) -> anyhow::Result<()> {
        if outage.is_to_begin(passed) {
            outage.begins();
            agents
                .iter_mut()
                .for_each(|agent| agent.send_line("outage"));
            if let Some(mut aggregator) = self.aggregator.take() {
                aggregator.kill();
            }
            self.view.say("aggregator killed; calls go on");
        } else if self.aggregator.is_none() && outage.is_to_end(passed) {
            agents.iter_mut().for_each(|agent| agent.send_line("back"));
            outage.ends();
            let again = Instant::now();
            self.start_aggregator()?;
            outage.restarted(again, agents.len());
            self.view.say("aggregator is back");
        }
        Ok(())
    }

    fn check_observations(
        &mut self,
        names: &[String],
        schedules: &[Schedule],
        notice: &[PlayerNotice],
        start_us: u64,
        outage: &Option<Outage>,
        stretch: Option<&BusyStretch>,
    ) -> anyhow::Result<DemoReport> {
        let seen = (0..names.len())
            .map(|agent| read_seen(&self.seen_file(agent)))
            .collect::<Result<Vec<_>, _>>()?;
        let observations = Observations {
            names,
            schedules,
            seen: &seen,
            limits: &self.plan.limits,
            start_us,
            outage_us: outage.as_ref().map_or(u64::MAX, |outage| outage.began_us),
        };
        let source = log_source::open(&self.plan, &self.journal())?;
        let versions = Versions::of(&limits_of(&*source)?);
        // It has no keys of a fleet that it was attached to.
        let keys = Keyring::default().trusting_missing();
        let model_check = ModelCheck::new(source.partitions(), keys);
        let mut bench = Bench::new(&observations, model_check);
        for partition in 0..source.partitions() {
            log_source::each_of_hits(&*source, partition, |record| {
                bench.record(partition, record, &versions);
            })?;
        }
        let (verdict, unread) = bench.verdict();
        let counts = AgentCounts {
            accepted: notice.iter().map(|notice| notice.accepted).sum(),
            dropped: notice.iter().map(|notice| notice.dropped).sum(),
        };
        let costs: Vec<_> = notice
            .iter()
            .map(|notice| (notice.cost, notice.cost_blind))
            .collect();
        let mut report = DemoReport::of(verdict, &costs, counts).with_stretch(stretch);
        report.log_records_unread = unread;
        report.seed = self.plan.seed;
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        report.outage_ms = outage.as_ref().and_then(|outage| outage.lasted).map(ms);
        report.caught_up_ms = outage.as_ref().and_then(|outage| outage.caught_up).map(ms);
        if let Log::Kafka { prefix, .. } = &self.plan.log {
            report.topic_prefix = Some(prefix.clone());
        }
        Ok(report)
    }
}
