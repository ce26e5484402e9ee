//! Promises of amendments in messages: their bytes never change, what was written can be read, and
//! anything else is refused.

use proptest::prelude::*;
use tollgate_shared::holdings::TransferId;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::{Act, Amendment};
use tollgate_shared::wire::set_rows::{HEAD_BYTES_MAX, ROWS_BYTES_MAX, ROWS_MAX, SetRow, bytes_of};
use tollgate_shared::wire::{FieldFault, Writer};

fn bytes(act: &Act) -> Vec<u8> {
    let mut writer = Writer::new();
    Amendment {
        push: 5,
        expected: 3,
        who: "ann",
        why: "bug",
        act: act.clone(),
    }
    .encode(&mut writer);
    writer.as_slice().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The common beginning of all of them, after version, kind and the head of the array.
const COMMON: &str = "c4100000000000000000000000000000000503a3616e6ea3627567";

fn nothing(domain: &str) -> SetRow {
    SetRow {
        resource: "r.a".into(),
        domain: domain.into(),
        rate: None,
        hard: None,
        limit: None,
    }
}

fn rate(domain: &str, rate: &str) -> SetRow {
    SetRow {
        rate: Some(rate.into()),
        ..nothing(domain)
    }
}

fn copies(domain: &str, limit: u64) -> SetRow {
    SetRow {
        limit: Some(limit),
        ..nothing(domain)
    }
}

fn golden() -> Vec<(Act, &'static str, &'static str)> {
    let (resource, domain) = (|| Box::<str>::from("r.a"), || Box::<str>::from("d"));
    vec![
        (
            Act::Reset {
                resource: resource(),
                domain: domain(),
            },
            "97",
            "01a3722e61a164",
        ),
        (
            Act::Pardon {
                resource: resource(),
                domain: domain(),
            },
            "97",
            "02a3722e61a164",
        ),
        (
            Act::Refund {
                resource: resource(),
                domain: domain(),
                hits: 300,
            },
            "98",
            "03a3722e61a164cd012c",
        ),
        (
            Act::Ban {
                resource: Some(resource()),
                domain: domain(),
                until: Timestamp::from_micros(7),
            },
            "98",
            "04a3722e61a16407",
        ),
        (
            Act::Ban {
                resource: None,
                domain: domain(),
                until: Timestamp::MAX,
            },
            "98",
            "04c0a164cfffffffffffffffff",
        ),
        (
            Act::Unban {
                resource: None,
                domain: domain(),
            },
            "97",
            "05c0a164",
        ),
        (
            Act::ReleaseHold {
                resource: resource(),
                agent: "web".into(),
                epoch: 9,
                number: 17,
            },
            "99",
            "06a3722e61a3776562c4100000000000000000000000000000000911",
        ),
        (
            Act::ReleaseHolds {
                resource: resource(),
                domain: Some(domain()),
                agent: None,
            },
            "98",
            "07a3722e61a164c0",
        ),
        (
            Act::Switch {
                namespace: "r".into(),
                ignore_configured: Some(true),
                allow_unconfigured: None,
            },
            "98",
            "08a172c3c0",
        ),
        (
            Act::Set(SetRow {
                resource: resource(),
                domain: domain(),
                rate: Some("7/s".into()),
                hard: None,
                limit: None,
            }),
            "9a",
            "09a3722e61a164a3372f73c0c0",
        ),
        (
            Act::Set(SetRow {
                resource: resource(),
                domain: domain(),
                rate: None,
                hard: None,
                limit: Some(50),
            }),
            "9a",
            "09a3722e61a164c0c032",
        ),
        (
            Act::ReleaseTransfer {
                resource: resource(),
                transfer: TransferId(0xab),
            },
            "97",
            "0aa3722e61c410000000000000000000000000000000ab",
        ),
        (
            Act::SetMany(vec![rate("d", "7/s"), nothing("e"), copies("d", 300)]),
            "96",
            "0b9395a3722e61a164a3372f73c0c095a3722e61a165c0c0c095a3722e61a164c0c0cd012c",
        ),
        (
            Act::SetMany(vec![nothing("d")]),
            "96",
            "0b9195a3722e61a164c0c0c0",
        ),
    ]
}

#[test]
fn golden_bytes_are_read_and_written_for_ever() {
    for (act, array, arguments) in golden() {
        let expected = format!("010a{array}{COMMON}{arguments}");
        let bytes = bytes(&act);
        assert_eq!(hex(&bytes), expected, "{act:?}");
        let read = Amendment::decode(&bytes).expect("it is whole");
        assert_eq!((read.push, read.expected), (5, 3));
        assert_eq!((read.who, read.why, read.act), ("ann", "bug", act));
    }
}

#[test]
fn cut_or_long_amendments_are_refused_with_their_place() {
    for (act, ..) in golden() {
        let mut bytes = bytes(&act);
        for cut in 0..bytes.len() {
            let error = Amendment::decode(&bytes[..cut]).expect_err("cut");
            assert!(error.at <= cut, "{act:?} cut at {cut}: {error}");
        }
        bytes.push(0);
        assert!(Amendment::decode(&bytes).is_err(), "a byte behind the end");
    }
}

#[test]
fn an_act_that_is_not_known_or_has_another_number_of_elements_is_refused() {
    let reset = bytes(&golden()[0].0);
    let mut other = reset.clone();
    let act = 3 + COMMON.len() / 2;
    other[act] = 99;
    let error = Amendment::decode(&other).expect_err("act 99");
    assert_eq!(error.fault, FieldFault::Kind { found: 99 });
    let mut longer = reset;
    longer[2] = 0x98;
    let error = Amendment::decode(&longer).expect_err("8 elements");
    assert_eq!(error.field, "amendment");
    let mut nothing = bytes(&golden()[2].0);
    let len = nothing.len();
    nothing.splice(len - 3.., [0]);
    let error = Amendment::decode(&nothing).expect_err("0 hits");
    assert_eq!(error.field, "hits");
}

#[test]
fn rows_of_one_record_are_at_least_one_and_bounded_in_number_and_in_bytes() {
    let read = |rows: &[SetRow]| {
        let bytes = bytes(&Act::SetMany(rows.to_vec()));
        Amendment::decode(&bytes).map(|read| read.act)
    };
    let refused = |rows: &[SetRow]| {
        let error = read(rows).expect_err("out of bounds");
        assert_eq!((error.field, error.at), ("rows", 3 + COMMON.len() / 2 + 1));
        match error.fault {
            FieldFault::Length { found, .. } => found as usize,
            fault => panic!("{fault}"),
        }
    };
    let fit = |rows: &[SetRow]| {
        let bytes: usize = rows.iter().map(bytes_of).sum();
        rows.len() <= ROWS_MAX && HEAD_BYTES_MAX + bytes <= ROWS_BYTES_MAX
    };
    assert_eq!(refused(&[]), 0);
    let mut rows = vec![rate("d", "7/s"); ROWS_MAX];
    assert!(fit(&rows) && read(&rows).is_ok());
    rows.push(nothing("d"));
    assert!(!fit(&rows) && refused(&rows) == ROWS_MAX + 1);
    // The head of the array has 3 bytes, and a row 10 in addition to a domain of more than 31.
    let mut rows = vec![nothing(&"d".repeat(250)); (ROWS_BYTES_MAX - 3) / 260];
    let room = (ROWS_BYTES_MAX - 3) % 260 - 10;
    rows.push(nothing(&"d".repeat(room)));
    assert!(fit(&rows) && read(&rows).is_ok());
    rows.pop();
    rows.push(nothing(&"d".repeat(room + 1)));
    assert!(!fit(&rows) && refused(&rows) == ROWS_BYTES_MAX + 1);
}

#[test]
fn a_row_of_another_number_of_elements_is_refused() {
    let mut other = bytes(&Act::SetMany(vec![nothing("d")]));
    let row = 3 + COMMON.len() / 2 + 2;
    assert_eq!(other[row], 0x95);
    other[row] = 0x94;
    let error = Amendment::decode(&other).expect_err("4 elements");
    assert_eq!((error.field, error.at), ("row", row));
}

proptest! {
    #[test]
    fn decoded_amendments_read_back_equal(mut tail in prop::collection::vec(any::<u8>(), 0..60)) {
        tail.splice(0..0, [1, 10]);
        if let Ok(read) = Amendment::decode(&tail) {
            let mut writer = Writer::new();
            read.encode(&mut writer);
            prop_assert_eq!(Amendment::decode(writer.as_slice()), Ok(read));
        }
    }
}
