//! Lists of names in public limits: bounded, and left out if empty.

use rmp::encode;

use super::*;

/// A list of names, as it is encoded.
fn names<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode::write_array_len(&mut bytes, names.len() as u32).expect("memory");
    for name in names {
        encode::write_str(&mut bytes, name).expect("memory");
    }
    bytes
}

#[test]
fn closed_domains_are_written_by_name_and_left_out_if_none() {
    let public = Public {
        kind: Kind::Rate,
        closed: ["acme", "globex"].map(Box::from).into(),
        ..Public::default()
    };
    let written = Map::of(&named::message(0, &public));
    assert_eq!(public_of(&written), Ok(public.clone()));
    let (name, value) = written.0.last().expect("a field");
    let closed = names(["acme", "globex"].into_iter());
    assert_eq!(
        (&**name, value),
        ("closed", &closed),
        "after all older fields"
    );
    // The release before this one writes no such field, and skips it.
    let open = Public {
        closed: Box::default(),
        ..public
    };
    assert_eq!(Map::of(&named::message(0, &open)).0.len(), 2);
    assert_eq!(public_of(&written.without("closed")), Ok(open));
    // Only what is limited has closed domains.
    let snapshot = FromAggregator::decode(&golden_bytes("aggregator/snapshot"));
    for kind in [
        Kind::Rate,
        Kind::Copies,
        Kind::Descriptors,
        Kind::Unconfigured,
    ] {
        let Ok(FromAggregator::Snapshot(mut of_kind)) = snapshot.clone() else {
            panic!("a snapshot");
        };
        of_kind.topics[0].public = Public {
            kind,
            closed: ["acme"].map(Box::from).into(),
            ..Public::default()
        };
        let mut writer = Writer::new();
        FromAggregator::Snapshot(of_kind).encode(&mut writer);
        let Ok(FromAggregator::Snapshot(read)) = FromAggregator::decode(writer.as_slice()) else {
            panic!("a snapshot");
        };
        let closed = &read.topics[0].public.closed;
        let has_domains = matches!(kind, Kind::Rate | Kind::Copies);
        assert_eq!(closed.len(), usize::from(has_domains), "{kind:?}");
    }
}

#[test]
fn networks_are_written_by_name_and_what_is_none_is_left_out() {
    let network = |text: &str, until: Option<u64>| PublicNetwork {
        network: text.parse().expect("a network"),
        banned_until: until.map(Timestamp::from_micros),
    };
    let networks = [
        network("10.0.0.0/8", None),
        network("2001:db8::/32", Some(7)),
    ];
    let public = Public {
        kind: Kind::Copies,
        copies: Some(PublicCopies::default()),
        networks: PublicNetworks::of(networks.into_iter()),
        ..Public::default()
    };
    let written = Map::of(&named::message(0, &public));
    assert_eq!(written.0.last().map(|(name, _)| &**name), Some("networks"));
    assert_eq!(public_of(&written), Ok(public));
    let read = |list: &[NetworkOfLater]| {
        let bytes = rmp_serde::to_vec_named(list).expect("memory");
        public_of(&Map(Vec::new()).with("networks", &bytes)).map(|public| public.networks)
    };
    let of_later = |network, banned_until| NetworkOfLater {
        network,
        banned_until,
        later: true,
    };
    let listed = read(&[
        of_later("2001:db8::/32", Some(7)),
        of_later("acme", None),
        of_later("10.0.0.1/8", None),
        of_later("10.0.0.0/8", None),
        of_later("10.0.0.0/8", Some(5)),
    ]);
    assert!(listed.is_ok_and(|listed| listed.iter().eq(&networks)));
    let most = vec![of_later("10.0.0.0/8", None); NETWORKS_MAX];
    assert_eq!(read(&most).map(|listed| listed.iter().len()), Ok(1));
    assert!(read(&[&*most, &[of_later("10.0.0.0/8", None)]].concat()).is_err());
    assert!(read(&[of_later("", None)]).is_err());
}

#[test]
fn an_allow_list_is_read_whole_or_not_at_all() {
    let public = Public {
        kind: Kind::Rate,
        allowed: PublicAllowed::of(["globex", "10.0.0.0/8", "acme"].into_iter()),
        ..Public::default()
    };
    let written = Map::of(&named::message(0, &public));
    let (name, value) = written.0.last().expect("a field");
    let listed = names(["10.0.0.0/8", "acme", "globex"].into_iter());
    assert_eq!((&**name, value), ("allowed", &listed));
    assert_eq!(public_of(&written), Ok(public));
    let read = |list: &[u8]| public_of(&written.with("allowed", list)).map(|public| public.allowed);
    // An empty list refuses everybody, and is another thing than no list.
    assert_eq!(
        read(&names([].into_iter())),
        Ok(PublicAllowed::of([].into_iter()))
    );
    assert_eq!(read(&[0xc0]), Ok(None));
    let many: Vec<String> = (0..50_000).map(|n| format!("tenant-{n}")).collect();
    assert_eq!(read(&names(many.iter().map(String::as_str))), Ok(None));
    assert!(read(&names([""].into_iter())).is_err());
    for kind in [Kind::Descriptors, Kind::Unconfigured] {
        let snapshot = FromAggregator::decode(&golden_bytes("aggregator/snapshot"));
        let Ok(FromAggregator::Snapshot(mut of_kind)) = snapshot else {
            panic!("a snapshot");
        };
        of_kind.topics[0].public = Public {
            kind,
            allowed: PublicAllowed::of([].into_iter()),
            ..Public::default()
        };
        let mut writer = Writer::new();
        FromAggregator::Snapshot(of_kind).encode(&mut writer);
        let Ok(FromAggregator::Snapshot(read)) = FromAggregator::decode(writer.as_slice()) else {
            panic!("a snapshot");
        };
        assert_eq!(read.topics[0].public.allowed, None);
    }
}

/// A network in public limits as a later release may write it.
#[derive(Clone, serde::Serialize)]
struct NetworkOfLater {
    network: &'static str,
    banned_until: Option<u64>,
    later: bool,
}

#[test]
fn closed_domains_beyond_the_bound_cost_an_agent_nothing() {
    let rate = |closed: &[u8]| {
        let map = Map::of(&named::message(
            0,
            &Public {
                kind: Kind::Rate,
                ..Public::default()
            },
        ));
        public_of(&map.with("closed", closed))
    };
    let all: Vec<String> = (0..50_000).map(|n| format!("tenant-{n:06}")).collect();
    let read = rate(&names(all.iter().map(|name| &**name))).expect("public limits");
    // Each has thirteen bytes, and counts sixteen more.
    assert_eq!(read.closed.len(), CLOSED_BYTES_MAX / 29);
    assert!(
        read.closed
            .iter()
            .zip(&all)
            .all(|(one, other)| **one == **other)
    );
    // One-letter names, in no order, and the same again.
    let read = rate(&names(["b"; 50_000].into_iter())).expect("public limits");
    assert_eq!(read.closed.len(), CLOSED_BYTES_MAX / 17);
    let long = "x".repeat(257);
    for bad in ["", &*long] {
        let fault = rate(&names(["a", bad].into_iter())).expect_err("a name");
        assert!(fault.to_string().contains("closed[1]"), "{fault}");
    }
    // A head that announces more names than there are bytes.
    assert!(rate(&[0xdd, 0xff, 0xff, 0xff, 0xff]).is_err());
    assert!(rate(&[0xa1, b'a']).is_err());
}
