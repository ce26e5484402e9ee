//! The domains that agents refuse from their first call: limits of their own grant them nothing.
//!
//! ```text
//! document    acme 0/s    globex 0/s    initech 5/s
//! rows                    globex 5/s                   umbrella 0/s
//! closed      acme                                     umbrella
//! ```
//!
//! Closed domains of the document are numbered when it is read, and rows that state a limit of 0 are kept in order. So
//! the list costs as much as it may be long, and a domain more for each closed domain of the document that a row opens
//! again. Networks are a list of their own, because agents refuse each address in them; so are the domains that are let in,
//! if nobody else is. Not listed are rows that state no 0 themselves where the resource's own limits grant nothing. Knows nothing
//! of agents. What stays true: a listed domain is granted nothing.

use std::collections::BTreeSet;

use ipnet::IpNet;
use tollgate_shared::networks::network_of_domain;
use tollgate_shared::wire::public::{
    PublicAllowed, PublicNetwork, PublicNetworks, closed_within_bound,
};

use super::resource::{CopiesResource, RateResource, overlaid};
use super::version::Limits;

/// With more entries of domains, agents do not learn which networks a resource closes, nor which domains of copies: each
/// entry is looked at, because it may open an address of a closed network.
pub(super) const ENTRIES_MAX: usize = 10_000;

impl Limits {
    /// What agents learn of a resource's entries, to refuse calls by themselves.
    pub(super) fn public_entries(&self, rate: &RateResource) -> PublicEntries {
        let is_closed = |class| self.class(class).grants_nothing();
        let found = FoundEntries {
            count: rate.entries(),
            has_networks: rate.networks.has_networks(),
            others_are_closed: is_closed(rate.default_class()),
        };
        let entries =
            || { rate.overrides() }.map(|(domain, entry)| (domain, is_closed(entry.class)));
        found.public(entries)
    }

    /// The first closed domains of a resource, as many as agents learn.
    pub(super) fn public_closed(&self, rate: &RateResource) -> Box<[Box<str>]> {
        let closed = closed_within_bound(self.closed(rate));
        closed.map(Box::from).collect()
    }

    /// The domains of a resource whose own limits grant nothing, ascending.
    pub(super) fn closed<'l>(&'l self, rate: &'l RateResource) -> impl Iterator<Item = &'l str> {
        let is_open = |row| !self.class(row).grants_nothing();
        let of_document = rate.table.closed();
        let of_document = of_document.filter(move |domain| {
            let row = rate.rows.get(domain);
            !row.is_some_and(|row| is_open(row.class))
        });
        let rows = rate.rows.closed();
        let both = overlaid(
            of_document.map(|domain| (domain, ())),
            rows.map(|domain| (domain, ())),
        );
        both.map(|(domain, ())| domain)
    }
}

impl CopiesResource {
    /// The first closed domains, as many as agents learn.
    pub(super) fn public_closed(&self) -> Box<[Box<str>]> {
        let closed = closed_within_bound(self.closed().into_iter());
        closed.map(Box::from).collect()
    }

    /// The closed domains: those whose own limit is 0, unless there are too many entries to look at, and members of groups
    /// whose limit is 0.
    pub(super) fn closed(&self) -> BTreeSet<&str> {
        let groups = self.groups.values().filter(|group| group.limit == 0);
        let members = groups.flat_map(|group| group.members.iter());
        if ENTRIES_MAX < self.entries() {
            return members.collect();
        }
        let own = { self.overrides() }.filter(|(_, limit)| *limit == 0);
        members.chain(own.map(|(domain, _)| domain)).collect()
    }

    /// What agents learn of the entries, to refuse calls by themselves.
    pub(super) fn public_entries(&self) -> PublicEntries {
        let found = FoundEntries {
            count: self.entries(),
            has_networks: self.networks.has_networks(),
            others_are_closed: self.limit == 0,
        };
        found.public(|| { self.overrides() }.map(|(domain, limit)| (domain, limit == 0)))
    }
}

/// What agents learn of the entries of a resource.
#[derive(Debug, Default)]
pub(super) struct PublicEntries {
    /// The networks whose addresses are closed, all of them. A network is left out if another entry opens some address
    /// in it.
    pub networks: PublicNetworks,
    /// All domains that are let in, if others are not, and if agents can learn all of them.
    pub allowed: Option<PublicAllowed>,
}

/// What is known of a resource's entries before they are looked at.
struct FoundEntries {
    count: usize,
    has_networks: bool,
    /// Domains without an entry are granted nothing.
    others_are_closed: bool,
}

impl FoundEntries {
    /// Looks at each entry, with whether it grants nothing, if that is needed and there are not too many.
    fn public<'e, E: Iterator<Item = (&'e str, bool)>>(
        &self,
        entries: impl Fn() -> E,
    ) -> PublicEntries {
        if self.count == 0 || ENTRIES_MAX < self.count {
            return PublicEntries::default();
        }
        let open = || entries().filter(|(_, is_closed)| !is_closed);
        PublicEntries {
            networks: match self.has_networks {
                true => closed_networks(entries()),
                false => PublicNetworks::default(),
            },
            allowed: match self.others_are_closed {
                true => PublicAllowed::of(open().map(|(domain, _)| domain)),
                false => None,
            },
        }
    }
}

/// The networks among closed entries in which no other entry opens an address.
fn closed_networks<'e>(entries: impl Iterator<Item = (&'e str, bool)>) -> PublicNetworks {
    let (mut closed, mut open) = (Vec::new(), Vec::new());
    for (domain, is_closed) in entries {
        if let Some(of) = network_of_domain(domain) {
            let list = if is_closed { &mut closed } else { &mut open };
            list.push(of);
        }
    }
    open.sort_unstable();
    let is_all_closed = |of: &&IpNet| {
        // What a network contains comes directly after it in this order.
        let next = open.get(open.partition_point(|one| one < *of));
        !next.is_some_and(|next| of.contains(next))
    };
    let closed = closed.iter().filter(is_all_closed);
    PublicNetworks::of(closed.map(|network| PublicNetwork {
        network: *network,
        banned_until: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amend::Revision;
    use crate::own::Own;

    const DOCUMENT: &str = r#"
[namespace.off]
ignore_configured = true
[rate.search]
rate = "100/s"
[rate.search.domains]
acme.rate = "0/s"
beta.rate = "5/s"
globex.hard = "0/s"
hooli.tiers = []
initech = { rate = "7/s", quota = "0/d" }
"10.0.0.0/8".rate = "0/s"
[rate.allow]
tiers = []
domains = { acme = { rate = "5/s" }, globex = { rate = "0/s" } }
[rate.shown]
rate = "9/s"
shadow = true
domains.acme.rate = "0/s"
[rate."off.x"]
rate = "9/s"
domains.acme.rate = "0/s"
[rate."every.*"]
rate = "9/s"
domains.acme.rate = "0/s"
[rate.closed]
tiers = []
[copies.jobs]
limit = 5
domains = { acme = 0, beta = 2, "10.0.0.0/8" = 0 }
groups.trial = { limit = 0, members = ["new-1", "new-2"] }
groups.paid = { limit = 9, members = ["acme", "beta"] }
[copies."off.jobs"]
limit = 5
domains.acme = 0
"#;

    fn document() -> Limits {
        Limits::parse(DOCUMENT).unwrap_or_else(|faults| panic!("{faults}"))
    }

    fn closed(limits: &Limits, resource: &str) -> Vec<String> {
        let public = limits.public(resource, 1);
        public.closed.iter().map(|name| name.to_string()).collect()
    }

    fn networks(limits: &Limits, resource: &str) -> Vec<String> {
        let public = limits.public(resource, 1);
        let networks = public.networks.iter();
        networks.map(|one| one.network.to_string()).collect()
    }

    #[test]
    fn agents_learn_the_domains_that_may_have_no_copies() {
        let limits = document();
        let expected = ["10.0.0.0/8", "acme", "new-1", "new-2"];
        assert_eq!(closed(&limits, "jobs"), expected);
        assert_eq!(networks(&limits, "jobs"), ["10.0.0.0/8"]);
        let limit = |limit| Own {
            limit: Some(limit),
            ..Own::default()
        };
        let mut revision = Revision::of(&limits);
        for (domain, own) in [
            ("acme", limit(3)),
            ("beta", limit(0)),
            ("10.1.2.3", limit(1)),
        ] {
            revision.set("jobs", domain, Some(&own)).expect("set");
        }
        let rows = revision.limits();
        let expected = ["10.0.0.0/8", "beta", "new-1", "new-2"];
        assert_eq!(closed(&rows, "jobs"), expected);
        assert_eq!(networks(&rows, "jobs"), [""; 0]);
        assert!(!rows.is_public_equal(&limits));
        assert_eq!(closed(&limits, "off.jobs"), [""; 0]);
    }

    #[test]
    fn agents_learn_networks_of_which_every_address_is_granted_nothing() {
        let limits = document();
        assert_eq!(networks(&limits, "search"), ["10.0.0.0/8"]);
        assert_eq!(networks(&limits, "allow"), [""; 0]);
        let set = |limits: &Limits, domains: &[&str], own: &Own| {
            let mut revision = Revision::of(limits);
            for domain in domains {
                revision.set("search", domain, Some(own)).expect("set");
            }
            revision.limits()
        };
        let networks_closed = ["10.1.0.0/16", "192.0.2.0/24", "192.0.2.9", "2001:db8::/32"];
        let closed = set(&limits, &networks_closed, &rate("0/s"));
        let expected = ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24", "2001:db8::/32"];
        assert_eq!(networks(&closed, "search"), expected);
        // An address of the second, a network of the third, and one that contains the first.
        let open = ["10.1.2.3", "2001:db8:7::/48", "10.0.0.0/7"];
        let open = set(&closed, &open, &rate("5/s"));
        assert_eq!(networks(&open, "search"), ["192.0.2.0/24"]);
        let fewer = open.with_own("search", "10.1.2.3", None);
        let fewer = fewer.expect("removed");
        let expected = ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24"];
        assert_eq!(networks(&fewer, "search"), expected);
        assert!(!fewer.is_public_equal(&open));
        let tenants: Vec<String> = (0..ENTRIES_MAX).map(|n| format!("tenant-{n}")).collect();
        let tenants: Vec<&str> = tenants.iter().map(String::as_str).collect();
        let many = set(&fewer, &tenants, &rate("5/s"));
        assert_eq!(networks(&many, "search"), [""; 0], "too many");
    }

    fn rate(text: &str) -> Own {
        Own {
            rate: Some(text.into()),
            ..Own::default()
        }
    }

    #[test]
    fn agents_learn_an_allow_list_as_long_as_it_is_short() {
        let limits = document();
        let allowed = |limits: &Limits, resource: &str| {
            let public = limits.public(resource, 1);
            let allowed = public.allowed?;
            Some(allowed.iter().map(str::to_owned).collect::<Vec<_>>())
        };
        assert_eq!(allowed(&limits, "allow"), Some(vec!["acme".to_owned()]));
        for other in ["search", "closed", "shown", "jobs", "unknown"] {
            assert_eq!(allowed(&limits, other), None, "{other}");
        }
        assert_eq!(limits.public("allow", 1).least, Some(5), "of acme");
        let rows = limits.with_own("allow", "10.0.0.0/8", Some(&rate("5/s")));
        let rows = rows.expect("set");
        let expected = vec!["10.0.0.0/8".to_owned(), "acme".to_owned()];
        assert_eq!(allowed(&rows, "allow"), Some(expected));
        assert!(!rows.is_public_equal(&limits));
        let none = limits.with_own("allow", "acme", Some(&rate("0/s")));
        assert_eq!(allowed(&none.expect("set"), "allow"), Some(Vec::new()));
        let mut revision = Revision::of(&limits);
        for n in 0..3_000 {
            let domain = format!("tenant-{n:06}");
            revision
                .set("allow", &domain, Some(&rate("5/s")))
                .expect("set");
        }
        let many = revision.limits();
        assert_eq!(allowed(&many, "allow"), None, "of 64 KiB");
        assert_eq!(many.public("allow", 1).least, Some(0));
        assert!(many.allowed_beyond_bound().eq(["allow"]));
        assert!(limits.allowed_beyond_bound().next().is_none());
        let copies = "[copies.jobs]\nlimit = 0\ndomains = { acme = 2, beta = 0 }\n";
        let copies = Limits::parse(copies).expect("it is right");
        assert_eq!(allowed(&copies, "jobs"), Some(vec!["acme".to_owned()]));
        assert!(copies.allowed_beyond_bound().next().is_none());
    }

    #[test]
    fn lists_that_agents_cannot_learn_are_warned_of() {
        let names = |value: &str| {
            let of = |n: u32| format!("tenant-{n:06} = {value}\n");
            (0..3_000).map(of).collect::<String>()
        };
        let (rate, closed) = (names("{ rate = \"5/s\" }"), names("{ rate = \"0/s\" }"));
        let copies = names("2");
        let document = format!(
            "[rate.allow]\ntiers = []\n[rate.allow.domains]\n{rate}[rate.ban]\nrate = \"5/s\"\n\
             [rate.ban.domains]\n{closed}[copies.jobs]\nlimit = 0\n[copies.jobs.domains]\n{copies}"
        );
        let warned = |text: &str| {
            let read = Limits::parse_with_warnings(text);
            let (_, warnings) = read.unwrap_or_else(|faults| panic!("{faults}"));
            let warned = warnings.list.into_iter();
            let warned = warned.map(|of| format!("{} {}", of.path, of.kind.code()));
            warned.collect::<Vec<_>>()
        };
        let expected = [
            "resource \"ban\" closed_beyond_bound",
            "resource \"allow\" allowed_beyond_bound",
            "resource \"jobs\" allowed_beyond_bound",
        ];
        assert_eq!(warned(&document), expected);
        // Nobody is refused there, so that nothing is to be learnt.
        let ignored = format!("namespace.\"*\".ignore_configured = true\n{document}");
        assert_eq!(warned(&ignored), [""; 0]);
    }

    fn hard(text: &str) -> Own {
        Own {
            hard: Some(text.into()),
            ..Own::default()
        }
    }

    #[test]
    fn agents_learn_the_domains_that_are_granted_nothing() {
        let limits = document();
        let search = closed(&limits, "search");
        assert_eq!(search, ["10.0.0.0/8", "acme", "globex", "hooli", "initech"]);
        assert_eq!(closed(&limits, "allow"), ["globex"]);
        assert_eq!(
            closed(&limits, "every.one"),
            ["acme"],
            "by the pattern's limits"
        );
        for resource in ["shown", "off.x", "closed", "unknown"] {
            assert_eq!(closed(&limits, resource), [""; 0], "{resource}");
        }
    }

    #[test]
    fn rows_close_and_open_domains_until_they_are_removed() {
        let limits = document();
        let mut revision = Revision::of(&limits);
        for (domain, own) in [
            ("acme", rate("3/s")),
            ("globex", rate("3/s")),
            ("beta", hard("0/s")),
            ("zeta", rate("0/s")),
            ("open", rate("3/s")),
        ] {
            revision.set("search", domain, Some(&own)).expect("set");
        }
        let rows = revision.limits();
        // A hard limit of 0 in the document stays, whatever rate a row states.
        let expected = ["10.0.0.0/8", "beta", "globex", "hooli", "initech", "zeta"];
        assert_eq!(closed(&rows, "search"), expected);
        assert!(!rows.is_public_equal(&limits));
        // Beside another document, and field by field.
        let open = "[rate.search]\nrate = \"9/s\"\n";
        let other = Limits::parse(open).expect("it is right");
        let other = other.with_rows_of(&rows).expect("they fit");
        assert_eq!(closed(&other, "search"), ["beta", "zeta"]);
        let more = other.with_own("search", "zeta", Some(&hard("5/s")));
        assert_eq!(closed(&more.expect("set"), "search"), ["beta", "zeta"]);
        let open = other.with_own("search", "zeta", Some(&rate("1/s")));
        assert_eq!(closed(&open.expect("set"), "search"), ["beta"]);
        let mut none = Revision::of(&rows);
        for domain in ["acme", "globex", "beta", "zeta", "open"] {
            none.set("search", domain, None).expect("it has a row");
        }
        let none = none.limits();
        assert_eq!(closed(&none, "search"), closed(&limits, "search"));
        assert!(none.is_public_equal(&limits) && !none.is_public_equal(&rows));
    }

    /// A resource that so many rows close; the 10,000th row is open.
    fn many(rows: u64) -> Limits {
        let document = Limits::parse("[rate.r]\nrate = \"9/s\"\n").expect("it is right");
        let mut revision = Revision::of(&document);
        for n in 0..rows {
            let own = if n == 10_000 {
                rate("1/s")
            } else {
                rate("0/s")
            };
            let domain = format!("tenant-{n:06}");
            revision.set("r", &domain, Some(&own)).expect("set");
        }
        revision.limits()
    }

    #[test]
    fn domains_beyond_the_bound_are_left_out_and_counted() {
        // Thirteen bytes, and sixteen for each.
        let most = 64 * 1024 / 29;
        for (rows, listed) in [(most, most), (most + 1, most), (20_000, most)] {
            let limits = many(rows);
            assert_eq!(limits.public("r", 1).closed.len() as u64, listed, "{rows}");
            let beyond: Vec<_> = limits.closed_beyond_bound().collect();
            let expected = [("r", listed as usize)];
            assert_eq!(beyond, expected[usize::from(rows == listed)..], "{rows}");
        }
    }

    #[test]
    fn agents_learn_of_a_row_among_many_closed_ones() {
        let before = many(20_000);
        let mut limits = before.clone();
        for n in 0..20 {
            let own = rate(["0/s", "1/s"][n % 2]);
            let domain = format!("tenant-{n:06}");
            let after = limits.with_own("r", &domain, Some(&own)).expect("set");
            // The first twenty are listed; the even ones were closed before.
            assert_eq!(limits.is_public_equal(&after), n % 2 == 0, "{n}");
            limits = after;
        }
        let open = "tenant-000001".to_owned();
        assert!(!closed(&limits, "r").contains(&open));
        assert!(closed(&before, "r").contains(&open));
        // Beyond the list there is nothing to learn.
        let last = limits.with_own("r", "tenant-019999", Some(&rate("9/s")));
        let last = last.expect("set");
        let least = last.with_own("r", "tenant-019998", Some(&rate("9/s")));
        assert!(last.is_public_equal(&least.expect("set")));
    }
}
