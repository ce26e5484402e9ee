//! One version of all limits, in the form that the engine uses.
//!
//! ```text
//! limits.rate("api.search")  -> the resource; `None`: not configured
//!   .class_of("acme")        -> a class: a number, the same for all domains with equal limits
//! limits.class(number)       -> its constraints
//! ```
//!
//! Made once and shared behind an `Arc`. Numbers of classes and resources belong to one version; to compare versions,
//! compare the classes themselves.

use std::sync::Arc;

use super::descriptors::Descriptors;
use super::names::NameTable;
use super::numbers::ClassId;
use super::patterns::Patterns;
use super::rate::RateClass;
use super::resource::{CopiesResource, RateResource, Resource};
use super::settings::{BlindPolicy, EngineSettings, Namespace, Namespaces};

/// The whole content of a limits document, checked and normalised.
///
/// The default is the empty document: nothing is configured, and everything is let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(super) rules: u32,
    pub(super) engine: EngineSettings,
    pub(super) namespaces: Namespaces,
    pub(super) names: NameTable,
    pub(super) patterns: Patterns,
    pub(super) resources: Box<[Resource]>,
    pub(super) classes: Classes,
    pub(super) descriptors: Arc<Descriptors>,
    pub(super) record_keys: Arc<[Box<str>]>,
}

/// The classes of a version: those of its document, ascending, and those that rows added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Classes {
    document: Arc<[RateClass]>,
    since: Vec<Arc<RateClass>>,
    /// The positions of the added ones, ascending by class.
    sorted: Vec<u32>,
}

impl Classes {
    /// The classes of a document, in their order.
    pub fn of(sorted: Vec<RateClass>) -> Self {
        Self {
            document: sorted.into(),
            since: Vec::new(),
            sorted: Vec::new(),
        }
    }

    fn get(&self, id: ClassId) -> &RateClass {
        let at = id.0 as usize;
        match at.checked_sub(self.document.len()) {
            None => &self.document[at],
            Some(since) => &self.since[since],
        }
    }

    /// The number of a class, which is added if it is new.
    pub fn number_of(&mut self, class: RateClass) -> ClassId {
        let at = match self.document.binary_search(&class) {
            Ok(at) => at,
            Err(_) => {
                let since = |at: &u32| &*self.since[*at as usize];
                let found = self.sorted.binary_search_by(|at| since(at).cmp(&class));
                let at = match found {
                    Ok(place) => self.sorted[place],
                    Err(place) => {
                        let new = self.since.len() as u32;
                        self.sorted.insert(place, new);
                        self.since.push(Arc::new(class));
                        new
                    }
                };
                self.document.len() + at as usize
            }
        };
        // Each costs a domain's name or a record: there are far fewer than 2^32.
        ClassId(at as u32)
    }
}

/// The rule set that this build implements.
pub const RULES: u32 = 2;

impl Default for Limits {
    fn default() -> Self {
        Self {
            rules: RULES,
            engine: EngineSettings::default(),
            namespaces: Namespaces::default(),
            names: NameTable::default(),
            patterns: Patterns::default(),
            resources: Box::default(),
            classes: Classes::default(),
            descriptors: Arc::default(),
            record_keys: Arc::default(),
        }
    }
}

impl Limits {
    /// The number of the rule set that the document requires.
    pub fn rules(&self) -> u32 {
        self.rules
    }

    /// Bounds and timeouts of the engine.
    pub fn engine(&self) -> &EngineSettings {
        &self.engine
    }

    /// The rules of all domains of descriptors.
    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// The ids of the keys under which aggregators' records count; aggregators write with the first. If it is empty,
    /// records have checksums. See [`tollgate_shared::keyring`].
    pub fn record_keys(&self) -> &[Box<str>] {
        &self.record_keys
    }

    /// The switches of all namespaces.
    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// Replaces the document's switches.
    pub fn set_namespaces(&mut self, namespaces: Namespaces) {
        self.namespaces = namespaces;
    }

    /// The switches that hold for a resource, configured or not.
    pub fn namespace_of(&self, resource: &str) -> &Namespace {
        self.namespaces.of_resource(resource)
    }

    /// The limits of a resource of either kind, if it is configured: by its own name, else by the longest pattern
    /// that it matches.
    pub fn resource(&self, name: &str) -> Option<&Resource> {
        let own = self.names.number_of(name);
        let number = own.or_else(|| self.patterns.number_of(name));
        number.map(|number| &self.resources[number])
    }

    /// How agents treat a resource while blind: as it states itself, else as its own namespace does, also where a pattern
    /// that spans namespaces limits it.
    pub fn blind_of(&self, name: &str) -> BlindPolicy {
        let stated = self.resource(name).and_then(Resource::blind);
        stated.unwrap_or(self.namespace_of(name).blind)
    }

    /// A rate-limited resource; `None` if it is not configured, or limited in copies.
    pub fn rate(&self, name: &str) -> Option<&RateResource> {
        match self.resource(name)? {
            Resource::Rate(rate) => Some(rate),
            Resource::Copies(_) => None,
        }
    }

    /// A copy-limited resource; `None` if it is not configured, or limited in rate.
    pub fn copies(&self, name: &str) -> Option<&CopiesResource> {
        match self.resource(name)? {
            Resource::Copies(copies) => Some(copies),
            Resource::Rate(_) => None,
        }
    }

    /// All resources, ascending by name; the position is the [`ResourceIx`](crate::ResourceIx).
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// The rate-limited resources, ascending by name.
    pub fn rates(&self) -> impl Iterator<Item = &RateResource> {
        self.resources.iter().filter_map(|resource| match resource {
            Resource::Rate(rate) => Some(rate),
            Resource::Copies(_) => None,
        })
    }

    /// Number of rows beside the document.
    pub fn rows_len(&self) -> usize {
        self.resources.iter().map(Resource::rows_len).sum()
    }

    /// The class with this number. Panics for a number of another version.
    pub fn class(&self, id: ClassId) -> &RateClass {
        self.classes.get(id)
    }

    /// The classes of the document, ascending; the position is the [`ClassId`].
    pub fn classes(&self) -> &[RateClass] {
        &self.classes.document
    }

    /// The limits of a pair, if its resource is limited in rate.
    pub fn class_of(&self, resource: &str, domain: &str) -> Option<&RateClass> {
        let rate = self.rate(resource)?;
        Some(self.class(rate.class_of(domain)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_document_everything_is_let_through() {
        let limits = Limits::default();
        assert!(limits.rate("api.search").is_none());
        assert!(limits.namespace_of("api.search").allow_unconfigured);
        assert_eq!(limits.rules(), RULES);
    }
}
