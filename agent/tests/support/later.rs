//! Messages of an aggregator of a later release: the same, with more fields where fields have
//! names.

use tollgate_shared::wire::link::FromAggregator;
use tollgate_shared::wire::named;

/// The answer, with a field of a later release in each map of named fields.
pub fn answer(answer: &FromAggregator, bytes: &[u8]) -> Vec<u8> {
    match answer {
        FromAggregator::Welcome { .. } => with_more(bytes, &bytes[2..]),
        FromAggregator::Snapshot(snapshot) => {
            let mut later = bytes.to_vec();
            for topic in &snapshot.topics {
                let public = named::message(0, &topic.public);
                later = with_more(&later, &public[2..]);
            }
            later
        }
        _ => bytes.to_vec(),
    }
}

/// The message, in which this map has one more field: `"later": ["x", nil]`.
fn with_more(message: &[u8], map: &[u8]) -> Vec<u8> {
    let at = message
        .windows(map.len())
        .position(|window| window == map)
        .expect("the map is in the message");
    let (before, rest) = message.split_at(at);
    let (map, behind) = rest.split_at(map.len());
    // Fewer than 15 fields: the map's first byte contains their number.
    assert!((0x80..0x8f).contains(&map[0]));
    let more = b"\xa5later\x92\xa1x\xc0";
    [before, &[map[0] + 1], &map[1..], more, behind].concat()
}
