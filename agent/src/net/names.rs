//! Names that stand for several aggregators: each address behind one is followed, and looked for again.
//!
//! ```text
//! tollgate.internal:7401 ── 10.0.0.4, 10.0.0.7 ── later 10.0.0.7, 10.0.0.9: the third is new
//! ```
//!
//! A link asks for its name again whenever it connects, so a name with one address needs nothing of this:
//! whoever is behind it is found when the one before is gone. Knows nothing of what is said there. What
//! stays true: an address in figures is nobody's name.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Event;

/// How often a name is asked for: members tell of each other within seconds; this is for a fleet of which
/// nobody is left at the addresses that were known.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Follows the names among these addresses for as long as somebody takes events.
pub(super) fn follow(addresses: &[String], events: &mpsc::Sender<Event>) {
    for name in addresses.iter().filter(|address| is_name(address)) {
        let (name, events) = (name.clone(), events.downgrade());
        tokio::spawn(follow_one(events, move || {
            let name = name.clone();
            async move { Ok(tokio::net::lookup_host(name).await?.collect()) }
        }));
    }
}

/// Follows one name; `ask` says what is behind it.
async fn follow_one<Answer>(events: mpsc::WeakSender<Event>, ask: impl Fn() -> Answer)
where
    Answer: Future<Output = io::Result<BTreeSet<SocketAddr>>>,
{
    let mut known = BTreeSet::new();
    loop {
        let answer = tokio::time::timeout(ANSWER_WITHIN, ask()).await;
        let found = answer.ok().and_then(Result::ok).unwrap_or_default();
        // Whoever holds a sender keeps the hub from its end.
        let Some(events) = events.upgrade() else {
            return;
        };
        for address in new_ones(found, &mut known) {
            if events.send(Event::Found { address }).await.is_err() {
                return;
            }
        }
        drop(events);
        tokio::time::sleep(ASK_EVERY).await;
    }
}

fn is_name(address: &str) -> bool {
    address.parse::<SocketAddr>().is_err()
}

/// The addresses that are to be followed beside the name itself, those that were not known.
fn new_ones(found: BTreeSet<SocketAddr>, known: &mut BTreeSet<SocketAddr>) -> Vec<Box<str>> {
    // A link to the name finds the only one by itself.
    if found.len() < 2 {
        return Vec::new();
    }
    let new: Vec<_> = found.difference(known).copied().collect();
    known.extend(&new);
    new.into_iter()
        .map(|address| address.to_string().into())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(addresses: &[&str]) -> BTreeSet<SocketAddr> {
        addresses.iter().map(|one| one.parse().unwrap()).collect()
    }

    #[test]
    fn of_a_name_with_several_addresses_each_new_one_is_told_once() {
        let mut known = BTreeSet::new();
        let one = set(&["10.0.0.4:7401"]);
        assert!(new_ones(one, &mut known).is_empty(), "the link is there");
        let two = set(&["10.0.0.4:7401", "[::1]:7401"]);
        assert_eq!(new_ones(two.clone(), &mut known).len(), 2);
        assert!(new_ones(two, &mut known).is_empty());
        let moved = set(&["10.0.0.9:7401", "[::1]:7401"]);
        assert_eq!(new_ones(moved, &mut known), ["10.0.0.9:7401".into()]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_asked_again_and_what_is_new_behind_it_is_found_once() {
        let (sender, mut found) = mpsc::channel(8);
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let follows = follow_one(sender.downgrade(), || {
            let answer = match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => Ok(set(&["10.0.0.4:7401", "10.0.0.7:7401"])),
                1 => Err(io::ErrorKind::NotFound.into()),
                2 => Ok(BTreeSet::new()),
                _ => Ok(set(&["10.0.0.7:7401", "10.0.0.9:7401"])),
            };
            async move { answer }
        });
        let heard = async {
            let mut heard = Vec::new();
            for _ in 0..3 {
                match found.recv().await {
                    Some(Event::Found { address }) => heard.push(address),
                    other => panic!("{other:?}"),
                }
            }
            // With the last sender the hub has ended.
            drop(sender);
            heard
        };
        let ((), heard) = tokio::join!(follows, heard);
        let expected = ["10.0.0.4:7401", "10.0.0.7:7401", "10.0.0.9:7401"];
        assert!(heard.iter().map(AsRef::as_ref).eq(expected), "{heard:?}");
    }

    #[test]
    fn figures_are_no_names() {
        assert!(!is_name("127.0.0.1:7401") && !is_name("[::1]:7401"));
        assert!(is_name("tollgate.internal:7401"));
    }
}
