//! Events for callbacks: changes of the deny list, and notices of pairs near their limits.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use tollgate_shared::log_position::{Code, LogPosition};

use crate::answer::Cause;
use crate::scope::Scope;

/// A denial that was entered into the deny list, or a denial that was lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatementEvent<'a> {
    pub(crate) resource: &'a str,
    pub(crate) domain: Option<&'a str>,
    pub(crate) group: Option<&'a str>,
    pub(crate) code: Code,
    pub(crate) change: Change,
    pub(crate) at: Instant,
}

/// What changed in the deny list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The scope is denied from now on.
    Denied,
    /// The scope is open from now on.
    Opened,
}

impl StatementEvent<'_> {
    /// The resource.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_statement(|event| println!("{}", event.resource()));
    /// ```
    pub fn resource(&self) -> &str {
        self.resource
    }

    /// The domain; `None` if the scope is a group or the whole resource.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_statement(|event| println!("{:?}", event.domain()));
    /// ```
    pub fn domain(&self) -> Option<&str> {
        self.domain
    }

    /// The group, if the scope is one.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_statement(|event| println!("{:?}", event.group()));
    /// ```
    pub fn group(&self) -> Option<&str> {
        self.group
    }

    /// The scope of the denial.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_statement(|event| println!("{}", event.scope()));
    /// ```
    pub fn scope(&self) -> Scope {
        match (self.domain, self.group) {
            (Some(_), _) => Scope::Pair,
            (None, Some(_)) => Scope::Group,
            (None, None) => Scope::Resource,
        }
    }

    /// What changed.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_statement(|event| println!("{:?}", event.change()));
    /// ```
    pub fn change(&self) -> Change {
        self.change
    }

    /// The partition and log position that caused the change.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_statement(|event| println!("tollgate explain {}", event.code()));
    /// ```
    pub fn code(&self) -> Code {
        self.code
    }

    /// The log position that caused the change.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_statement(|event| println!("{:?}", event.position()));
    /// ```
    pub fn position(&self) -> LogPosition {
        self.code.position
    }

    /// When the agent processed the frame with the statement.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_statement(|event| println!("{:?} ago", event.at().elapsed()));
    /// ```
    pub fn at(&self) -> Instant {
        self.at
    }
}

/// A pair that came near its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near<'a> {
    pub(crate) resource: &'a str,
    pub(crate) domain: &'a str,
    pub(crate) remaining: u64,
    pub(crate) limit: u64,
    pub(crate) cause: Cause,
}

impl Near<'_> {
    /// The resource.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_near(|near| println!("{}", near.resource()));
    /// ```
    pub fn resource(&self) -> &str {
        self.resource
    }

    /// The domain, by the name under which it is limited; `*` for all domains together, under the resource's global
    /// limit.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_near(|near| println!("{}", near.domain()));
    /// ```
    pub fn domain(&self) -> &str {
        self.domain
    }

    /// Copies that the whole fleet had left, as the aggregators counted.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_near(|near| println!("{} left", near.remaining()));
    /// ```
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The nearest limit.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_near(|near| println!("of {}", near.limit()));
    /// ```
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Which limit that is.
    ///
    /// ```
    /// # use tollgate_agent::Agent;
    /// let builder = Agent::builder().on_near(|near| println!("by {}", near.cause()));
    /// ```
    pub fn cause(&self) -> Cause {
        self.cause
    }
}

/// The host's callback for pairs near their limits.
#[derive(Clone)]
pub(crate) struct OnNear(pub(crate) Arc<dyn Fn(&Near<'_>) + Send + Sync>);

impl fmt::Debug for OnNear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnNear(..)")
    }
}

/// The host's callback for changes of the deny list.
#[derive(Clone)]
pub(crate) struct OnStatement(pub(crate) Arc<dyn Fn(&StatementEvent<'_>) + Send + Sync>);

impl fmt::Debug for OnStatement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnStatement(..)")
    }
}
