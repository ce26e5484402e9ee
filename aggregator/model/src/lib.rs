//! The slow, obvious model of Tollgate's rate rules, written from the rules' text alone.
//!
//! It is the oracle of the engine's property tests, and what `demo`, `audit` and the simulation ask
//! whether a refusal was justified. It shares no code and no type with the engine: instants are
//! plain `u64` microseconds, names are strings, and where the engine computes a moment with a
//! formula the model asks the rule itself again and again.
//!
//! ```text
//! limits   what is configured, and its normalisation
//! rules    3.1 for one domain: tiers, windows, the hard limit, when it opens again
//! inline   3.1 as an in-line limiter would apply it: all domains of one resource, global limit
//! stream   3.3 for one pair: entries that were let through already, late hits, new limits
//! log      3.3 and the part of section 4 that decides, over the records of one partition
//! ideal    what an in-line limiter would have let through of the offered calls
//! ```
//!
//! It knows no clock, no wire format, no agents' deny lists, and neither copies nor near-limit
//! notices. What stays true: every answer is a function of the inputs in their order, and every
//! judgement is pure (asking changes nothing).

mod hits;
mod rules;

pub mod ideal;
pub mod inline;
pub mod limits;
pub mod log;
pub mod stream;

pub use ideal::{Call, IdealCount, ideal};
pub use inline::{InlineLimiter, LimitedBy, Outcome};
pub use limits::{DomainLimits, DomainOverride, Limits, ResourceLimits, Tier, normalize};
pub use log::PartitionModel;
pub use rules::{Cause, End, Until};
pub use stream::{Denial, EntryOutcome, StreamPair};
