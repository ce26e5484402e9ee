//! Finds the domains in a limits document, and renames each.
//!
//! Knows no key: the caller states the new name of a domain. What stays true: comments, order and everything that
//! is not a domain stay as they were; the cost per entry does not grow with the size of a table.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem::{replace, take};

use tollgate_shared::networks::AddressPrefixes;
use toml_edit::{DocumentMut, Item, Key, TableLike, Value};

use super::Mixture;

/// Returns the new name of a domain, on resources that limit addresses in the given way.
pub(super) type Calling<'c> =
    &'c mut dyn FnMut(&str, Option<AddressPrefixes>) -> Result<String, Mixture>;

/// Renames every domain of a document by `call`. Values that are not where documents have domains are ignored.
pub(super) fn each_domain(document: &mut DocumentMut, call: Calling<'_>) -> Result<(), Mixture> {
    let readings = readings_of_plans(document);
    if let Some(plans) = document.get_mut("plans").and_then(Item::as_table_like_mut) {
        for (name, plan) in plans.iter_mut() {
            let none = BTreeSet::from([None]);
            each_of_list(plan, readings.get(name.get()).unwrap_or(&none), call)?;
        }
    }
    for kind in ["rate", "copies"] {
        let resources = document.get_mut(kind).and_then(Item::as_table_like_mut);
        for (_, resource) in resources.into_iter().flat_map(|table| table.iter_mut()) {
            let Some(resource) = resource.as_table_like_mut() else {
                continue;
            };
            let addresses = addresses_of(resource);
            each_key(resource, addresses, call)?;
            let candidate = resource.get_mut("candidate");
            if let Some(candidate) = candidate.and_then(Item::as_table_like_mut) {
                each_key(candidate, addresses, call)?;
            }
            let groups = resource.get_mut("groups").and_then(Item::as_table_like_mut);
            for (_, group) in groups.into_iter().flat_map(|table| table.iter_mut()) {
                let group = group.as_table_like_mut();
                if let Some(members) = group.and_then(|group| group.get_mut("members")) {
                    each_of_list(members, &BTreeSet::from([None]), call)?;
                }
            }
        }
    }
    Ok(())
}

/// The distinct ways in which resources that use a plan limit addresses. A member of the plan that is an address is a
/// different domain in each of them, and so has several hashes.
fn readings_of_plans(
    document: &DocumentMut,
) -> BTreeMap<String, BTreeSet<Option<AddressPrefixes>>> {
    let mut readings: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
    for kind in ["rate", "copies"] {
        let resources = document.get(kind).and_then(Item::as_table_like);
        for (_, resource) in resources.into_iter().flat_map(|table| table.iter()) {
            let Some(resource) = resource.as_table_like() else {
                continue;
            };
            let plans = resource.get("plans").and_then(Item::as_table_like);
            for (plan, _) in plans.into_iter().flat_map(|plans| plans.iter()) {
                let of_plan = readings.entry(plan.to_owned()).or_default();
                of_plan.insert(addresses_of(resource));
            }
        }
    }
    readings
}

/// How a resource limits addresses; `None` also if the value is invalid, which the document's reader refuses.
fn addresses_of(resource: &dyn TableLike) -> Option<AddressPrefixes> {
    let addresses = resource.get("addresses")?.as_table_like()?;
    let bits = |field: &str, default: u8| match addresses.get(field) {
        None => Some(default),
        Some(bits) => u8::try_from(bits.as_integer()?).ok(),
    };
    let AddressPrefixes { v4, v6 } = AddressPrefixes::default();
    let (v4, v6) = (bits("v4", v4)?, bits("v6", v6)?);
    Some(AddressPrefixes { v4, v6 })
}

/// The members of a list, each renamed for every reading. A new name that several members share is listed once.
fn each_of_list(
    list: &mut Item,
    readings: &BTreeSet<Option<AddressPrefixes>>,
    call: Calling<'_>,
) -> Result<(), Mixture> {
    let Some(list) = list.as_array_mut() else {
        return Ok(());
    };
    // By new name: the first member that has it.
    let mut first_of: HashMap<String, String> = HashMap::new();
    let mut values = Vec::with_capacity(list.len());
    for value in list.iter() {
        let Some(domain) = value.as_str() else {
            values.push(value.clone());
            continue;
        };
        let mut names = BTreeSet::new();
        for addresses in readings {
            names.insert(call(domain, *addresses)?);
        }
        for name in names {
            // A member that is written twice stays twice, for the document's reader to refuse.
            if first_of.get(&name).is_none_or(|first| first == domain) {
                let mut named = Value::from(&name);
                *named.decor_mut() = value.decor().clone();
                values.push(named);
            }
            first_of.entry(name).or_insert_with(|| domain.to_owned());
        }
    }
    list.clear();
    values
        .into_iter()
        .for_each(|value| list.push_formatted(value));
    Ok(())
}

/// The keys of the table `domains` in a resource, in their order.
///
/// All keys are found, then all values are removed, then all are inserted again: removing one key after the other
/// from the front would move all later keys each time, which took minutes with 100,000 keys.
fn each_key(
    resource: &mut dyn TableLike,
    addresses: Option<AddressPrefixes>,
    call: Calling<'_>,
) -> Result<(), Mixture> {
    let Some(domains) = resource.get_mut("domains") else {
        return Ok(());
    };
    let Some(table) = domains.as_table_like() else {
        return Ok(());
    };
    let mut seen = HashSet::new();
    let mut keys = Vec::new();
    let mut changed = false;
    for (domain, _) in table.iter() {
        let called = call(domain, addresses)?;
        changed |= called != domain;
        let key = match table.key(domain) {
            Some(key) => as_called(key, &called),
            None => Key::new(&called),
        };
        if !seen.insert(called) {
            let domain = domain.to_owned();
            return Err(Mixture::Twice { domain });
        }
        keys.push(key);
    }
    if !changed {
        return Ok(());
    }
    match domains {
        Item::Table(table) => {
            let items: Vec<Item> = table.iter_mut().map(|(_, item)| take(item)).collect();
            table.clear();
            for (key, item) in keys.iter().zip(items) {
                table.insert_formatted(key, item);
            }
        }
        Item::Value(Value::InlineTable(table)) => {
            let none = || Value::from(false);
            let values = table.iter_mut().map(|(_, value)| replace(value, none()));
            let values: Vec<Value> = values.collect();
            table.clear();
            for (key, value) in keys.iter().zip(values) {
                table.insert_formatted(key, value);
            }
        }
        _ => {}
    }
    Ok(())
}

/// A renamed key, with the white space and comments around it.
fn as_called(key: &Key, called: &str) -> Key {
    if key.get() == called {
        return key.clone();
    }
    Key::new(called)
        .with_leaf_decor(key.leaf_decor().clone())
        .with_dotted_decor(key.dotted_decor().clone())
}
