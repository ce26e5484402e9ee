//! `plans` and `domains` of a rate-limited resource: who states something of his own.
//!
//! What a domain states beats what its plan states, field by field. Plans end here: what leaves is
//! a table of domains. What stays true: domains that state the same share one statement.

use std::collections::BTreeMap;

use super::{Plans, plan_of_domain};
use crate::limits::assemble::OverridesDraft;
use crate::limits::names::NameTable;
use crate::limits::path::Step;
use crate::limits::resource::Stated;
use crate::limits::source::{Item, Section};

/// Reads the overrides of a resource; `read` reads what one of them states.
pub(super) fn read_overrides(
    resource: &Section<'_, '_>,
    plans: &Plans<'_>,
    read: impl Fn(&Item<'_, '_>) -> Option<Stated>,
) -> OverridesDraft {
    let mut statements = Statements::default();
    let mut of_domain: BTreeMap<&str, u32> = BTreeMap::new();

    for (domain, (_, stated)) in plan_of_domain(resource, plans, &read) {
        of_domain.insert(domain, statements.number(stated));
    }
    let domains = resource.section("domains", Step::Through("domains"));
    for (domain, item) in domains.iter().flat_map(|domains| domains.checked("domain")) {
        let Some(stated) = read(&item) else {
            continue;
        };
        let stated = match of_domain.get(domain) {
            Some(&plan) => stated.or(&statements.list[plan as usize]),
            None => stated,
        };
        of_domain.insert(domain, statements.number(stated));
    }
    OverridesDraft {
        domains: NameTable::from_sorted(of_domain.keys().copied()),
        stated_of: of_domain.into_values().collect(),
        stated: statements.list,
    }
}

/// Statements, each once.
#[derive(Default)]
struct Statements {
    numbers: BTreeMap<Stated, u32>,
    list: Vec<Stated>,
}

impl Statements {
    fn number(&mut self, stated: Stated) -> u32 {
        if let Some(&number) = self.numbers.get(&stated) {
            return number;
        }
        let number = self.list.len() as u32;
        self.list.push(stated.clone());
        self.numbers.insert(stated, number);
        number
    }
}
