//! The options of the edge: bounds on what peers may take of this process.

use std::time::Duration;

use super::source::ConfigSource;
use super::units;
use crate::edge::Bounds;

/// Reads the bounds on connections of agents and of the feed.
pub fn read(source: &mut ConfigSource) -> Bounds {
    let bounds = read_each(source);
    refuse_contradictions(source, &bounds);
    bounds
}

/// Refuses bounds of which one makes another useless, or ends every connection.
///
/// The text of a value is used only where it is the default, so it is written in the unit of the defaults.
fn refuse_contradictions(source: &mut ConfigSource, bounds: &Bounds) {
    let times = [
        ("listen.ping_after", bounds.ping),
        ("listen.silence_timeout", bounds.silence),
    ];
    let texts = times.map(|(path, time)| (path, format!("\"{}s\"", time.as_secs())));
    let is_good = bounds.ping < bounds.silence;
    refuse_unless(is_good, source, texts, ["less than", "more than"]);
    let count = |count: usize| count.to_string();
    let size = |bytes: usize| format!("\"{}MiB\"", bytes >> 20);
    // The bound of one is at most the bound of all.
    type Bound = (&'static str, usize);
    let mut no_more = |part: Bound, whole: Bound, shown: fn(usize) -> String| {
        let is_good = part.1 <= whole.1;
        let texts = [part, whole].map(|(path, value)| (path, shown(value)));
        refuse_unless(is_good, source, texts, ["at most", "at least"]);
    };
    let address = (
        "listen.appends_per_address_max",
        bounds.appends_bytes_of_address,
    );
    no_more(
        ("listen.pending_per_address_max", bounds.pending_per_address),
        ("listen.pending_max", bounds.pending),
        count,
    );
    no_more(
        (
            "listen.appends_per_connection_max",
            bounds.appends_bytes_each,
        ),
        address,
        size,
    );
    no_more(address, ("listen.appends_max", bounds.appends_bytes), size);
    no_more(
        ("feed.subscriptions_max", bounds.subscriptions),
        ("feed.subscriptions_total_max", bounds.subscriptions_all),
        count,
    );
    no_more(
        ("feed.subscriber_queue_max", bounds.subscriber_bytes),
        ("listen.queues_max", bounds.queued_bytes),
        size,
    );
}

/// Refuses a pair of options, unless it is good, or one of them was refused itself: the default stands in for an invalid
/// value, which nobody stated.
fn refuse_unless(
    is_good: bool,
    source: &mut ConfigSource,
    pair: [(&'static str, String); 2],
    relation: [&'static str; 2],
) {
    if !is_good && !pair.iter().any(|(path, _)| source.is_refused(path)) {
        source.refuse_pair(pair, relation);
    }
}

fn read_each(source: &mut ConfigSource) -> Bounds {
    let default = Bounds::default();
    Bounds {
        connections: source.number(
            "listen.connections_max",
            "a whole number from 4 to 10000000: an agent has two, and one address may have half of them",
            default.connections as u64,
            4..=10_000_000,
        ) as usize,
        handshake: time(source, "listen.handshake_timeout", default.handshake),
        pending_per_address: count(
            source,
            "listen.pending_per_address_max",
            default.pending_per_address,
        ),
        pending: count(source, "listen.pending_max", default.pending),
        message: time(source, "listen.message_timeout", default.message),
        unfinished_bytes: size(source, "listen.unfinished_max", default.unfinished_bytes),
        appends_bytes_each: size(
            source,
            "listen.appends_per_connection_max",
            default.appends_bytes_each,
        ),
        appends_bytes_of_address: size(
            source,
            "listen.appends_per_address_max",
            default.appends_bytes_of_address,
        ),
        appends_bytes: size(source, "listen.appends_max", default.appends_bytes),
        ping: time(source, "listen.ping_after", default.ping),
        silence: time(source, "listen.silence_timeout", default.silence),
        unpinged_silence: default.unpinged_silence,
        stall: time(source, "listen.stall_timeout", default.stall),
        queued_bytes: size(source, "listen.queues_max", default.queued_bytes),
        subscriber_bytes: size(
            source,
            "feed.subscriber_queue_max",
            default.subscriber_bytes,
        ),
        subscriptions: count(source, "feed.subscriptions_max", default.subscriptions),
        subscriptions_all: count(
            source,
            "feed.subscriptions_total_max",
            default.subscriptions_all,
        ),
    }
}

fn time(source: &mut ConfigSource, path: &'static str, default: Duration) -> Duration {
    source.text(
        path,
        "a duration from 10ms to 10m, such as \"10s\"",
        default,
        |text| {
            let within = Duration::from_millis(10)..=Duration::from_secs(600);
            super::read_duration(text).filter(|time| within.contains(time))
        },
    )
}

fn count(source: &mut ConfigSource, path: &'static str, default: usize) -> usize {
    let expected = "a whole number from 1 to 10000000";
    let number = source.number(path, expected, default as u64, 1..=10_000_000);
    usize::try_from(number).unwrap_or(default)
}

/// A size of at least one message; with less no message would ever get through.
fn size(source: &mut ConfigSource, path: &'static str, default: usize) -> usize {
    source.text(
        path,
        "a size of at least 1MiB, such as \"64MiB\"",
        default,
        |text| {
            let bytes = units::bytes(text).filter(|bytes| 1 << 20 <= *bytes)?;
            usize::try_from(bytes).ok()
        },
    )
}
