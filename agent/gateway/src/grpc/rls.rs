//! Envoy's rate limit service (`envoy.service.ratelimit.v3`), and Kuadrant's with the same messages.
//!
//! ```text
//! ShouldRateLimit   asks and counts         OK, or OVER_LIMIT if any descriptor is refused
//! CheckRateLimit    asks without counting   (Kuadrant)
//! Report            counts without asking   (Kuadrant)
//! ```
//!
//! Knows nothing of connections. What stays true: there is a status for each descriptor; `current_limit` is sent only
//! if it is known how much of it is left, since Envoy would otherwise read it as "nothing is left", and only if its
//! window is one unit that Envoy knows; only an invalid request is answered by an error.

use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf;
use metrics::counter;
use tollgate_agent::Agent;
use tonic::{Request, Response};

use super::arrivals::{Arrival, ConnectionId};
use super::asks::{DescriptorRead, RlsCall, read};
use super::decision::{Deciding, Decision, Status};
use super::holds::EnvoyHolds;
use crate::state::{Settings, Shared};

/// The status with which Envoy answers a refused request, unless its `rate_limited_status` is another one. The answer
/// of this service has no status for it.
const STATUS_OF_ENVOY: u16 = 429;

/// The most descriptors of one request. Envoy sends one for each rate limit of a route.
const DESCRIPTORS_MAX: usize = 256;

/// The services; cheap to clone.
#[derive(Clone)]
pub(crate) struct Rls {
    agent: Agent,
    settings: Arc<Settings>,
    holds: Arc<EnvoyHolds>,
}

impl Rls {
    pub fn new(shared: &Shared, holds: Arc<EnvoyHolds>) -> Self {
        Self {
            agent: shared.agent.clone(),
            settings: Arc::clone(&shared.settings),
            holds,
        }
    }

    /// Answers one request.
    pub fn answer(
        &self,
        request: Request<RateLimitRequest>,
        call: RlsCall,
    ) -> Result<Response<RateLimitResponse>, tonic::Status> {
        let arrival = request.extensions().get::<Arrival>().copied();
        let request = request.into_inner();
        if let Err(fault) = check(&request) {
            Shared::note("bad_question");
            return Err(tonic::Status::invalid_argument(fault));
        }
        let rules = self.agent.descriptors(&request.domain);
        let descriptors = request.descriptors.iter();
        let read = |one| read(&rules, one, request.hits_addend, call);
        let read: Vec<DescriptorRead> = descriptors.clone().map(read).collect();
        let brought = descriptors.filter(|one| one.limit.is_some()).count();
        if brought != 0 {
            counter!("tollgate_gateway_limits_ignored_total").increment(brought as u64);
        }
        let deciding = Deciding {
            agent: &self.agent,
            holds: &self.holds,
            // Only a test calls this without a connection.
            arrival: arrival.unwrap_or(Arrival {
                by: ConnectionId(0),
                number: 0,
            }),
        };
        let mut decision = deciding.decide(&read);
        decision.headers = self.settings.shown(decision.headers);
        let refusal = decision.refusal.take();
        decision.refusal = refusal.map(|answer| {
            let told = self.settings.told_refused(answer);
            told.denied_as(STATUS_OF_ENVOY)
        });
        Ok(Response::new(respond(&decision)))
    }
}

/// Checks a request.
fn check(request: &RateLimitRequest) -> Result<(), String> {
    let found = request.descriptors.len();
    if request.domain.is_empty() {
        return Err("domain: empty, expected the domain of the descriptors".to_owned());
    }
    match found {
        1..=DESCRIPTORS_MAX => Ok(()),
        _ => Err(format!(
            "{found} descriptors: expected 1 to {DESCRIPTORS_MAX}"
        )),
    }
}

fn respond(decision: &Decision) -> RateLimitResponse {
    let code = code_of(decision.is_refused()) as i32;
    let header = |(key, value): (&str, String)| HeaderValue {
        key: key.to_owned(),
        value,
        ..HeaderValue::default()
    };
    let mut response = RateLimitResponse {
        overall_code: code,
        statuses: decision.statuses.iter().map(status).collect(),
        ..RateLimitResponse::default()
    };
    match &decision.refusal {
        Some(answer) => {
            response.response_headers_to_add = answer.headers().map(header).collect();
            response.raw_body = answer.body().into_bytes();
        }
        None => {
            response.response_headers_to_add = decision.headers.iter().map(header).collect();
        }
    }
    response
}

const fn code_of(is_refused: bool) -> Code {
    match is_refused {
        true => Code::OverLimit,
        false => Code::Ok,
    }
}

fn status(status: &Status) -> DescriptorStatus {
    let mut descriptor = DescriptorStatus {
        code: code_of(status.is_refused) as i32,
        ..DescriptorStatus::default()
    };
    if let Some(room) = &status.room {
        descriptor.current_limit = unit_of(room.window).map(|unit| RateLimit {
            name: room.name().unwrap_or_default(),
            requests_per_unit: saturated(room.limit),
            unit: unit as i32,
        });
        descriptor.limit_remaining = saturated(room.remaining);
        descriptor.duration_until_reset = room.more_in.map(duration);
    }
    descriptor
}

fn saturated(copies: u64) -> u32 {
    u32::try_from(copies).unwrap_or(u32::MAX)
}

fn duration(span: Duration) -> protobuf::Duration {
    protobuf::Duration {
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        // Always below 10⁹.
        nanos: i32::try_from(span.subsec_nanos()).unwrap_or_default(),
    }
}

/// The unit that a window is. `None` for any other window, such as 5 s: Envoy has no field for it, and every rate in
/// its units would be a wrong one. `RateLimit-Policy` has the window.
fn unit_of(window: Duration) -> Option<Unit> {
    const DAY: u64 = 86_400;
    match (window.as_secs(), window.subsec_nanos()) {
        (1, 0) => Some(Unit::Second),
        (60, 0) => Some(Unit::Minute),
        (3_600, 0) => Some(Unit::Hour),
        (DAY, 0) => Some(Unit::Day),
        (seconds, 0) if seconds == 7 * DAY => Some(Unit::Week),
        // As long as those of the calendar.
        (seconds, 0) if (28 * DAY..=31 * DAY).contains(&seconds) => Some(Unit::Month),
        (seconds, 0) if (365 * DAY..=366 * DAY).contains(&seconds) => Some(Unit::Year),
        _ => None,
    }
}
