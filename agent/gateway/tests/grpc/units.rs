//! A test of `current_limit`, which can only state windows of one unit that Envoy knows.

use std::time::Duration;

use crate::support::{Running, named};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;

#[tokio::test]
async fn a_limit_is_shown_only_if_its_window_is_one_unit() {
    const DAY: u64 = 86_400;
    let running = Running::start().await;
    for (window, unit) in [
        (Duration::from_millis(500), None),
        (Duration::from_secs(1), Some(Unit::Second)),
        (Duration::from_millis(1_500), None),
        (Duration::from_secs(5), None),
        (Duration::from_secs(60), Some(Unit::Minute)),
        (Duration::from_secs(90), None),
        (Duration::from_secs(3_600), Some(Unit::Hour)),
        (Duration::from_secs(DAY), Some(Unit::Day)),
        (Duration::from_secs(7 * DAY), Some(Unit::Week)),
        (Duration::from_secs(27 * DAY), None),
        (Duration::from_secs(28 * DAY), Some(Unit::Month)),
        (Duration::from_secs(31 * DAY), Some(Unit::Month)),
        (Duration::from_secs(365 * DAY), Some(Unit::Year)),
        (Duration::from_secs(366 * DAY), Some(Unit::Year)),
    ] {
        let domain = format!("{window:?}");
        running.kit.near("api.search", &domain, 7, 50, window);
        let answer = running
            .ask("edge", &[named("api.search", &domain, None)])
            .await;
        let status = &answer.statuses[0];
        let limit = status.current_limit.as_ref();
        let shown = limit.map(|limit| (limit.requests_per_unit, limit.unit));
        assert_eq!(shown, unit.map(|unit| (50, unit as i32)), "{domain}");
        assert_eq!(status.limit_remaining, 6, "{domain}");
    }
    running.end().await;
}
