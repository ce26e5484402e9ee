//! The book, record by record.

use super::*;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::set_rows::SetRow;

const ONE: &str = "version = 1\nrules = 2\n[rate.\"a\"]\nrate = \"1/s\"\n";
const TWO: &str = "version = 1\nrules = 2\n[rate.\"a\"]\nrate = \"2/s\"\n";

fn pushed(push: u128, expected: u64, text: &str) -> LimitsDocument<'_> {
    LimitsDocument {
        push,
        expected,
        who: "w",
        why: "y",
        at: Timestamp::ZERO,
        text,
    }
}

fn why(entered: Entered) -> Void {
    match entered {
        Entered::Void { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_version_is_the_offset_of_its_record_and_the_first_one_wins() {
    let mut book = LimitsBook::default();
    let two = book.enter(2, &pushed(2, 0, TWO));
    assert!(matches!(two, Entered::Version { push: 2, version } if version.number == 2));
    let lost = book.enter(3, &pushed(1, 0, ONE));
    assert_eq!(
        why(lost),
        Void::Conflict {
            expected: 0,
            found: 2
        }
    );
    assert_eq!(book.latest_number(), 2);
    let latest = book.latest().unwrap();
    assert_eq!(&*latest.text, TWO);
    assert_eq!(latest.digest, digest(TWO.as_bytes()));
}

#[test]
fn an_unreadable_document_is_void() {
    let mut book = LimitsBook::default();
    assert_eq!(why(book.enter(0, &pushed(1, 0, ONE))), Void::Zero);
    let bad = "version = 1\nrats = 1\n";
    let faults = why(book.enter(3, &pushed(4, 0, bad)));
    assert!(matches!(faults, Void::Faults(text) if text.contains("rats")));
    assert_eq!(book.latest_number(), 0);
}

#[test]
fn versions_are_found_in_order_and_forgotten_below() {
    let mut book = LimitsBook::default();
    for (offset, expected, text) in [(1, 0, ONE), (2, 1, TWO), (3, 2, ONE)] {
        book.enter(offset, &pushed(u128::from(offset), expected, text));
    }
    let after = |book: &LimitsBook, number| book.after(number).map(|version| version.number);
    assert_eq!(
        [0, 1, 2, 3].map(|n| after(&book, n)),
        [Some(1), Some(2), Some(3), None]
    );
    book.forget_below(3);
    assert_eq!([0, 3].map(|n| after(&book, n)), [Some(3), None]);
}

#[test]
fn a_document_of_a_later_build_cannot_be_followed() {
    let mut book = LimitsBook::default();
    let later = "version = 1\nrules = 3\n";
    let entered = book.enter(1, &pushed(1, 0, later));
    assert!(matches!(entered, Entered::Newer { number: 1, .. }));
    assert_eq!(book.newer_between(0, 5), Some(1));
    assert!(book.newer_between(1, 5).is_none() && book.latest().is_none());
    // The next push has to expect it.
    let lost = book.enter(2, &pushed(2, 0, ONE));
    assert_eq!(
        why(lost),
        Void::Conflict {
            expected: 0,
            found: 1
        }
    );
}

#[test]
fn what_is_no_record_at_all_is_no_version() {
    let mut book = LimitsBook::default();
    let mut read = |bytes: &[u8]| book.read(1, Timestamp::ZERO, bytes);
    for junk in [&b"{\"x\":1}"[..], b"junk", &[1, 34], &[1, 34, 0xc0], b""] {
        assert!(read(junk).is_err(), "{junk:?}");
    }
    // A record of an unknown kind, which nobody may skip.
    let newer = read(&[1, 34, 0x90]).expect("a record");
    assert!(matches!(newer, Some(Entered::Newer { number: 1, .. })));
}

fn amendment(offset: u64, push: u128, expected: u64, act: Act) -> (u64, Timestamp, Vec<u8>) {
    let mut writer = tollgate_shared::wire::Writer::new();
    Amendment {
        push,
        expected,
        who: "ann",
        why: "bug",
        act,
    }
    .encode(&mut writer);
    (
        offset,
        Timestamp::from_micros(offset),
        writer.as_slice().to_vec(),
    )
}

fn read(
    book: &mut LimitsBook,
    (offset, appended, bytes): &(u64, Timestamp, Vec<u8>),
) -> Result<Option<Entered>, DecodeError> {
    book.read(*offset, *appended, bytes)
}

fn reset() -> Act {
    Act::Reset {
        resource: "a".into(),
        domain: "d".into(),
    }
}

fn kill(on: Option<bool>) -> Act {
    Act::Switch {
        namespace: "a".into(),
        ignore_configured: on,
        allow_unconfigured: None,
    }
}

#[test]
fn an_amendment_is_a_version_over_the_document_that_it_expects() {
    let mut book = LimitsBook::default();
    let entered = read(&mut book, &amendment(1, 1, 0, reset()))
        .unwrap()
        .unwrap();
    assert_eq!(why(entered), Void::Nothing);
    book.enter(2, &pushed(2, 0, ONE));
    let record = amendment(3, 3, 2, reset());
    let entered = read(&mut book, &record).unwrap().unwrap();
    let Entered::Version { push: 3, version } = entered else {
        panic!("{entered:?}");
    };
    assert_eq!((version.number, &*version.text), (3, ONE));
    assert_eq!(version.limits_of, 2, "a reset leaves limits as they are");
    assert_eq!(version.digest, digest(&record.2));
    assert_eq!(version.text.digest(), digest(ONE.as_bytes()));
    let made = version.made.as_ref().unwrap();
    assert_eq!((&*made.who, made.at.as_micros()), ("ann", 3));
    // A push that did not expect it comes too late, be it a document or an amendment.
    let conflict = Void::Conflict {
        expected: 2,
        found: 3,
    };
    let late = read(&mut book, &amendment(4, 4, 2, reset()))
        .unwrap()
        .unwrap();
    assert_eq!(why(late), conflict);
    assert_eq!(why(book.enter(5, &pushed(5, 2, TWO))), conflict);
    assert_eq!(book.latest_number(), 3);
    let switched = amendment(6, 6, 3, kill(Some(true)));
    read(&mut book, &switched).expect("it is read");
    read(&mut book, &amendment(7, 7, 6, reset())).expect("it is read");
    let limits_of = book.versions().map(|version| version.limits_of);
    assert_eq!(limits_of.collect::<Vec<_>>(), [2, 2, 6, 6]);
}

#[test]
fn of_an_applied_amendment_only_the_act_is_kept() {
    let mut book = LimitsBook::default();
    book.enter(2, &pushed(2, 0, ONE));
    read(&mut book, &amendment(3, 3, 2, reset())).unwrap();
    let digest = book.get(3).unwrap().digest;
    book.keep_act_alone(2);
    book.keep_act_alone(3);
    book.keep_act_alone(4);
    let version = book.get(3).unwrap();
    let made = version.made.as_ref().unwrap();
    assert_eq!((&*made.who, &*made.why, &*made.act), ("", "", &reset()));
    assert_eq!((version.digest, &*version.text), (digest, ONE));
}

#[test]
fn a_switch_outlasts_documents_until_revoked() {
    let mut book = LimitsBook::default();
    let ignored = |book: &LimitsBook| {
        let limits = &book.latest().unwrap().limits;
        limits.namespace_of("a").ignore_configured
    };
    book.enter(1, &pushed(1, 0, ONE));
    assert!(!ignored(&book));
    read(&mut book, &amendment(2, 2, 1, kill(Some(true)))).unwrap();
    assert!(ignored(&book));
    book.enter(3, &pushed(3, 2, TWO));
    assert!(ignored(&book) && &*book.latest().unwrap().text == TWO);
    read(&mut book, &amendment(4, 4, 3, kill(None))).unwrap();
    assert!(!ignored(&book));
}

#[test]
fn an_amendment_of_a_later_build_cannot_be_followed() {
    let mut book = LimitsBook::default();
    book.enter(1, &pushed(1, 0, ONE));
    let mut record = amendment(2, 2, 1, reset());
    let act = record.2.iter().rposition(|byte| *byte == 1).unwrap();
    let mut bytes = record.2.clone();
    bytes[act] = 99;
    record.2 = bytes;
    let entered = read(&mut book, &record).unwrap().unwrap();
    assert!(
        matches!(entered, Entered::Newer { number: 2, .. }),
        "{entered:?}"
    );
    record.2 = vec![1, 0x85, 0xc0];
    assert!(
        read(&mut book, &record).unwrap().is_none(),
        "it may be skipped"
    );
    record.2 = vec![1, 10, 0xc0];
    assert!(read(&mut book, &record).is_err());
    assert_eq!(book.latest_number(), 2);
}

fn row(domain: &str, rate: Option<&str>) -> SetRow {
    SetRow {
        resource: "a".into(),
        domain: domain.into(),
        rate: rate.map(Into::into),
        hard: None,
        limit: None,
    }
}

fn set(domain: &str, rate: Option<&str>) -> Act {
    Act::Set(row(domain, rate))
}

fn limit_of(book: &LimitsBook, domain: &str) -> u64 {
    let latest = book.latest().unwrap();
    latest.limits.class_of("a", domain).unwrap().windows[0].limit
}

#[test]
fn a_row_stands_beside_every_document_until_it_is_removed() {
    let mut book = LimitsBook::default();
    let early = read(&mut book, &amendment(1, 1, 0, set("d", Some("9/s")))).unwrap();
    assert_eq!(why(early.unwrap()), Void::Nothing);
    book.enter(2, &pushed(1, 0, ONE));
    read(&mut book, &amendment(3, 2, 2, set("d", Some("9/s")))).unwrap();
    let late = read(&mut book, &amendment(4, 3, 2, set("d", Some("8/s")))).unwrap();
    assert!(matches!(
        why(late.unwrap()),
        Void::Conflict {
            expected: 2,
            found: 3
        }
    ));
    for bad in [set("d", Some("fast")), set("nobody", None)] {
        let bad = read(&mut book, &amendment(5, 4, 3, bad)).unwrap();
        assert!(matches!(why(bad.unwrap()), Void::Change(_)));
    }
    assert_eq!(
        (
            book.latest_number(),
            limit_of(&book, "d"),
            limit_of(&book, "e")
        ),
        (3, 9, 1)
    );
    assert_eq!(&*book.latest().unwrap().text, ONE);
    // Switches over it stay, and later amendments apply to it.
    read(&mut book, &amendment(6, 5, 3, kill(Some(true)))).unwrap();
    read(&mut book, &amendment(7, 6, 6, set("e", Some("5/s")))).unwrap();
    let limits = &book.latest().unwrap().limits;
    assert!(limits.namespace_of("a").ignore_configured);
    assert_eq!((limit_of(&book, "d"), limit_of(&book, "e")), (9, 5));
    read(&mut book, &amendment(8, 7, 7, set("d", None))).unwrap();
    assert_eq!((book.latest_number(), limit_of(&book, "d")), (8, 1));
    // Another document keeps the row; one without the resource drops it.
    book.enter(9, &pushed(9, 8, TWO));
    assert_eq!((limit_of(&book, "d"), limit_of(&book, "e")), (2, 5));
    let other = "[rate.b]\nrate = \"1/s\"\n";
    book.enter(10, &pushed(10, 9, other));
    assert_eq!(book.latest().unwrap().limits.rows_len(), 0);
    book.enter(11, &pushed(11, 10, TWO));
    assert_eq!((book.latest_number(), limit_of(&book, "e")), (11, 2));
}

#[test]
fn removing_a_domains_row_restores_its_plan() {
    let document =
        "[plans]\ngold = [\"d\"]\n[rate.a]\nrate = \"1/s\"\n[rate.a.plans.gold]\nrate = \"7/s\"\n";
    let mut book = LimitsBook::default();
    book.enter(1, &pushed(1, 0, document));
    assert_eq!(limit_of(&book, "d"), 7);
    read(&mut book, &amendment(2, 2, 1, set("d", Some("9/s")))).unwrap();
    assert_eq!(limit_of(&book, "d"), 9);
    read(&mut book, &amendment(3, 3, 2, set("d", None))).unwrap();
    assert_eq!((book.latest_number(), limit_of(&book, "d")), (3, 7));
    let rows = vec![row("d", Some("9/s")), row("e", Some("4/s")), row("d", None)];
    read(&mut book, &amendment(4, 4, 3, Act::SetMany(rows))).unwrap();
    let limits = (limit_of(&book, "d"), limit_of(&book, "e"));
    assert_eq!((book.latest_number(), limits), (4, (7, 4)));
}

#[test]
fn one_record_changes_many_domains_in_the_order_of_its_rows() {
    let mut book = LimitsBook::default();
    book.enter(1, &pushed(1, 0, ONE));
    read(&mut book, &amendment(2, 2, 1, set("gone", Some("3/s")))).unwrap();
    let hard = SetRow {
        hard: Some("20/s".into()),
        ..row("d", None)
    };
    let rows = vec![
        row("d", Some("9/s")),
        row("e", Some("5/s")),
        hard,
        row("gone", None),
        row("e", Some("6/s")),
        row("f", Some("7/s")),
        row("f", None),
    ];
    let one_by_one = rows.clone();
    let record = amendment(3, 3, 2, Act::SetMany(rows));
    let entered = read(&mut book, &record).unwrap().unwrap();
    let Entered::Version { push: 3, version } = entered else {
        panic!("{entered:?}");
    };
    assert_eq!((version.number, version.digest), (3, digest(&record.2)));
    let limits = ["d", "e", "gone", "f"].map(|domain| limit_of(&book, domain));
    assert_eq!(limits, [9, 6, 1, 1]);
    assert_eq!(version.limits.class_of("a", "d").unwrap().hard, Some(20));
    // The result is the same as if the rows were set one after the other.
    let mut other = LimitsBook::default();
    other.enter(1, &pushed(1, 0, ONE));
    read(&mut other, &amendment(2, 2, 1, set("gone", Some("3/s")))).unwrap();
    for (number, row) in (3..).zip(one_by_one) {
        let record = amendment(number, 3, number - 1, Act::Set(row));
        let entered = read(&mut other, &record).unwrap();
        assert!(matches!(entered, Some(Entered::Version { .. })));
    }
    let other = other.latest().unwrap();
    assert_eq!(
        other.limits.normalised_text(),
        version.limits.normalised_text()
    );
    assert!(other.limits.rows().eq(version.limits.rows()));
}

#[test]
fn a_row_that_cannot_be_changed_voids_all_of_them() {
    let plans =
        "[plans]\ngold = [\"g\"]\n[rate.a]\nrate = \"1/s\"\n[rate.a.plans.gold]\nrate = \"7/s\"\n";
    for document in [ONE, plans] {
        let mut book = LimitsBook::default();
        book.enter(1, &pushed(1, 0, document));
        let nobody = SetRow {
            resource: "nobody".into(),
            ..row("d", Some("9/s"))
        };
        for bad in [nobody, row("e", Some("often")), row("e", None)] {
            let rows = vec![row("d", Some("9/s")), bad, row("f", Some("9/s"))];
            let record = amendment(2, 2, 1, Act::SetMany(rows));
            let entered = read(&mut book, &record).unwrap().unwrap();
            assert!(matches!(why(entered), Void::Change(_)));
            assert_eq!((book.latest_number(), limit_of(&book, "d")), (1, 1));
            assert_eq!(&*book.latest().unwrap().text, document);
        }
        // And the next amendment applies to that state.
        let record = amendment(3, 3, 1, set("f", Some("2/s")));
        read(&mut book, &record).unwrap();
        let limits = ["d", "e", "f"].map(|domain| limit_of(&book, domain));
        assert_eq!((book.latest_number(), limits), (3, [1, 1, 2]));
    }
}

#[test]
fn a_document_that_rows_cannot_stand_beside_is_void() {
    let document =
        |v4: u8| format!("[rate.a]\nrate = \"1/s\"\naddresses = {{ v4 = {v4}, v6 = 64 }}\n");
    let (narrow, wide) = (document(32), document(24));
    let mut book = LimitsBook::default();
    book.enter(1, &pushed(1, 0, &narrow));
    read(
        &mut book,
        &amendment(2, 2, 1, set("10.0.0.0/28", Some("9/s"))),
    )
    .unwrap();
    let before = book.latest().unwrap().limits.normalised_text();
    let entered = book.enter(3, &pushed(3, 2, &wide));
    assert!(matches!(why(entered), Void::Change(why) if why.contains("10.0.0.0/28")));
    let latest = book.latest().unwrap();
    assert_eq!((latest.number, &*latest.text), (2, &*narrow));
    assert_eq!(latest.limits.normalised_text(), before);
}
