//! Copies, from an agent's record to what is published and shown: verdicts on the agent's own topic,
//! denials and lifts on the resource's, the list of holds, and the same after a restart.

use tollgate_server::core::event::{Event, Peer, Request};
use tollgate_server::core::holds::{HoldFilter, HoldsPage, LOOK_MAX, STATES};
use tollgate_server::core::view::{DenialFilter, DenialsPart, Query, Reply};
use tollgate_shared::holdings::TransferId;
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::time::Span;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::holds::{HoldAction, HoldOp, write_holds};
use tollgate_shared::wire::link::FromAggregator;
use tollgate_shared::wire::public::Kind;
use tollgate_shared::wire::statement::{Cause, Scope, StatementKind};
use tollgate_shared::wire::verdict::HoldStatus;

use super::world::{PARTITIONS, World};

const LIMITS: &str = r#"
version = 1
rules = 2
[copies.sandbox]
limit = 2
groups.probation = { limit = 1, members = ["new"] }
[copies.gpu]
limit = 1
"#;

fn ops(world: &mut World, agent: &'static str, resource: &str, ops: &[(u64, HoldAction<'_>)]) {
    let partition = partition_of_resource(resource, PARTITIONS);
    let sender = world.sender(agent, partition);
    let ops = ops.iter().map(|(number, action)| HoldOp {
        resource: 0,
        number: *number,
        at: sender.sent,
        action: *action,
    });
    let mut writer = Writer::new();
    write_holds(&mut writer, &sender, &[resource], ops);
    world.agent_appends(partition, writer.as_slice().to_vec());
    world.settle();
}

const fn hold(domain: &str, copies: u32) -> HoldAction<'_> {
    HoldAction::Hold { domain, copies }
}

fn holds(world: &mut World, filter: HoldFilter) -> HoldsPage {
    match world.ask(Query::Holds(filter)) {
        Reply::Holds(view) => view,
        other => panic!("{other:?}"),
    }
}

fn all() -> HoldFilter {
    HoldFilter {
        limit: 100,
        ..HoldFilter::default()
    }
}

fn announced(world: &World) -> Vec<(String, String, bool)> {
    let statement = world.frames.iter().flat_map(|frame| {
        let resource = frame.resource.to_string();
        frame.statements.iter().map(move |statement| {
            let denied = match statement.statement.kind {
                StatementKind::Denied(denial) => {
                    assert_eq!(
                        (denial.cause, statement.remaining),
                        (Cause::Full, Span::MAX)
                    );
                    true
                }
                _ => false,
            };
            let scope = match &statement.statement.scope {
                Scope::Pair(domain) => domain.to_string(),
                Scope::Group(group) => format!("group {group}"),
                Scope::Resource => "all".to_owned(),
            };
            (resource.clone(), scope, denied)
        })
    });
    statement.collect()
}

#[test]
fn verdicts_go_to_their_agents_and_full_scopes_to_all() {
    let mut world = World::new(LIMITS);
    ops(&mut world, "web", "sandbox", &[(1, hold("acme", 2))]);
    ops(
        &mut world,
        "job",
        "sandbox",
        &[(1, hold("new", 1)), (2, hold("acme", 1))],
    );
    let verdicts: Vec<(&str, u128, Option<HoldStatus>)> = world
        .verdicts
        .iter()
        .flat_map(|frame| {
            frame
                .verdicts
                .iter()
                .map(|v| (&*frame.agent, v.epoch, v.status.clone()))
        })
        .collect();
    let counted = |number, copies, excess| {
        Some(HoldStatus {
            number,
            copies,
            excess,
            scope: (0 < excess).then(|| Scope::Pair("acme".into())),
            ..HoldStatus::default()
        })
    };
    assert_eq!(
        verdicts,
        [
            ("web", 1, counted(1, 2, 0)),
            ("job", 1, counted(1, 1, 0)),
            ("job", 1, counted(2, 1, 1)),
        ]
    );
    ops(
        &mut world,
        "web",
        "sandbox",
        &[(1, HoldAction::Release { copies: 2 })],
    );
    let sandbox = |scope: &str, denied| ("sandbox".to_owned(), scope.to_owned(), denied);
    let expected = [
        sandbox("acme", true),
        sandbox("group probation", true),
        sandbox("acme", false),
    ];
    assert_eq!(announced(&world), expected);
    let counters = world.counters();
    assert_eq!((counters.copies_taken, counters.copies_excess), (4, 1));
    assert_eq!((counters.copies_released, counters.verdicts), (2, 3));
}

#[test]
fn a_full_scope_is_in_heartbeats_views_and_snapshots() {
    let mut world = World::new(LIMITS);
    ops(&mut world, "web", "sandbox", &[(1, hold("new", 1))]);
    let from = world.frames.len();
    world.run_for(Span::from_secs(1));
    let heartbeats = world.frames[from..].iter();
    let heartbeats = heartbeats
        .filter(|frame| &*frame.resource == "sandbox")
        .count();
    assert!(4 <= heartbeats, "{heartbeats} within a lease of 2 s");
    let filter = DenialFilter {
        limit: 10,
        ..DenialFilter::default()
    };
    let Reply::Denials(DenialsPart { page, .. }) = world.ask(Query::Denials(filter)) else {
        panic!("denials")
    };
    let [denial] = &page.denials[..] else {
        panic!("{page:?}")
    };
    assert_eq!(
        (&*denial.scope, denial.group.as_deref()),
        ("group", Some("probation"))
    );
    assert_eq!(
        (denial.domain.as_deref(), &denial.cause),
        (None, &Cause::Full.into())
    );
    let filter = DenialFilter {
        resource: Some("gpu".to_owned()),
        domain: Some("acme".to_owned()),
        limit: 10,
        ..DenialFilter::default()
    };
    ops(&mut world, "web", "gpu", &[(2, hold("acme", 1))]);
    let Reply::Denials(DenialsPart { page, .. }) = world.ask(Query::Denials(filter)) else {
        panic!("denials")
    };
    assert_eq!(page.denials.len(), 1, "found by its domain");
    world.answers.clear();
    let request = Request::Ask {
        nonce: 1,
        resources: vec!["sandbox".into(), "gpu".into()],
    };
    let peer = Peer(bytes::Bytes::from_static(b"p"));
    world.step(Event::Agent { peer, request });
    world.settle();
    let Some(FromAggregator::Snapshot(snapshot)) = world.answers.last() else {
        panic!("{:?}", world.answers)
    };
    let [sandbox, gpu] = &snapshot.topics[..] else {
        panic!("{snapshot:?}")
    };
    assert_eq!((sandbox.statements.len(), gpu.statements.len()), (1, 1));
    assert_eq!(sandbox.public.kind, Kind::Copies);
    let copies = sandbox.public.copies.as_ref().expect("copies");
    assert_eq!((copies.limit, copies.groups.len()), (2, 1));
}

/// A transfer that stages one copy of `new`.
const STAGED: TransferId = TransferId(0xab);

/// A world with three holds, one after the other, and a copy of the last one staged.
fn with_holds() -> World {
    let mut world = World::new(LIMITS);
    ops(&mut world, "web", "sandbox", &[(1, hold("acme", 2))]);
    world.run_for(Span::from_millis(100));
    ops(&mut world, "job", "gpu", &[(1, hold("acme", 1))]);
    world.run_for(Span::from_millis(100));
    let (to, ttl) = (STAGED, Span::from_secs(60));
    let stage = HoldAction::Transfer { copies: 1, to, ttl };
    let of_new = [(2, hold("new", 2)), (2, stage)];
    ops(&mut world, "job", "sandbox", &of_new);
    world
}

#[test]
fn holds_are_listed_oldest_first() {
    let mut world = with_holds();
    let view = holds(&mut world, all());
    let rows = view.holds.iter().map(|of| {
        let (resource, domain, state) = (&*of.resource, &*of.domain, &*of.state);
        (resource, domain, state, of.agent.as_deref(), of.copies)
    });
    let (web, job) = (Some("web"), Some("job"));
    let expected = [
        ("sandbox", "acme", "held", web, 2),
        ("gpu", "acme", "held", job, 1),
        ("sandbox", "new", "staged", None, 1),
        ("sandbox", "new", "held", job, 1),
    ];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
    assert_eq!(view.holds[2].transfer, Some(STAGED.to_string()));
    assert_eq!(&*view.holds[3].groups, ["probation".into()]);
    let copies: Vec<u64> = view.resources.iter().map(|of| of.copies).collect();
    assert_eq!((copies, view.more), (vec![1, 4], false));
}

#[test]
fn holds_are_filtered() {
    let mut world = with_holds();
    type Field = fn(&mut HoldFilter) -> &mut Option<String>;
    let filters: [(Field, &str, usize); 5] = [
        (|of| &mut of.resource, "gpu", 1),
        (|of| &mut of.domain, "acme", 2),
        (|of| &mut of.agent, "job", 2),
        (|of| &mut of.group, "probation", 2),
        (|of| &mut of.domain, "nobody", 0),
    ];
    for (field, value, expected) in filters {
        let mut filter = all();
        *field(&mut filter) = Some(value.to_owned());
        let found = holds(&mut world, filter.clone()).holds.len();
        assert_eq!(found, expected, "{filter:?}");
    }
    for (state, expected) in STATES.into_iter().zip([3, 0, 1]) {
        let state = Some(state);
        let found = holds(&mut world, HoldFilter { state, ..all() }).holds;
        assert_eq!(found.len(), expected, "{state:?}");
        assert!(found.iter().all(|hold| Some(&*hold.state) == state));
    }
}

#[test]
fn pages_of_holds_are_the_list_in_its_order() {
    let mut world = with_holds();
    let view = holds(&mut world, all());
    let two = holds(&mut world, HoldFilter { limit: 2, ..all() });
    assert_eq!((two.holds.len(), two.more), (2, true));
    assert_eq!(two.holds[..], view.holds[..2]);
    for limit in 1..4 {
        let mut pages = Vec::new();
        let mut after = None;
        loop {
            let page = HoldFilter {
                after,
                limit,
                ..all()
            };
            let page = holds(&mut world, page);
            assert!(page.holds.len() <= limit && page.more == page.next.is_some());
            pages.extend(page.holds);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(pages, view.holds, "pages of {limit}");
    }
}

#[test]
fn a_query_of_holds_is_answered_in_bounded_slices() {
    let text = LIMITS.replace("limit = 2\n", "limit = 100000\n");
    let mut world = World::new(&text);
    let held = LOOK_MAX as u64 * 5 / 2;
    let all_held: Vec<(u64, HoldAction<'_>)> = (1..held).map(|n| (n, hold("acme", 1))).collect();
    for part in all_held.chunks(500) {
        ops(&mut world, "web", "sandbox", part);
    }
    ops(&mut world, "web", "sandbox", &[(held, hold("rare", 1))]);
    let (mut found, mut looks, mut after) = (Vec::new(), 0, None);
    loop {
        let rare = HoldFilter {
            domain: Some("rare".to_owned()),
            after,
            ..all()
        };
        let part = holds(&mut world, rare);
        looks += 1;
        found.extend(part.holds);
        after = part.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((looks, found.len()), (3, 1));
    assert_eq!(found[0].number, Some(held));
}

#[test]
fn a_silent_agent_is_gone_half_a_second_after_its_timeout() {
    let mut world = World::new(LIMITS);
    ops(&mut world, "web", "sandbox", &[(1, hold("acme", 2))]);
    world.run_for(Span::from_millis(1_400));
    assert_eq!(world.counters().agents_gone, 0);
    world.run_for(Span::from_millis(1_100));
    let counters = world.counters();
    assert_eq!((counters.agents_gone, counters.copies_back), (1, 2));
    let last = announced(&world).pop();
    assert_eq!(last, Some(("sandbox".to_owned(), "acme".to_owned(), false)));
    let view = holds(&mut world, all());
    assert_eq!(
        (&*view.holds[0].state, view.resources[0].copies),
        ("lost", 0)
    );
}

#[test]
fn a_silent_agent_without_holds_is_idle_and_not_gone() {
    let mut world = World::new(LIMITS);
    ops(&mut world, "web", "sandbox", &[(1, hold("acme", 2))]);
    let release = HoldAction::Release { copies: 2 };
    ops(
        &mut world,
        "job",
        "sandbox",
        &[(1, hold("beta", 2)), (1, release)],
    );
    world.run_for(Span::from_millis(2_500));
    let counters = world.counters();
    assert_eq!((counters.agents_gone, counters.agents_idle), (1, 1));
    assert_eq!(counters.copies_back, 2);
}

#[test]
fn a_restarted_core_announces_and_shows_the_same() {
    let mut world = World::new(LIMITS);
    ops(
        &mut world,
        "web",
        "sandbox",
        &[(1, hold("acme", 2)), (2, hold("new", 1))],
    );
    let view = holds(&mut world, all());
    let mut again = World::on(world.log.clone(), 2);
    again.settle();
    let shown = holds(&mut again, all());
    assert_eq!(shown.holds.len(), view.holds.len());
    assert_eq!(shown.resources, view.resources);
    again.run_for(Span::from_millis(600));
    let denied = announced(&again);
    assert_eq!(denied.len(), 2, "said once to everybody: {denied:?}");
}

#[test]
fn a_pair_of_copies_is_shown_in_the_partition_that_rules_it() {
    let mut world = World::new(LIMITS);
    let partition = partition_of_resource("sandbox", PARTITIONS);
    for n in 0..8 {
        let domain = format!("tenant-{n}");
        let pair = world.pair("sandbox", &domain);
        assert_eq!(pair.partition, partition, "{domain}");
        assert!(pair.limited_by_copies && !pair.configured, "{pair:?}");
    }
}
