//! Reads a limits document: settings, namespaces and plans here, resources in the modules below.
//!
//! What stays true: without a fault the result is complete; with a fault there is no result, and all
//! independent faults are reported.

mod copies;
mod descriptors;
#[cfg(test)]
mod fault_tests;
pub(super) mod overrides;
mod rate;
mod record_keys;
pub(super) mod stated;
#[cfg(test)]
mod tests;
mod tiers;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tollgate_shared::names::check_name;
use tollgate_shared::time::Span;
use tollgate_shared::wire::limits_document::DOCUMENT_BYTES_MAX;
use toml::Spanned;
use toml::de::DeValue;

use crate::assemble::{Draft, assemble};
use crate::fault::{FaultKind, Faults};
use crate::path::{Path, PathStep};
use crate::review::review;
use crate::settings::{BlindPolicy, EngineSettings, Namespace, Namespaces, Rate};
use crate::source::{Item, Notes, Section, parse};
use crate::stated_places::StatedPlaces;
use crate::version::{Limits, RULES};
use crate::warning::{Collector, WarningKind, Warnings};
use crate::zone::Zone;

use self::overrides::warn_of_name;
use self::zones::ZoneReader;
use crate::network_names::domain_of;

/// The longest span that a document may state: ten years. Longer ones are mistakes, and sums of allowed
/// ones stay far from the last instant.
const SPAN_MAX: Span = Span::from_secs(3_650 * 86_400);

/// The shortest window: stamps in a log are milliseconds, so the effect of a shorter one would depend on
/// chance.
const SPAN_MIN: Span = Span::from_millis(1);

/// The greatest limit of a rate: rules count in 32 bits, and twice as much by debt.
const LIMIT_MAX: u64 = u32::MAX as u64;

/// The greatest limit of copies: the greatest integer of TOML.
const COPIES_MAX: u64 = i64::MAX as u64;

const DOCUMENT_FIELDS: &[&str] = &[
    "version",
    "rules",
    "record_keys",
    "engine",
    "namespace",
    "plans",
    "zones",
    "rate",
    "copies",
    "descriptors",
];

const ENGINE_FIELDS: &[&str] = &[
    "pairs_per_partition_max",
    "agent_timeout",
    "epochs_per_partition_max",
];

const NAMESPACE_FIELDS: &[&str] = &["allow_unconfigured", "ignore_configured", "blind"];

/// The fields of each table, by the place in the schema of documents (`config/limits.schema.json`) that
/// describes it.
#[cfg(test)]
pub(super) const TABLES: [(&str, &[&str]); 13] = [
    ("", DOCUMENT_FIELDS),
    ("/properties/engine", ENGINE_FIELDS),
    (
        "/properties/namespace/additionalProperties",
        NAMESPACE_FIELDS,
    ),
    ("/properties/zones/additionalProperties", zones::ZONE_FIELDS),
    (
        "/properties/rate/additionalProperties",
        rate::RESOURCE_FIELDS,
    ),
    (
        "/properties/rate/additionalProperties/properties/addresses",
        rate::ADDRESSES_FIELDS,
    ),
    ("/definitions/stated", stated::STATED_FIELDS),
    (
        "/definitions/stated/properties/bucket/anyOf/1",
        stated::BUCKET_FIELDS,
    ),
    (
        "/definitions/stated/properties/tiers/anyOf/1/items",
        tiers::TIER_FIELDS,
    ),
    (
        "/properties/copies/additionalProperties",
        copies::RESOURCE_FIELDS,
    ),
    (
        "/properties/copies/additionalProperties/properties/groups/additionalProperties",
        copies::GROUP_FIELDS,
    ),
    (
        "/properties/descriptors/additionalProperties",
        descriptors::DESCRIPTORS_FIELDS,
    ),
    (
        "/properties/descriptors/additionalProperties/properties/rules/items",
        descriptors::RULE_FIELDS,
    ),
];

/// Every field of documents, for the test that the shipped document shows them all.
#[cfg(test)]
pub(super) fn all_fields() -> impl Iterator<Item = &'static str> {
    let fields = TABLES.into_iter().flat_map(|(_, fields)| fields);
    fields.copied().chain(["local"])
}

impl Limits {
    /// Reads a limits document.
    ///
    /// # Errors
    ///
    /// [`Faults`] lists everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Faults> {
        Self::parse_with_warnings(text).map(|(limits, _)| limits)
    }

    /// Reads a limits document, and warns of what is valid but questionable: changes by normalisation,
    /// limits that can never be reached, much memory.
    ///
    /// # Errors
    ///
    /// [`Faults`] lists everything that is wrong with it.
    pub fn parse_with_warnings(text: &str) -> Result<(Self, Warnings), Faults> {
        refuse_empty(text)?;
        Self::parse_whole(text).map(|(limits, warnings, _)| (limits, warnings))
    }

    /// Reads a limits document that is to go to the log: with the tables of its zones, as [`Self::parse_logged`] reads
    /// it, and not empty.
    ///
    /// # Errors
    ///
    /// [`Faults`] lists everything that is wrong with it.
    pub fn parse_to_push(text: &str) -> Result<Self, Faults> {
        refuse_empty(text)?;
        Self::parse_logged(text)
    }

    /// Reads a limits document; also returns the zones that it names without their tables.
    pub(super) fn parse_whole(text: &str) -> Result<WholeDocument, Faults> {
        let notes = Notes::default();
        if DOCUMENT_BYTES_MAX < text.len() {
            let kind = FaultKind::TooLong { found: text.len() };
            notes.add(&Path::DOCUMENT, None, kind);
            return Err(notes.into_faults(""));
        }
        let warnings = Collector::default();
        let (tree, errors) = parse(text);
        let document = Section::document(tree.get_ref(), &notes);
        let zones = ZoneReader::of(&document, &warnings);
        let draft = read_document(&document, &zones, &warnings);
        notes.add_syntax(text, &errors);
        if !notes.is_empty() {
            return Err(notes.into_faults(text));
        }
        let limits = assemble(draft);
        review(&limits, StatedPlaces(tree.get_ref()), &warnings, &notes);
        if !notes.is_empty() {
            return Err(notes.into_faults(text));
        }
        Ok((limits, warnings.finish(), zones.into_expanded()))
    }
}

/// Refuses a document without any key, which would remove all limits: a file that is caught while it is written is
/// empty, or has only the comments above the first key.
///
/// Documents in a log are not checked for this: what an earlier build took there stays in force.
fn refuse_empty(text: &str) -> Result<(), Faults> {
    let states_nothing = |line: &str| matches!(line.trim_start().chars().next(), None | Some('#'));
    let mut lines = text.trim_start_matches('\u{feff}').lines();
    // A document that is too long is refused for that.
    if DOCUMENT_BYTES_MAX < text.len() || !lines.all(states_nothing) {
        return Ok(());
    }
    let notes = Notes::default();
    notes.add(&Path::DOCUMENT, None, FaultKind::Empty);
    Err(notes.into_faults(text))
}

/// A document, its warnings, and the zones that were looked up for it.
pub(super) type WholeDocument = (Limits, Warnings, Vec<Arc<Zone>>);

/// The context for reading resources.
struct ResourceReading<'r, 't> {
    plans: &'r Plans<'t>,
    namespaces: &'r Namespaces,
    zones: &'r ZoneReader<'t>,
    warnings: &'r Collector,
}

fn read_document<'t>(
    document: &Section<'_, 't>,
    zones: &ZoneReader<'t>,
    warnings: &Collector,
) -> Draft {
    document.only(DOCUMENT_FIELDS);
    if let Some(version) = document.get("version") {
        version.number(1..=1, "1, the version of the format");
    }
    if let Some(rules) = document.get("rules") {
        read_rules(&rules);
    }
    let namespaces = read_namespaces(document);
    let plans = read_plans(document, warnings);
    let reading = ResourceReading {
        plans: &plans,
        namespaces: &namespaces,
        zones,
        warnings,
    };
    let rates = rate::read_rates(document, &reading);
    let copies = copies::read_copies(document, &reading);
    let descriptors = descriptors::read_descriptors(document, &reading);
    refuse_two_kinds(document);
    Draft {
        rules: RULES,
        engine: read_engine(document),
        rates,
        copies,
        descriptors: Arc::new(descriptors),
        record_keys: record_keys::read_record_keys(document),
        namespaces,
    }
}

fn read_rules(rules: &Item<'_, '_>) {
    let expected = "2, the rule set that this build implements";
    // An operator with a document of the first rules has to learn what it would mean now.
    let first = "2: under rules 1 excess used nothing, so a steady caller was hardly ever refused; now what was let through counts, and a `rate` is a window beside tiers";
    match rules.number(1..=u64::MAX, expected) {
        Some(1) => rules.expected(first),
        Some(number) if number != u64::from(RULES) => rules.expected(expected),
        _ => {}
    }
}

fn read_engine(document: &Section<'_, '_>) -> EngineSettings {
    let mut engine = EngineSettings::default();
    let Some(section) = document.section("engine", PathStep::Section("engine")) else {
        return engine;
    };
    section.only(ENGINE_FIELDS);
    let count = |field: &str, into: &mut u64| {
        if let Some(item) = section.get(field) {
            // The upper bound is what a partition can number in 32 bits.
            if let Some(n) = item.number(
                1..=u64::from(u32::MAX),
                "a whole number from 1 to 4294967295",
            ) {
                *into = n;
            }
        }
    };
    count(
        "pairs_per_partition_max",
        &mut engine.pairs_per_partition_max,
    );
    count(
        "epochs_per_partition_max",
        &mut engine.epochs_per_partition_max,
    );
    if let Some(item) = section.get("agent_timeout") {
        const EXPECTED: &str = "a whole number of half seconds from 1s to 1h, as \"2s\"";
        let bounds = Span::from_secs(1)..=Span::from_secs(3_600);
        match item.span(bounds, EXPECTED) {
            Some(span) if span.as_micros() % 500_000 == 0 => engine.agent_timeout = span,
            Some(_) => item.expected(EXPECTED),
            None => {}
        }
    }
    engine
}

fn read_namespaces(document: &Section<'_, '_>) -> Namespaces {
    let mut namespaces = Namespaces::default();
    let Some(section) = document.section("namespace", PathStep::Through("namespace")) else {
        return namespaces;
    };
    for (name, item) in section.named("namespace") {
        if name == "*" {
            namespaces.default = read_namespace(&item, namespaces.default);
        }
    }
    for (name, item) in section.named("namespace").filter(|(name, _)| *name != "*") {
        match check_name(name) {
            Err(fault) => item.place_fault(FaultKind::Name(fault)),
            Ok(()) if name.contains('.') => item.place_fault(FaultKind::NamespaceWithDot),
            Ok(()) => {
                let namespace = read_namespace(&item, namespaces.default);
                namespaces.named.insert(name.into(), namespace);
            }
        }
    }
    namespaces
}

fn read_namespace(item: &Item<'_, '_>, inherited: Namespace) -> Namespace {
    let mut namespace = inherited;
    let Some(section) = item.table("a table of switches") else {
        return namespace;
    };
    section.only(NAMESPACE_FIELDS);
    let switch = |field: &str| section.get(field).and_then(|item| item.boolean());
    if let Some(allow) = switch("allow_unconfigured") {
        namespace.allow_unconfigured = allow;
    }
    if let Some(ignore) = switch("ignore_configured") {
        namespace.ignore_configured = ignore;
    }
    if let Some(blind) = section.get("blind").and_then(|item| read_blind(&item)) {
        namespace.blind = blind;
    }
    namespace
}

/// `"open"`, `"closed"` or `{ local = "20/s" }`.
fn read_blind(item: &Item<'_, '_>) -> Option<BlindPolicy> {
    const EXPECTED: &str = "\"open\", \"closed\" or { local = \"20/s\" }";
    if !item.is_table() {
        let choices = [("open", BlindPolicy::Open), ("closed", BlindPolicy::Closed)];
        return item.one_of(&choices, EXPECTED);
    }
    let section = item.table(EXPECTED)?;
    section.only(&["local"]);
    let rate = section
        .require("local", "a rate as \"20/s\"")?
        .rate(
            // An agent's own limiter counts in 32 bits.
            |rate| (1..=LIMIT_MAX).contains(&rate.hits),
            "a rate from \"1/s\" to \"4294967295/s\" (or /m, /h, /d, /15s); to refuse all, blind = \"closed\"",
        )?;
    Some(BlindPolicy::Local(rate))
}

/// Domains by plan.
type Plans<'t> = BTreeMap<&'t str, Vec<&'t str>>;

fn read_plans<'t>(document: &Section<'_, 't>, warnings: &Collector) -> Plans<'t> {
    let mut plans = Plans::new();
    let Some(section) = document.section("plans", PathStep::Through("plans")) else {
        return plans;
    };
    let limited = limited_plans(document);
    for (plan, item) in section.checked("plan") {
        let members = read_names(&item, warnings);
        if members.is_empty() {
            warnings.add(&item.path, WarningKind::PlanWithoutMembers);
        } else if !limited.contains(plan) {
            warnings.add(&item.path, WarningKind::PlanWithoutLimits);
        }
        plans.insert(plan, members);
    }
    plans
}

/// The plans for which some resource states limits.
fn limited_plans<'t>(document: &Section<'_, 't>) -> BTreeSet<&'t str> {
    let table = |of: &'t Spanned<DeValue<'t>>| of.get_ref().as_table();
    let kinds = ["rate", "copies"].into_iter();
    let kinds = kinds.filter_map(|kind| table(document.value(kind)?));
    let resources = kinds.flat_map(|kind| kind.values()).filter_map(table);
    let plans = resources.filter_map(|resource| table(resource.get("plans")?));
    plans
        .flat_map(|plans| plans.keys().map(|name| &**name.get_ref()))
        .collect()
}

/// A list of domains' names, each once, ascending.
fn read_names<'t>(list: &Item<'_, 't>, warnings: &Collector) -> Vec<&'t str> {
    let mut names = BTreeSet::new();
    let values = list.list("a list of domains, as [\"acme\", \"globex\"]");
    for (index, value) in values.into_iter().flatten().enumerate() {
        let item = list.nth(value, index + 1);
        let Some(name) = item.name() else {
            continue;
        };
        if let Err(kind) = domain_of(name, None) {
            item.fault(kind);
        }
        warn_of_name(name, &item.path, warnings);
        if !names.insert(name) {
            item.fault(FaultKind::Twice);
        }
    }
    names.into_iter().collect()
}

fn refuse_two_kinds(document: &Section<'_, '_>) {
    let (Some(rates), Some(copies)) = (
        document
            .value("rate")
            .and_then(|value| value.get_ref().as_table()),
        document.section("copies", PathStep::Through("copies")),
    ) else {
        return;
    };
    for (name, item) in copies.named("resource") {
        if rates.contains_key(name) {
            item.place_fault(FaultKind::TwoKinds);
        }
    }
}

/// Hits a second, the form of hard and global limits.
fn read_per_second(item: &Item<'_, '_>) -> Option<u64> {
    const EXPECTED: &str = "hits a second, as \"200/s\"";
    let Rate { hits, window } = item.rate(|rate| rate.hits <= LIMIT_MAX, EXPECTED)?;
    if window == Span::from_secs(1) {
        return Some(hits);
    }
    item.expected("hits a second, as \"200/s\": hard and global limits have no other unit");
    None
}
