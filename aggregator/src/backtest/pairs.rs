//! Names of pairs as numbers, given in the order of appearance.
//!
//! Knows nothing of calls. What stays true: a number is never given to another pair; memory grows with
//! names and pairs, not with calls.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// A pair of a backtest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Number of its resource.
    pub resource: u32,
    /// Number of its domain.
    pub domain: u32,
}

/// All pairs that calls were made on.
#[derive(Debug, Default)]
pub struct Pairs {
    resources: Vec<Box<str>>,
    domains: Vec<Box<str>>,
    domain_numbers: HashMap<Box<str>, u32, RandomState>,
    pairs: Vec<Pair>,
    pair_numbers: HashMap<(u32, u32), u32, RandomState>,
}

impl Pairs {
    /// The number of a pair, a new one if it is new.
    pub fn number_of(&mut self, resource: &str, domain: &str) -> u32 {
        let resource = self.resource(resource);
        let domain = match self.domain_numbers.get(domain) {
            Some(number) => *number,
            None => {
                let number = self.domains.len() as u32;
                self.domains.push(domain.into());
                self.domain_numbers.insert(domain.into(), number);
                number
            }
        };
        let pairs = &mut self.pairs;
        *self
            .pair_numbers
            .entry((resource, domain))
            .or_insert_with(|| {
                pairs.push(Pair { resource, domain });
                pairs.len() as u32 - 1
            })
    }

    /// The number of a resource, a new one if it is new. There are few, so they are looked through.
    fn resource(&mut self, name: &str) -> u32 {
        let known = self.resources.iter().position(|known| **known == *name);
        known.unwrap_or_else(|| {
            self.resources.push(name.into());
            self.resources.len() - 1
        }) as u32
    }

    /// The pair with a number that was given.
    pub fn pair(&self, number: u32) -> Pair {
        self.pairs[number as usize]
    }

    /// All pairs by their numbers.
    pub fn all(&self) -> &[Pair] {
        &self.pairs
    }

    /// The resources by their numbers.
    pub fn resources(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.resources.iter().map(|name| &**name)
    }

    /// How many domains there are.
    pub fn domains_len(&self) -> usize {
        self.domains.len()
    }

    /// A pair's resource and domain.
    pub fn names(&self, number: u32) -> (&str, &str) {
        let pair = self.pair(number);
        (
            &self.resources[pair.resource as usize],
            &self.domains[pair.domain as usize],
        )
    }

    /// The number of a pair that calls were made on.
    pub fn find(&self, resource: &str, domain: &str) -> Option<u32> {
        let resource = self.resources.iter().position(|name| **name == *resource)?;
        let domain = *self.domain_numbers.get(domain)?;
        self.pair_numbers.get(&(resource as u32, domain)).copied()
    }
}
