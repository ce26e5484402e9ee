//! Limits as checked types: the content of a limits document, after all faults were refused.
//!
//! Text becomes a tree in which every value has its position, and the tree becomes these types; the
//! rules see only these. Faults are collected, so that one reading reports all faults of a file.
//! Knows nothing of the state of any pair, of files, clocks or the log.
//!
//! ```text
//! text ── source ──> tree with positions ── read ──> Limits ── print ──> canonical text
//!                                             │         ├── scale ──> Limits, N times as fast
//!                                             │         └── public ─> what agents learn
//!                                             └── normal, warning ──> warnings ──┐
//!                                             └── fault ──> faults ──────────────┴─ report
//! ```
//!
//! What stays true: [`Limits`] never change once made; every tier in them is normalised; two
//! documents with the same meaning have equal classes.

mod amend;
mod assemble;
mod beside;
mod changed;
mod closed;
mod closed_beyond;
mod descriptors;
mod fault;
mod forgets;
mod names;
mod network_names;
mod networks;
mod normal;
mod numbers;
mod own;
mod own_statements;
mod path;
mod patterns;
mod print;
mod print_stated;
#[cfg(test)]
mod property_tests;
mod public;
mod quotas;
pub mod rate;
mod read;
mod report;
#[cfg(test)]
mod report_tests;
mod resource;
mod review;
mod rows;
mod scale;
#[cfg(test)]
mod schema_tests;
mod settings;
#[cfg(test)]
mod shipped_tests;
mod sorted_names;
mod source;
mod spelling;
pub mod stated;
mod stated_places;
mod stated_twice;
mod tables;
mod toml_text;
mod units;
mod unseen;
mod version;
pub mod versions;
#[cfg(test)]
mod warned_tests;
mod warning;
mod warning_text;

mod zone;
mod zone_tables;

pub use amend::Revision;
pub use beside::{DroppedRows, OverrideRow};
pub use descriptors::Descriptors;
pub use fault::{FAULTS_MAX, Fault, FaultKind, Faults};
pub use forgets::{Forgotten, forgets, forgotten, forgotten_by_documents};
pub use names::{NameTable, TABLE_BYTES_MAX};
pub use network_names::{is_part_of_domain, spelt_domain};
pub use networks::Networks;
pub use normal::{TierChange, normalise};
pub use numbers::{ClassId, ResourceIx};
pub use own::{NotChanged, OVERRIDE_ROWS_MAX, Own};
pub use rate::{Bucket, Calendar, EXACT_MAX, Quota, RateClass, SECOND, Tier, Window};
pub use report::{CheckReport, ResourceReport, SizeReport, check};
pub use resource::{
    CopiesResource, Excess, Group, Mode, NEAR_DEFAULT, RateResource, Reserve, Resource,
};
pub use review::{STATE_BYTES_WARN, hits_max_in, state_bytes_at_limit};
pub use scale::{SCALED_WINDOW_MIN, ScaleFault};
pub use settings::{BlindPolicy, EngineSettings, Namespace, Namespaces, Rate};
pub use source::nearest;
pub use spelling::{parse_quota, parse_rate, print_quota, print_rate, whole_rate};
pub use stated::{Allowance, Setting, Stated};
pub use stated_twice::{StatedLimits, StatedTwice};
pub use tables::RateOverride;
pub use tollgate_shared::wire::limits_document::DOCUMENT_BYTES_MAX;
pub use units::{parse_span, print_span};
pub use version::{Limits, RULES};
pub use warning::{WARNINGS_MAX, Warning, WarningKind, Warnings};
pub use zone::Zone;
pub use zone_tables::{with_zone_tables, without_zone_tables};
