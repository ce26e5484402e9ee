//! What a writer to the topic of hits can do while aggregators' tags are under a public key:
//! records of an unknown kind stop no partition, and invented totals are counted.

use std::time::{SystemTime, UNIX_EPOCH};

use tollgate_shared::mac::MacKey;
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::wire::record::{RecordPen, Total};
use tollgate_tests::kafka::LocalKafka;

use crate::bad::{digest, metric, produce_to, read};
use crate::fleet::{Aggregator, PARTITIONS, await_whole, directory, until};

/// The header of a record, and a kind that no build has written yet.
const UNKNOWN: [u8; 4] = [1, 99, 0x91, 1];

pub fn no_writer_of_hits_can_stop_a_partition(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("public"));
    let one = Aggregator::start(dir.path(), kafka, &prefix, "agg-1", false);
    await_whole(&[&one]);
    let topic = format!("{prefix}.hits");
    let wide = partition_of_resource("wide", PARTITIONS);
    let source = (wide + 1) % PARTITIONS;
    let records = vec![
        UNKNOWN.to_vec(),
        UNKNOWN[..3].to_vec(),
        UNKNOWN[..2].to_vec(),
    ];
    produce_to(kafka, &topic, source, &records);
    until("each is counted", || {
        metric(&one, "tollgate_records_unknown_total ") == 3
    });
    for (key, value) in read(kafka, &format!("{prefix}.aside"), 3) {
        assert!(key.starts_with(&format!("hits/{source}/")), "{key}");
        let why = value["reason"].as_str().expect("a reason");
        assert!(why.contains("kind 99 is not known to this build"), "{why}");
    }
    let ruled = digest(&one, source);
    until("it is ruled on", || ruled < digest(&one, source));
    let key = MacKey::UNPROTECTED;
    let forged = |offset| {
        let granted = Total::guarded(now_ms(), 2_000_000_000);
        RecordPen::new(&key, wide).totals("wide", (source, offset), &[granted])
    };
    // A source record that exists but granted nothing, and one in a partition that does not exist.
    let of_nobody = {
        let granted = Total::guarded(now_ms(), 1);
        RecordPen::new(&key, wide).totals("wide", (PARTITIONS, 1), &[granted])
    };
    produce_to(kafka, &topic, wide, &[forged(1), of_nobody]);
    until("forged totals are counted", || {
        metric(&one, "tollgate_totals_forged_total ") == 2
    });
    assert!(one.is_ready());
    assert_eq!(metric(&one, "tollgate_partitions_stopped "), 0);
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.expect("since then").as_millis()).expect("a while yet")
}
