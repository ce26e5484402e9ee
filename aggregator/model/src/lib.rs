//! The slow, obvious model of Tollgate's rules (rules 2), for rates and for copies, written from the rules' text alone.
//!
//! The engine's property tests use it as their oracle; `demo`, `audit` and the simulation ask it whether a refusal
//! was justified. It shares no code and no type with the engine: instants are plain `u64` microseconds, names are
//! strings, and where the engine computes an instant with a formula the model asks the rule itself again and again.
//!
//! ```text
//! limits   configuration, inheritance and normalisation
//! calendar periods by the clocks of a zone
//! window, bucket, quota, tiers   one constraint each: room, debt, copies taken back
//! verdict  answers about a pair: causes, ends, counts
//! rules    all constraints of one domain: granted, excess, when it opens again, new limits
//! inline   the in-line reading: all domains of one resource, global limit, minimums
//! stream   the stream reading of one pair: copies that were let through count
//! log      the stream reading over the records of one partition
//! copies   the holds of each process, over the records of one partition
//! effect   whether more was let through than a constraint and one denial delay explain
//! ideal    the hits that an in-line limiter would have let through of the offered calls
//! ```
//!
//! It knows no clock, no wire format, no agents' deny lists and no near-limit notices. What stays true: every
//! answer is a function of the inputs in their order, and asking changes nothing.

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
