//! Tests of what each kind of call does while the flusher rests.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tollgate_shared::wire::public::{Kind, Public};

use super::*;
use crate::builder::AgentBuilder;
use crate::clock::{Clock, Mono};
use crate::deny::Lease;
use crate::timer::Timer;

/// A call, which returns whether it is let through.
type NamedCall<'a> = (&'a str, &'a dyn Fn(&Rate) -> bool);

impl Rate {
    /// A resource with this limit, of an agent without threads that has not heard of any of its domains.
    pub(crate) fn limited(builder: &AgentBuilder, clock: Clock, limit: u64) -> (Arc<Shared>, Self) {
        let timer = Timer::Hand(Arc::new(Notify::new()));
        let shared = Arc::new(builder.shared(Arc::new(clock), 1, timer));
        let (resource, _) = shared.resources.get("r");
        let resource = resource.expect("room");
        resource.learn(&Public {
            version: 1,
            kind: Kind::Rate,
            least: Some(limit),
            ..Public::default()
        });
        let agent = AgentInner::new(Arc::clone(&shared), "r".to_owned(), Arc::default(), None);
        let rate = Self::new(resource, Arc::new(agent));
        (shared, rate)
    }
}

/// A resource with a limit of 1,000, of an agent whose clock is asleep, and that is not blind.
fn asleep() -> Rate {
    let clock = Clock::of_the_machine();
    let (shared, rate) = Rate::limited(&AgentBuilder::default(), clock, 1_000);
    let leases = vec![Lease::default()];
    leases[0].renew(Mono::MAX);
    shared.liveness.set_partitions(1, leases.clone(), leases);
    shared.liveness.update(shared.clock.read());
    shared.clock.fall_asleep(true);
    rate
}

fn recorded(copies: u32) -> impl Fn(&Rate) -> bool {
    move |rate| {
        rate.record("acme", copies);
        true
    }
}

#[test]
fn every_kind_of_call_is_noticed_by_a_sleeping_flusher() {
    let wait = |rate: &Rate| {
        let ready = rate.until_ready("acme", Duration::from_secs(1));
        let mut ready = std::pin::pin!(ready);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        ready.as_mut().poll(&mut context).is_ready()
    };
    let calls: &[NamedCall<'_>] = &[
        ("hit", &|rate| rate.hit("acme").is_ok()),
        ("hit_n", &|rate| rate.hit_n("acme", 2).is_ok()),
        ("hit_up_to", &|rate| rate.hit_up_to("acme", 0..=2).is_ok()),
        ("record", &recorded(2)),
        ("hit_estimated", &|rate| {
            rate.hit_estimated("acme", 2).is_ok()
        }),
        ("hit_all", &|rate| {
            hit_all(&[(rate, "acme"), (rate, "globex")]).is_ok()
        }),
        ("until_ready", &wait),
        ("peek, and a refusal", &|rate| {
            let denied = rate.peek("acme").err();
            let denied = denied.unwrap_or(Denied::by_policy(Cause::Blind, Span::ZERO));
            rate.record_refused("acme", 1, &denied);
            true
        }),
    ];
    for (name, call) in calls {
        let rate = asleep();
        let clock = &rate.shared.clock;
        assert!(call(&rate), "{name}");
        assert!(!clock.is_asleep(), "{name}");
        assert!(!clock.is_awake(), "{name} may wait for the next visit");
    }
}

#[test]
fn an_urgent_call_of_any_kind_wakes_a_resting_flusher() {
    let calls: &[NamedCall<'_>] = &[
        ("hit_n", &|rate| rate.hit_n("acme", 25).is_ok()),
        ("hit_up_to", &|rate| rate.hit_up_to("acme", 0..=25).is_ok()),
        ("record", &recorded(25)),
        ("hit_estimated", &|rate| {
            rate.hit_estimated("acme", 25).is_ok()
        }),
        ("hit_all_n", &|rate| {
            hit_all_n(&[(rate, "acme", 25)]).is_ok()
        }),
    ];
    for (name, call) in calls {
        let rate = asleep();
        assert!(call(&rate), "{name}");
        assert!(rate.shared.clock.is_awake(), "{name}");
    }
    // And the 25th of many.
    let rate = asleep();
    for n in 1..=25 {
        let _ = rate.hit("acme");
        assert_eq!(rate.shared.clock.is_awake(), n == 25, "{n}");
    }
}
