//! Tests of names with line ends: they write no line of a report.

use tollgate_engine::engine::DIGEST_FORM;
use tollgate_replay::audit::audit;
use tollgate_replay::work::Progress;
use tollgate_shared::mac::MacKey;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{Hit, Sender, write_hits};
use tollgate_shared::wire::record::RecordPen;
use tollgate_shared::wire::state_digest::StateDigest;

use super::exported::task;
use super::log::{MemoryLog, at};
use super::{THREE, V1};

const FORGED: &str = "web\nequal: all is well";

fn assert_is_on_a_line(text: &str) {
    assert!(text.contains("web\\nequal"), "{text}");
    assert!(!text.contains("\nequal: all"), "{text}");
}

#[test]
fn agents_write_no_line_of_an_explanation() {
    let mut log = MemoryLog::new(THREE);
    log.hits(1_000, "alpha", V1, 3);
    log.hits(1_100, FORGED, V1, 1);
    assert_is_on_a_line(&log.explained(V1, Some(1_100)).to_string());

    let limits = THREE.replace("rate = \"3/s\"", "global = \"3/s\"");
    let mut log = MemoryLog::new(&limits);
    log.hits(1_000, FORGED, V1, 3);
    log.totals(1_010, V1.0, 3);
    assert_is_on_a_line(&log.explained_everybody(V1.0, 1_500).to_string());
}

#[test]
fn agents_and_aggregators_write_no_line_of_an_audit() {
    let mut log = MemoryLog::new(THREE);
    log.tick(3_600_000);
    let sender = Sender {
        agent: FORGED,
        epoch: 7,
        sequence: 1,
        sent: at(0),
    };
    let mut writer = Writer::new();
    let hit = Hit::one(0, V1.1, at(0), 1);
    write_hits(
        &mut writer,
        &sender,
        &[V1.0],
        [hit].into_iter(),
        [].into_iter(),
    );
    log.apply(3_600_100, writer.as_slice().to_vec());
    let audited = |log: &MemoryLog| {
        let report = audit(log, &task(None), &Progress::default());
        report.expect("a report").to_string()
    };
    assert_is_on_a_line(&audited(&log));

    let mut log = MemoryLog::new(THREE);
    let noted = log.tick(20_000);
    let stated = StateDigest {
        offset: noted.position.offset,
        rules: 2,
        form: DIGEST_FORM,
        digest: 0,
        group: "a",
        aggregator: FORGED,
        instance: 9,
    };
    let stated = RecordPen::new(&MacKey::UNPROTECTED, 0).state_digest(&stated);
    log.apply(20_100, stated);
    assert_is_on_a_line(&audited(&log));
}
