//! Host names of aggregators: the addresses of a name; and names of several aggregators, of which each address is
//! followed and resolved again.
//!
//! ```text
//! tollgate.internal:7401 ── 10.0.0.4, 10.0.0.7 ── later 10.0.0.7, 10.0.0.9: the third is new
//! ```
//!
//! A link resolves its name again whenever it connects, so a name with one address does not need this module. Knows
//! nothing of messages.
//!
//! A lookup occupies a thread of the service until the system's resolver gives up, which takes longer than any caller
//! here waits. So a lookup keeps its permit to its end, and a lookup without a permit waits without a thread. What
//! stays true: no more lookups run than there are permits, abandoned or not; a numeric address is never looked up.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};

use super::DriverEvent;
use super::socket::SocketFault;
use super::task;

/// How often a name is resolved: members announce each other within seconds; this is for a fleet that has left all
/// known addresses.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The addresses of `tcp://host:port`.
///
/// # Errors
///
/// If it is not an address, or its name has no address.
pub(super) async fn resolve(
    endpoint: &str,
    lookups: &Arc<Semaphore>,
) -> Result<Vec<SocketAddr>, SocketFault> {
    let address = endpoint.strip_prefix("tcp://");
    let address = address.ok_or_else(|| SocketFault::Address(endpoint.into()))?;
    match address.parse() {
        Ok(address) => Ok(vec![address]),
        Err(_) => look_up(address.into(), lookups)
            .await
            .map_err(SocketFault::Name),
    }
}

async fn look_up<A: FromIterator<SocketAddr> + Send + 'static>(
    name: Box<str>,
    lookups: &Arc<Semaphore>,
) -> io::Result<A> {
    let found = apart(lookups, move || name.to_socket_addrs().map(A::from_iter));
    found.await.and_then(|found| found)
}

/// Runs blocking work on a thread, once there is a permit. The permit is free when the work has ended, even if the
/// caller has gone before.
async fn apart<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let permit = Arc::clone(permits).acquire_owned().await;
    let permit = permit.map_err(io::Error::other)?;
    let work = move || {
        let done = work();
        drop(permit);
        done
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(io::Error::other)
}

/// Follows the names among these addresses as long as the driver takes events.
pub(super) fn follow(addresses: &[String], events: &mpsc::Sender<DriverEvent>) {
    for name in addresses.iter().filter(|address| is_name(address)) {
        let (name, events) = (Box::<str>::from(name.as_str()), events.downgrade());
        let lookups = Arc::new(Semaphore::new(1));
        let ask = move || {
            let (name, lookups) = (name.clone(), Arc::clone(&lookups));
            async move { look_up(name, &lookups).await }
        };
        task::start_beside(events.clone(), follow_one(events, ask));
    }
}

/// Follows one name; `ask` resolves it.
async fn follow_one<Answer>(events: mpsc::WeakSender<DriverEvent>, ask: impl Fn() -> Answer)
where
    Answer: Future<Output = io::Result<BTreeSet<SocketAddr>>>,
{
    let mut known = BTreeSet::new();
    loop {
        let answer = tokio::time::timeout(ANSWER_WITHIN, ask()).await;
        let found = answer.ok().and_then(Result::ok).unwrap_or_default();
        // A sender keeps the driver from ending.
        let Some(events) = events.upgrade() else {
            return;
        };
        for address in new_ones(found, &mut known) {
            if events.send(DriverEvent::Found { address }).await.is_err() {
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

/// The new addresses that have to be followed beside the name itself.
fn new_ones(found: BTreeSet<SocketAddr>, known: &mut BTreeSet<SocketAddr>) -> Vec<Box<str>> {
    // A link to the name finds a single address by itself.
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
    fn each_new_address_of_a_name_is_reported_once() {
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
    async fn a_name_is_resolved_again_and_new_addresses_found_once() {
        let (sender, mut found) = mpsc::channel(8);
        let lookups = std::sync::atomic::AtomicUsize::new(0);
        let follows = follow_one(sender.downgrade(), || {
            let answer = match lookups.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => Ok(set(&["10.0.0.4:7401", "10.0.0.7:7401"])),
                1 => Err(io::ErrorKind::NotFound.into()),
                2 => Ok(BTreeSet::new()),
                _ => Ok(set(&["10.0.0.7:7401", "10.0.0.9:7401"])),
            };
            async move { answer }
        });
        let addresses = async {
            let mut addresses = Vec::new();
            for _ in 0..3 {
                match found.recv().await {
                    Some(DriverEvent::Found { address }) => addresses.push(address),
                    other => panic!("{other:?}"),
                }
            }
            // Dropping the last sender means that the driver has ended.
            drop(sender);
            addresses
        };
        let ((), addresses) = tokio::join!(follows, addresses);
        let expected = ["10.0.0.4:7401", "10.0.0.7:7401", "10.0.0.9:7401"];
        assert!(
            addresses.iter().map(AsRef::as_ref).eq(expected),
            "{addresses:?}"
        );
    }

    #[tokio::test]
    async fn abandoned_lookups_do_not_add_up() {
        let permits = Arc::new(Semaphore::new(2));
        let (began, begun) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = Arc::new(std::sync::Mutex::new(ended));
        for _ in 0..50 {
            let (began, ended) = (began.clone(), Arc::clone(&ended));
            let hangs = apart(&permits, move || {
                began.send(()).unwrap();
                let _ = ended.lock().unwrap().recv();
            });
            let given_up = tokio::time::timeout(Duration::from_millis(1), hangs).await;
            assert!(given_up.is_err(), "it hangs");
        }
        // The first two started, and no other could.
        assert!(begun.recv().is_ok() && begun.recv().is_ok());
        assert!(begun.try_recv().is_err());
        assert_eq!(permits.available_permits(), 0);
        drop(end);
        assert_eq!(apart(&permits, || 7).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn an_address_in_figures_takes_no_lookup() {
        let none = Arc::new(Semaphore::new(0));
        let found = resolve("tcp://[::1]:7401", &none).await.unwrap();
        assert_eq!(found, ["[::1]:7401".parse().unwrap()]);
    }

    #[tokio::test]
    async fn an_invalid_address_is_reported() {
        for wrong in ["", "127.0.0.1:1", "ipc:///x"] {
            let met = resolve(wrong, &Arc::new(Semaphore::new(1))).await;
            assert!(matches!(met, Err(SocketFault::Address(_))), "{met:?}");
        }
    }

    #[test]
    fn addresses_are_not_names() {
        assert!(!is_name("127.0.0.1:7401") && !is_name("[::1]:7401"));
        assert!(is_name("tollgate.internal:7401"));
    }
}
