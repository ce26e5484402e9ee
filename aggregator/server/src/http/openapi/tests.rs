//! The document agrees with the routes, their parameters and their answers.

mod explanation;
#[path = "../../../../../tests/src/serde_fields.rs"]
mod serde_fields;

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use serde::Serialize;
use serde_json::Value;
use tollgate_api::amend::{AmendRequest, AmendmentView};
use tollgate_api::bans::BanView;
use tollgate_api::candidates::{
    CandidateDenialView, CandidateFigures, CandidateView, CandidatesView,
};
use tollgate_api::denials::DenialView;
use tollgate_api::holds::{HoldView, ResourceView};
use tollgate_api::limits::SwitchView;
use tollgate_api::pairs::{BucketLeft, ConstraintState, PairState, PairView};
use tollgate_api::state::{DigestView, DigestsView, FaultView, LogView, Readiness};
use tollgate_api::top::{TopPair, TopView};
use tollgate_limits::Limits;
use tollgate_limits::versions::text::Text;
use tollgate_shared::holdings::TransferId;
use tollgate_shared::log_position::Code;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::statement::{Cause, Scope};

use self::serde_fields::fields_of;
use super::DOCUMENT;
use crate::core::bans::{BanCursor, BansPage};
use crate::core::hold_order::{HoldCursor, Holder};
use crate::core::holds::HoldsPage;
use crate::core::live::At;
use crate::core::view::{DenialsCursor, DenialsPage, LimitsInForce, Normalised, TextDigest};
use crate::http::explain::ExplainUrl;
use crate::http::lists::bans::BansUrl;
use crate::http::lists::{DenialsUrl, HoldsUrl, PairUrl, TopUrl};

static SHOWN: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(DOCUMENT).expect("JSON"));

/// Paths and methods of the routes in a source file.
fn routed(source: &str) -> BTreeSet<(&str, &str)> {
    let routes = source.split(".route(").skip(1).map(|rest| {
        let mut parts = rest.split('"').skip(1);
        let (path, behind) = (parts.next(), parts.next());
        let behind = behind
            .expect("a handler")
            .trim_start_matches([',', ' ', '\n']);
        let (method, _) = behind.split_once('(').expect("a method");
        (path.expect("a path"), method)
    });
    routes.collect()
}

#[test]
fn every_route_is_described_and_no_other() {
    let source = include_str!("../mod.rs");
    let (_, source) = source.split_once("pub fn routes(").expect("the routes");
    let (source, _) = source.split_once("pub fn probe_routes(").expect("others");
    let routed = routed(source);
    assert!(14 <= routed.len(), "{routed:?}");
    let paths = SHOWN["paths"].as_object().expect("paths").iter();
    let described = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").keys();
        methods.map(|method| (path.as_str(), method.as_str()))
    });
    assert_eq!(described.collect::<BTreeSet<_>>(), routed);
}

fn parameters(path: &str) -> BTreeSet<String> {
    let parameters = SHOWN["paths"][path]["get"]["parameters"].as_array();
    let names = parameters.into_iter().flatten();
    let names = names.map(|one| one["name"].as_str().expect("a name").to_owned());
    names.collect()
}

#[test]
fn every_parameter_is_described_and_no_other() {
    assert_eq!(parameters("/v1/denials"), fields_of::<DenialsUrl>());
    assert_eq!(parameters("/v1/bans"), fields_of::<BansUrl>());
    assert_eq!(parameters("/v1/holds"), fields_of::<HoldsUrl>());
    assert_eq!(parameters("/v1/pairs"), fields_of::<PairUrl>());
    let by_path = parameters("/v1/pairs/{resource}/{domain}");
    assert_eq!(by_path, fields_of::<PairUrl>());
    assert_eq!(parameters("/v1/top"), fields_of::<TopUrl>());
    assert_eq!(parameters("/v1/explain"), fields_of::<ExplainUrl>());
    let amendment = SHOWN["components"]["schemas"]["Amendment"]["properties"].as_object();
    let amendment = amendment
        .into_iter()
        .flat_map(|properties| properties.keys());
    let amendment: BTreeSet<String> = amendment.cloned().collect();
    assert_eq!(amendment, fields_of::<AmendRequest>());
}

/// Checks that every field of an answer is described, and every described field is in the answer.
#[track_caller]
fn check(name: &str, answer: impl Serialize) {
    let answer = serde_json::to_value(answer).expect("JSON");
    let schema = crate::json_schema::JsonSchema {
        document: &SHOWN,
        matches: |_, _| panic!("no pattern is used here"),
    };
    let described = &SHOWN["components"]["schemas"][name];
    assert!(described.is_object(), "{name}");
    let faults = schema.faults(described, &answer);
    assert_eq!(faults, Vec::<String>::new(), "{name}: {answer}");
    let properties = described["properties"].as_object().expect("properties");
    let missing = properties.keys().find(|field| answer.get(field).is_none());
    assert_eq!(missing, None, "{name}: {answer}");
}

fn denial() -> DenialView {
    DenialView {
        resource: Arc::<str>::from("api.search").into(),
        scope: "pair".into(),
        domain: Some("acme".into()),
        group: None,
        cause: Cause::Hard.into(),
        limit: 200,
        window_us: 1_000_000,
        end_us: Some(1),
        remaining_us: None,
        code: code().into(),
        partition: 3,
        version: 1,
    }
}

fn code() -> Code {
    "3-18250-0-1".parse().expect("a code")
}

#[test]
fn readiness_limits_and_the_log_are_as_described() {
    check(
        "Readiness",
        Readiness {
            schema: "tollgate.ready/1".into(),
            ready: false,
            why: vec!["partition 3 is restoring".to_owned()],
        },
    );
    let limits = Limits::parse("[rate.\"api.search\"]\nrate = \"5/s\"").expect("limits");
    let text = Text::from("version = 1");
    check(
        "Limits",
        LimitsInForce {
            schema: "tollgate.limits/1".into(),
            version: 1,
            digest: Some(TextDigest(text.clone())),
            text: Some(text),
            rows: 1,
            normalised: Some(Normalised(Arc::new(limits))),
            file_differs: true,
            switches: vec![SwitchView {
                namespace: "*".to_owned(),
                ignore_configured: Some(true),
                allow_unconfigured: None,
            }],
        },
    );
    check(
        "Log",
        LogView {
            schema: "tollgate.log/1".into(),
            kind: "kafka".into(),
            dir: Some("data".into()),
            bootstrap: vec!["127.0.0.1:9092".to_owned()],
            topic_prefix: Some("tollgate".to_owned()),
            partitions: 16,
            agents: "127.0.0.1:7401".to_owned(),
        },
    );
    let digest = DigestView {
        partition: 3,
        stage: "restoring".into(),
        why: Some("it begins".to_owned()),
        generation: 1,
        log_random: "0f".to_owned(),
        offset: 1,
        appended_us: 1,
        version: 1,
        digest: "0f".to_owned(),
    };
    check(
        "Digests",
        DigestsView {
            schema: "tollgate.digests/1".into(),
            limits_version: 1,
            partitions: vec![digest],
        },
    );
}

#[test]
fn denials_are_as_described() {
    let at = At {
        partition: 3,
        scope: Scope::Pair("acme".into()),
    };
    let next = DenialsCursor {
        resource: "api.search".into(),
        at,
    };
    check(
        "Denials",
        DenialsPage {
            schema: "tollgate.denials/1".into(),
            denials: vec![denial()],
            omitted: 1,
            next: Some(next),
            partitions_missing: vec![7],
        },
    );
}

#[test]
fn pairs_are_as_described() {
    let state = PairState {
        time_us: 1,
        as_of_us: 1,
        tier: 1,
        tier_limit: 5,
        tier_hits: 5,
        remaining: 0,
        last_second: 5,
        hard: Some(200),
        constraints: vec![ConstraintState {
            name: "window:0".to_owned(),
            limit: 5,
            span_us: 1,
            counted: 5,
        }],
        bucket: Some(BucketLeft {
            level: -1,
            burst: 5,
        }),
    };
    check(
        "Pair",
        PairView {
            schema: "tollgate.pair/1".into(),
            resource: "api.search".into(),
            domain: "acme".into(),
            partition: 3,
            configured: true,
            limited_by_copies: false,
            known: true,
            version: 1,
            state: Some(state),
            denial: Some(denial()),
            partitions_missing: Vec::new(),
        },
    );
    let pair = TopPair {
        resource: "api.search".into(),
        domain: "acme".into(),
        partition: 3,
        hits: Some(5),
        refused: None,
        excess: Some(1),
    };
    check(
        "Top",
        TopView {
            schema: "tollgate.top/1".into(),
            by: "hits".into(),
            from_us: 1,
            to_us: 2,
            short_by_max: 0,
            pairs: vec![pair],
            partitions_missing: vec![7],
        },
    );
}

#[test]
fn bans_are_as_described() {
    let ban = BanView {
        resource: None,
        domain: "10.0.0.0/8".into(),
        end_us: Some(1),
        remaining_us: None,
        version: 7,
        reaches_nobody: false,
    };
    check("Ban", &ban);
    check(
        "Bans",
        BansPage {
            schema: "tollgate.bans/1".into(),
            bans: vec![ban],
            next: Some(BanCursor(None, "10.0.0.0/8".to_owned())),
        },
    );
}

#[test]
fn holds_are_as_described() {
    let hold = HoldView {
        resource: "sandbox".into(),
        domain: "acme".into(),
        groups: vec!["gold".into()],
        state: "held".into(),
        agent: Some("web".into()),
        epoch: Some("7".to_owned()),
        number: Some(3),
        transfer: None,
        copies: 1,
        start_us: 1,
        age_us: 1,
        end_us: None,
        strict: true,
        seized: false,
        partition: 3,
    };
    let resource = ResourceView {
        resource: "sandbox".into(),
        partition: 3,
        copies: 1,
        optimistic: 0,
        global: Some(400),
        holds: 1,
    };
    let next = HoldCursor {
        start: Timestamp::from_micros(1),
        resource: "sandbox".into(),
        holder: Holder::Staged(TransferId(1)),
    };
    check(
        "Holds",
        HoldsPage {
            schema: "tollgate.holds/1".into(),
            holds: vec![hold],
            more: true,
            next: Some(next),
            resources: vec![resource],
            partitions_missing: vec![7],
        },
    );
}

#[test]
fn candidates_are_as_described() {
    let newest = CandidateDenialView {
        domain: "acme".into(),
        at_us: 1,
        end_us: None,
        code: code().to_string(),
    };
    let candidate = CandidateView {
        resource: "api.search".into(),
        partition: 3,
        from_us: 1,
        to_us: 1,
        figures: CandidateFigures::default(),
        newest: vec![newest],
    };
    check(
        "Candidates",
        CandidatesView {
            schema: "tollgate.candidates/1".into(),
            version: 1,
            counting_from_us: 1,
            configured: vec!["api.search".into()],
            candidates: vec![candidate],
            partitions_missing: vec![7],
        },
    );
}

#[test]
fn amendments_and_faults_are_as_described() {
    check(
        "AmendmentDone",
        AmendmentView {
            schema: "tollgate.amendment/1".into(),
            amendment: "lift".to_owned(),
            version: 2,
            expected: 1,
            done: true,
            in_force: true,
        },
    );
    let fault = FaultView {
        schema: "tollgate.error/1".into(),
        error: "not from a page".to_owned(),
        code: Some("forbidden".to_owned()),
    };
    check("Fault", &fault);
    let of_others = FaultView {
        schema: "tollgate.error/1".into(),
        error: "no such path".to_owned(),
        code: None,
    };
    // Those faults have no code.
    let of_others = serde_json::to_value(of_others).expect("JSON");
    let required = SHOWN["components"]["schemas"]["Fault"]["required"].as_array();
    let required = required.into_iter().flatten();
    let names: Vec<&str> = required.filter_map(Value::as_str).collect();
    assert_eq!(names, ["schema", "error"]);
    assert!(names.iter().all(|name| of_others[name].is_string()));
}
