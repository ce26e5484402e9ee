//! Names of pairs as numbers, in order of appearance.
//!
//! Knows nothing of calls. What stays true: each number belongs to one pair for ever; memory grows
//! with names and pairs, not with calls.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// A pair of a backtest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BacktestPair {
    /// The number of its resource.
    pub resource: u32,
    /// The number of its domain.
    pub domain: u32,
}

/// All pairs that calls were made on.
#[derive(Debug, Default)]
pub struct Pairs {
    resources: Vec<BacktestResource>,
    domains: Vec<Box<str>>,
    domain_numbers: HashMap<Box<str>, u32, RandomState>,
    pairs: Vec<BacktestPair>,
}

/// A resource, with its pairs by domain: a row costs one lookup in one table.
#[derive(Debug)]
struct BacktestResource {
    name: Box<str>,
    pairs: HashMap<Box<str>, u32, RandomState>,
}

impl Pairs {
    /// The number of a pair; a new number if the pair is new.
    pub fn number_of(&mut self, resource: &str, domain: &str) -> u32 {
        let resource = self.resource(resource);
        let known = &mut self.resources[resource as usize].pairs;
        if let Some(number) = known.get(domain) {
            return *number;
        }
        let number = self.pairs.len() as u32;
        known.insert(domain.into(), number);
        let domain = match self.domain_numbers.get(domain) {
            Some(number) => *number,
            None => {
                let number = self.domains.len() as u32;
                self.domains.push(domain.into());
                self.domain_numbers.insert(domain.into(), number);
                number
            }
        };
        self.pairs.push(BacktestPair { resource, domain });
        number
    }

    /// The number of a resource; a new number if it is new. There are few, so the search is linear.
    fn resource(&mut self, name: &str) -> u32 {
        let mut known = self.resources.iter();
        let known = known.position(|known| *known.name == *name);
        known.unwrap_or_else(|| {
            self.resources.push(BacktestResource {
                name: name.into(),
                pairs: HashMap::default(),
            });
            self.resources.len() - 1
        }) as u32
    }

    /// The pair with this number.
    pub fn pair(&self, number: u32) -> BacktestPair {
        self.pairs[number as usize]
    }

    /// All pairs by their numbers.
    pub fn all(&self) -> &[BacktestPair] {
        &self.pairs
    }

    /// The resources by their numbers.
    pub fn resources(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.resources.iter().map(|resource| &*resource.name)
    }

    /// How many domains there are.
    pub fn domains_len(&self) -> usize {
        self.domains.len()
    }

    /// A pair's resource and domain.
    pub fn names(&self, number: u32) -> (&str, &str) {
        let pair = self.pair(number);
        (
            &self.resources[pair.resource as usize].name,
            &self.domains[pair.domain as usize],
        )
    }

    /// The number of a pair, if it has calls.
    pub fn find(&self, resource: &str, domain: &str) -> Option<u32> {
        let mut known = self.resources.iter();
        let resource = known.find(|known| *known.name == *resource)?;
        resource.pairs.get(domain).copied()
    }
}
