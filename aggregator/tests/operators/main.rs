//! What operators do and read, with the binary on its journal: limits, amendments, candidates, holds; why a call was
//! refused; and whether the log says what the aggregator did.

mod amendments;
mod amendments_by_http;
mod audit;
mod candidates;
mod cli;
mod convert;
mod convert_faults;
mod deploy;
mod domain_key;
mod endless;
mod explain;
mod explain_copies;
mod holds;
mod learned;
mod many_overrides;
mod record_keys;
mod shadow;
#[path = "../support/mod.rs"]
mod support;
mod unlimited_copies;
