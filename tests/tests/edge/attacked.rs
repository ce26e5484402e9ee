//! An aggregator under attack, and an honest agent beside the attacker.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_agent::{Agent, Rate};
use tollgate_tests::http::{self, get_text};
use tollgate_tests::serving::{ANY, Serving};

/// Far more than anything here takes; the machine may be busy.
pub const SOON: Duration = Duration::from_secs(60);

const LIMITS: &str = r#"
version = 1
rules = 2
[rate."api.search"]
rate = "2/m"
[rate."api.day"]
tiers = [{ limit = 1, window = "5m", active = "5m", cooldown = "23h55m" }]
"#;

/// What a debug build's allocator may keep beyond the bounded memory.
const SLACK: u64 = 24 << 20;

pub struct Attacked {
    pub serving: Serving,
    _dir: TempDir,
    /// Resident bytes before the attack.
    before: u64,
    honest: Agent,
    search: Rate,
    domains: u32,
}

impl Attacked {
    /// Starts one with these lines of configuration.
    pub fn start(config: &str) -> Self {
        Self::under("", config)
    }

    /// The same with more lines of limits.
    pub fn under(limits: &str, config: &str) -> Self {
        let limits = format!("{LIMITS}{limits}");
        Self::start_by(config, |dir, more| {
            Serving::start_at(dir, &limits, ANY, more)
        })
    }

    pub fn start_by(
        config: &str,
        start: impl FnOnce(&std::path::Path, &[&str]) -> Serving,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("[journal]\npartitions = 4\n{config}\n");
        std::fs::write(dir.path().join("tollgate.toml"), text).unwrap();
        let serving = start(dir.path(), &["--config", "tollgate.toml"]);
        let honest = Agent::builder().name("honest");
        let honest = honest.aggregator(serving.agents.clone()).build().unwrap();
        let search = honest.rate("api.search");
        let mut attacked = Self {
            before: 0,
            serving,
            _dir: dir,
            honest,
            search,
            domains: 0,
        };
        attacked.denials_arrive();
        attacked.before = attacked.resident();
        attacked
    }

    /// An honest agent's hits lead to a denial that it receives.
    pub fn denials_arrive(&mut self) {
        self.domains += 1;
        let domain = format!("honest-{}", self.domains);
        let begun = Instant::now();
        while self.search.hit(&domain).is_ok() {
            assert!(
                begun.elapsed() < SOON,
                "no denial comes: {:?}",
                self.honest.stats()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The resident bytes of the process, which must be alive.
    pub fn resident(&self) -> u64 {
        let status = format!("/proc/{}/status", self.serving.pid());
        let status = std::fs::read_to_string(status).expect("it lives");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let words = line.expect("it lives").split_whitespace().nth(1).unwrap();
        words.parse::<u64>().unwrap() << 10
    }

    /// Asserts that the process has grown by at most this many bytes.
    pub fn has_grown_at_most(&self, bytes: u64) {
        let (now, before) = (self.resident(), self.before);
        let allowed = before + bytes + SLACK;
        assert!(
            now <= allowed,
            "{} MiB, from {} MiB: expected at most {} MiB",
            now >> 20,
            before >> 20,
            allowed >> 20
        );
    }

    /// A metric's value, by its name and labels.
    pub fn metric(&self, name: &str) -> u64 {
        let text = get_text(&*self.serving.http, "/metrics").expect("it answers");
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.unwrap_or_else(|| panic!("no metric {name} in:\n{text}"));
        value.trim().parse::<f64>().unwrap() as u64
    }

    /// The answer of a list.
    pub fn page(&self, path: &str) -> serde_json::Value {
        http::get(&*self.serving.http, path).expect("it answers")
    }

    /// Batches that were refused before the log for this reason.
    pub fn refused(&self, reason: &str) -> u64 {
        self.metric(&format!(
            "tollgate_link_refused_total{{reason=\"{reason}\"}}"
        ))
    }

    /// Connections to a port that were closed for this reason.
    pub fn ended(&self, port: &str, reason: &str) -> u64 {
        self.metric(&format!(
            "tollgate_connections_ended_total{{port=\"{port}\",reason=\"{reason}\"}}"
        ))
    }

    /// Waits until a condition is true.
    pub fn until(&mut self, what: &str, mut is: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !is(self) {
            assert!(begun.elapsed() < SOON, "never: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
