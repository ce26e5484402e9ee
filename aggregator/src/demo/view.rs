//! The display while a demonstration runs: bars on a terminal, plain lines elsewhere.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::player::PlayerNotice;

/// How often a plain line is written.
const PLAIN_EVERY: Duration = Duration::from_secs(1);

/// Shows the run. Everything goes to standard error: standard output is for the report.
pub struct View {
    quiet: bool,
    live: Option<Live>,
    next_plain: Instant,
    began: Instant,
}

struct Live {
    _all: MultiProgress,
    time: ProgressBar,
    agents: Vec<ProgressBar>,
    aggregator: ProgressBar,
}

impl View {
    /// A display for a run with a number of agents.
    pub fn new(agents: usize, seconds: u64, quiet: bool) -> Self {
        let live = (!quiet && std::io::stderr().is_terminal()).then(|| Live::new(agents, seconds));
        let now = Instant::now();
        Self {
            quiet,
            live,
            next_plain: now,
            began: now,
        }
    }

    /// The schedule begins.
    pub fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// Shows a message.
    pub fn say(&self, line: &str) {
        match &self.live {
            Some(live) => live.aggregator.set_message(line.to_owned()),
            None if !self.quiet => {
                remark!("{:6.1} s  {line}", self.began.elapsed().as_secs_f64())
            }
            None => {}
        }
    }

    /// Shows the agents' latest counts.
    pub fn show(&mut self, notice: &[PlayerNotice]) {
        let passed = self.began.elapsed();
        match &self.live {
            Some(live) => {
                live.time
                    .set_position(passed.as_millis().try_into().unwrap_or(u64::MAX));
                for (bar, notice) in live.agents.iter().zip(notice) {
                    bar.set_message(counts(notice));
                }
            }
            None if !self.quiet && self.next_plain <= Instant::now() => {
                self.next_plain = Instant::now() + PLAIN_EVERY;
                for (index, notice) in notice.iter().enumerate() {
                    remark!(
                        "{:6.1} s  agent {}: {}",
                        passed.as_secs_f64(),
                        index + 1,
                        counts(notice)
                    );
                }
            }
            None => {}
        }
    }

    /// Clears the bars.
    pub fn end(&mut self) {
        if let Some(live) = self.live.take() {
            live.time.finish_and_clear();
            live.aggregator.finish_and_clear();
            live.agents.iter().for_each(ProgressBar::finish_and_clear);
        }
    }
}

impl Live {
    fn new(agents: usize, seconds: u64) -> Self {
        let all = MultiProgress::new();
        // A template that does not parse is a bug, but a plain bar is better than to stop the run.
        let style = |template: &str| {
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
        };
        let time = all.add(ProgressBar::new(seconds.saturating_mul(1_000)));
        time.set_style(style("{bar:50} {elapsed} of a run"));
        let line = |prefix: String| {
            let bar = all.add(ProgressBar::new_spinner());
            bar.set_style(style("  {prefix:<12} {msg}"));
            bar.set_prefix(prefix);
            bar
        };
        let agents = (0..agents)
            .map(|index| line(format!("agent {}", index + 1)))
            .collect();
        let aggregator = line("aggregator".to_owned());
        Self {
            time,
            agents,
            aggregator,
            _all: all,
        }
    }
}

fn counts(notice: &PlayerNotice) -> String {
    format!(
        "offered {:>7}  let through {:>7}  refused {:>7}  denials {:>4}  waiting {:>3}",
        notice.offered, notice.let_through, notice.refused, notice.denials, notice.waiting
    )
}
