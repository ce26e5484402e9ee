//! Tests of explanations, on logs that are written in memory: what is said of limits that have changed since, and of hits
//! that were taken back.

mod log;

use log::MemoryLog;

const NETWORKS: &str = r#"
version = 1
rules = 2
[rate."web.ip"]
rate = "2/s"
addresses = { v4 = 32, v6 = 64 }
[rate."web.cc"]
rate = "2/s"
"#;

/// The same, but other networks limit addresses, and copies are limited in place of a rate.
const CHANGED: &str = r#"
version = 1
rules = 2
[rate."web.ip"]
rate = "2/s"
addresses = { v4 = 24, v6 = 64 }
[copies."web.cc"]
limit = 2
"#;

#[test]
fn denials_from_before_a_change_of_kind_or_prefix_are_found() {
    let mut log = MemoryLog::new(NETWORKS);
    let (address, customer) = (("web.ip", "198.51.100.7"), ("web.cc", "cc"));
    let of_address = log.hits(1_000, "alpha", address, 6);
    let of_customer = log.hits(1_000, "alpha", customer, 6);
    log.document(20_000, CHANGED);
    for (code, pair) in [(of_address, address), (of_customer, customer)] {
        let found = log.explained_code(code).expect("an explanation");
        assert!(found.denied, "{found:#?}");
        assert_eq!(found.domain.as_deref(), Some(pair.1));
        let found = log.explained(pair, Some(1_500));
        assert_eq!(found.code, Some(code.to_string()), "{found:#?}");
    }
    // What denied an address last, it was denied as itself.
    let found = log.explained(address, None);
    assert_eq!(found.code, Some(of_address.to_string()), "{found:#?}");
    // Since the change it is limited as a network, and the customer in copies.
    let of_network = log.hits(21_000, "alpha", ("web.ip", "198.51.100.0/24"), 6);
    let of_copies = log.hold(21_000, customer, 2);
    let found = log.explained(address, None);
    assert_eq!(found.code, Some(of_network.to_string()), "{found:#?}");
    for (code, pair) in [(of_network, address), (of_copies, customer)] {
        assert!(log.explained_code(code).is_ok_and(|found| found.denied));
        let found = log.explained(pair, Some(21_500));
        assert_eq!(found.code, Some(code.to_string()), "{found:#?}");
    }
}
