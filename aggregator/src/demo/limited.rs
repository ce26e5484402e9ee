//! Calls by what limits them: the domain as which each one counts, and the span of its limits.
//!
//! ```text
//! addresses = { v4 = 32, v6 = 64 }      2001:db8::1, 2001:db8::2     count together, as 2001:db8::/64
//! ```
//!
//! Agents play a schedule as it is; log, denials and the model have the names by which calls count.

use std::collections::HashMap;

use tollgate_limits::{Limits, RateClass};

use super::schedule::Schedule;

impl Schedule {
    /// The same calls with the domains as which these limits count them. A domain of two resources may count
    /// differently on each.
    pub fn as_limited(&self, limits: &Limits) -> Self {
        let mut schedule = Self {
            resources: self.resources.clone(),
            domains: Vec::new(),
            calls: self.calls.clone(),
        };
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut of_pair: HashMap<(u32, u32), u32> = HashMap::new();
        for call in &mut schedule.calls {
            let names = (
                self.resources.get(call.resource as usize),
                self.domains.get(call.domain as usize),
            );
            let (Some(resource), Some(domain)) = names else {
                continue;
            };
            call.domain = *of_pair
                .entry((call.resource, call.domain))
                .or_insert_with(|| {
                    let limited = limits.domain_of_call(resource, domain).into_owned();
                    *numbers.entry(limited.clone()).or_insert_with(|| {
                        schedule.domains.push(limited);
                        schedule.domains.len() as u32 - 1
                    })
                });
        }
        schedule
    }
}

const SECOND_US: u64 = 1_000_000;

/// The length of the windows in which a pair is compared with an ideal limiter: at least a second, and as long as
/// the longest of its limits. In a shorter one the ideal limiter may let nothing through, and any call seems too many.
pub(super) fn window_us(limits: &Limits, resource: &str, domain: &str) -> u64 {
    let rate = limits.rate(resource);
    let longest = rate.map(|rate| longest_us(limits.class(rate.class_of(domain))));
    longest.unwrap_or(0).max(SECOND_US)
}

fn longest_us(class: &RateClass) -> u64 {
    let tiers = class.tiers().iter().map(|tier| tier.window);
    let windows = class.sliding().map(|window| window.window);
    let spans = tiers.chain(windows).map(|span| span.as_micros());
    // An empty bucket is full again after this time.
    let bucket = class.bucket.filter(|bucket| 0 < bucket.tokens);
    let filled = bucket.map(|bucket| {
        let span = u128::from(bucket.burst) * u128::from(bucket.period.as_micros());
        u64::try_from(span / u128::from(bucket.tokens)).unwrap_or(u64::MAX)
    });
    spans.chain(filled).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::schedule::ScheduledCall;
    use super::*;

    #[test]
    fn addresses_of_one_network_count_as_one_domain() {
        let text = "version = 1\nrules = 2\n[rate.a]\nrate = \"5/s\"\naddresses = { v4 = 24, v6 = 64 }\n\
                    [rate.b]\nrate = \"5/s\"\n";
        let limits = Limits::parse(text).expect("good limits");
        let call = |resource, domain| ScheduledCall {
            at_us: u64::from(domain),
            agent: 0,
            resource,
            domain,
            copies: 1,
        };
        let schedule = Schedule {
            resources: vec!["a".into(), "b".into()],
            domains: vec!["10.0.0.1".into(), "10.0.0.2".into(), "acme".into()],
            calls: vec![call(0, 0), call(0, 1), call(0, 2), call(1, 1)],
        };
        let limited = schedule.as_limited(&limits);
        let domain = |call: &ScheduledCall| &*limited.domains[call.domain as usize];
        let domains: Vec<_> = limited.calls.iter().map(domain).collect();
        assert_eq!(domains, ["10.0.0.0/24", "10.0.0.0/24", "acme", "10.0.0.2"]);
        assert_eq!(limited.domains.len(), 3, "each name has one number");
    }

    #[test]
    fn a_pair_is_compared_over_its_longest_limit() {
        let text = "version = 1\nrules = 2\n[rate.minute]\nwindows = [\"5/s\", \"100/m\"]\n[rate.tiers]\n\
                    tiers = [{ limit = 60, window = \"10s\", active = \"10s\" }]\n[rate.hard]\nhard = \"5/s\"\n\
                    [rate.bucket]\nbucket = { rate = \"2/s\", burst = 90 }\n";
        let limits = Limits::parse(text).expect("good limits");
        let seconds = ["minute", "tiers", "hard", "bucket", "other"]
            .map(|resource| window_us(&limits, resource, "acme") / SECOND_US);
        assert_eq!(seconds, [60, 10, 1, 45, 1]);
    }
}
