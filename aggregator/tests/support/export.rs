//! Reads exports and writes altered ones, for tests of what is reported about alterations.

use std::fs::File;
use std::path::Path;

use tollgate_log::{Delivered, Stream};
use tollgate_replay::export::{ExportSource, Writer};
use tollgate_replay::source::{ReadStep, Source};

/// All records of an export.
pub type All = Vec<(Stream, u32, Vec<Delivered>)>;

/// Reads all of it.
pub fn read_all(source: &ExportSource) -> All {
    let mut all = vec![(Stream::Limits, 0)];
    for partition in 0..source.description().partitions {
        all.extend([(Stream::Hits, partition), (Stream::Denials, partition)]);
    }
    let read = |(stream, partition)| {
        let mut cursor = source.open(stream, partition, 0).expect("a cursor");
        let mut records = Vec::new();
        while let ReadStep::Records(more) = cursor.read().expect("records") {
            records.extend(more);
        }
        (stream, partition, records)
    };
    all.into_iter().map(read).collect()
}

/// Writes the export `all` of a directory again, altered by `alter`, with digests that fit.
pub fn altered(dir: &Path, name: &str, alter: impl FnOnce(&mut All)) {
    rewritten(dir, name, &[], alter);
}

/// The same, without the snapshots of some partitions.
pub fn rewritten(dir: &Path, name: &str, bare: &[u32], alter: impl FnOnce(&mut All)) {
    let source = ExportSource::open(&dir.join("all")).expect("an export");
    let mut all = read_all(&source);
    alter(&mut all);
    let file = File::create(dir.join(name)).expect("a file");
    let writer = Writer::create(file).expect("written");
    for (stream, partition, records) in &all {
        let written = writer.records(*stream, *partition, records);
        written.expect("written");
    }
    for partition in (0..source.description().partitions).filter(|of| !bare.contains(of)) {
        for upto in source.snapshots(partition) {
            let chunks = source.snapshot(partition, upto).expect("a snapshot");
            let written = writer.snapshot(partition, upto, &chunks);
            written.expect("written");
        }
    }
    writer.finish(source.description()).expect("written");
}

/// The records of one stream of a partition.
pub fn of(all: &mut All, stream: Stream, partition: u32) -> &mut Vec<Delivered> {
    let mut found = all.iter_mut();
    let found = found.find(|(s, p, _)| (*s, *p) == (stream, partition));
    &mut found.expect("a partition").2
}
