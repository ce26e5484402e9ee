//! Tests of `tollgate audit` with state digests in the log: each is compared with the state that the replay has there.

use std::sync::Arc;

use tollgate_engine::engine::DIGEST_FORM;
use tollgate_log::{Delivered, Stream};
use tollgate_replay::export::ExportSource;
use tollgate_replay::replay::Replay;
use tollgate_replay::source::limits_of;
use tollgate_shared::keyring::Keyring;
use tollgate_shared::mac::MacKey;
use tollgate_shared::wire::record::RecordPen;
use tollgate_shared::wire::state_digest::StateDigest;

use super::{PARTITIONS, audit, kinds, written};
use crate::support::export::{altered, of};

/// The first counted tick of a partition: its offset, the rules in force, and the replay's digest after it.
fn first_noted(source: &ExportSource, partition: u32, records: &[Delivered]) -> (u64, u32, u128) {
    let book = Arc::new(limits_of(source).unwrap());
    let mut replay = Replay::new(partition, PARTITIONS, Keyring::default(), book);
    for record in records {
        replay.apply(record, source).unwrap();
        if replay.engine().log_time().is_some() {
            let rules = u32::from(replay.engine().version().is_some());
            return (record.offset, rules, replay.engine().digest());
        }
    }
    panic!("no tick that counts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_state_digests_are_compared_with_the_replay() {
    let dir = written().await;
    let source = ExportSource::open(&dir.path().join("all")).unwrap();
    let partition = 2;
    // Of one aggregator the right digest, of another a different one, of a third a digest of an unknown form.
    let mut noted = (0, 0, 0);
    altered(dir.path(), "testified", |all| {
        let records = of(all, Stream::Hits, partition);
        noted = first_noted(&source, partition, records);
        let expected = [
            ("right", noted.2, DIGEST_FORM),
            ("wrong", noted.2 ^ 1, DIGEST_FORM),
            ("other", noted.2 ^ 1, DIGEST_FORM + 1),
        ];
        for (owner, digest, form) in expected {
            let state_digest = StateDigest {
                offset: noted.0,
                rules: noted.1,
                form,
                digest,
                group: "b",
                aggregator: owner,
                instance: 7,
            };
            let pen = RecordPen::new(&MacKey::UNPROTECTED, partition);
            let last = records.last().unwrap();
            records.push(Delivered {
                offset: last.offset + 1,
                appended: last.appended,
                bytes: pen.state_digest(&state_digest).into(),
            });
        }
    });
    let (exit, report) = audit(dir.path(), &["--export", "testified"]);
    assert_eq!(
        (exit, kinds(&report)),
        (1, vec!["state_digest"]),
        "{report:#}"
    );
    assert_eq!(report["state_digests_equal"], 1, "{report:#}");
    let wrong = &report["differences"][0];
    let place = (&wrong["partition"], &wrong["offset"]);
    assert_eq!(place, (&partition.into(), &noted.0.into()), "{wrong:#}");
    let text = wrong["text"].as_str().unwrap();
    for part in [
        "wrong of group b".to_owned(),
        format!("digest {:032x}", noted.2 ^ 1),
        format!("expected {:032x}", noted.2),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    let remarks = report["remarks"].as_array().unwrap();
    let other = remarks
        .iter()
        .find(|r| r["kind"] == "state_digests")
        .unwrap();
    assert_eq!(other["count"], 1, "{report:#}");
}
