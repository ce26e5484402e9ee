//! The slow, obvious model of Tollgate's rules (rules 2), for rates and for copies, written from the rules' text alone.
//!
//! It is the oracle of the engine's property tests, and what `demo`, `audit` and the simulation ask
//! whether a refusal was justified. It shares no code and no type with the engine: instants are
//! plain `u64` microseconds, names are strings, and where the engine computes a moment with a
//! formula the model asks the rule itself again and again.
//!
//! ```text
//! limits   what is configured, inheritance and normalisation
//! calendar periods by the clocks of a zone
//! window, bucket, quota, tiers   one constraint each: room, debt, what is taken back
//! verdict  what is said of a pair: causes, ends, what counts
//! rules    all constraints of one domain: granted, excess, when it opens again, new limits
//! inline   the in-line reading: all domains of one resource, global limit, minimums
//! stream   the stream reading of one pair: what was let through counts
//! log      the stream reading over the records of one partition
//! copies   who holds how many copies, over the records of one partition
//! effect   whether more was let through than a constraint and one denial delay explain
//! ideal    what an in-line limiter would have let through of the offered calls
//! ```
//!
//! It knows no clock, no wire format, no agents' deny lists and no near-limit notices. What stays
//! true: every answer is a function of the inputs in their order, and every judgement is pure (asking
//! changes nothing).

mod bucket;
mod calendar;
mod hits;
mod instants;
mod names;
mod quota;
mod rules;
mod scope;
mod tiers;
mod verdict;
mod window;

pub mod copies;
pub mod effect;
pub mod ideal;
pub mod inline;
pub mod limits;
pub mod log;
pub mod stream;

pub use calendar::{Calendar, Zone};
pub use ideal::{Call, IdealCount, ideal};
pub use inline::{InlineLimiter, InlineOutcome};
pub use limits::{
    Bucket, DomainLimits, DomainOverride, FieldStated, Limits, Quota, ResourceLimits, Tier, Window,
    normalize,
};
pub use log::PartitionModel;
pub use stream::{Denial, EntryOutcome, StreamPair};
pub use verdict::{Cause, End, Standing, Until};
