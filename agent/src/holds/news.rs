//! What aggregators state about an agent's holds without being asked.

use std::fmt;
use std::sync::Arc;

use tollgate_shared::wire::statement::Scope as Told;
use tollgate_shared::wire::verdict::{EndedBy, Why};

/// The scope of a limit on copies that was full.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FullScope {
    /// The limit of the domain.
    Domain,
    /// The limit of a group of the domain.
    Group(Box<str>),
    /// The limit of all domains together.
    Resource,
}

impl From<Told> for FullScope {
    fn from(scope: Told) -> Self {
        match scope {
            Told::Pair(_) => Self::Domain,
            Told::Group(name) => Self::Group((*name).into()),
            Told::Resource => Self::Resource,
        }
    }
}

impl fmt::Display for FullScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Domain => f.write_str("the domain"),
            Self::Group(name) => write!(f, "the group {name}"),
            Self::Resource => f.write_str("the resource"),
        }
    }
}

/// A change of a hold's state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldChange {
    /// This many of its copies were too many, because this scope was full. They count all the same.
    Excess(u32, Option<FullScope>),
    /// The hold is over, without an act of its holder.
    Ended(EndedBy),
    /// The hold does not count.
    Uncounted(Why),
}

/// A change of a hold's state, for the host's callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldNews<'a> {
    resource: &'a str,
    number: u64,
    change: HoldChange,
}

impl<'a> HoldNews<'a> {
    pub(crate) fn new(resource: &'a str, number: u64, change: HoldChange) -> Self {
        Self {
            resource,
            number,
            change,
        }
    }

    /// The resource.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_hold(|news| println!("{}", news.resource()));
    /// ```
    pub fn resource(&self) -> &str {
        self.resource
    }

    /// The hold's number: see [`crate::Hold::number`].
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_hold(|news| println!("hold {}", news.number()));
    /// ```
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What changed.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_hold(|news| println!("{:?}", news.change()));
    /// ```
    pub fn change(&self) -> &HoldChange {
        &self.change
    }
}

/// The host's callback for changes of holds.
#[derive(Clone)]
pub(crate) struct OnHold(pub(crate) Arc<dyn Fn(&HoldNews<'_>) + Send + Sync>);

impl fmt::Debug for OnHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnHold(..)")
    }
}
