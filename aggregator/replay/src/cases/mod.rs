//! Test vectors: cases in JSON, one a line, played through the rules.
//!
//! ```text
//! {"name":"five","limits":{"tiers":[…]},"ops":[{"t":0,"domain":"d","copies":1,"min":1}]}
//!     -> the same, and in each op: "result":{"granted":1,"burst":true,…}
//! ```
//!
//! `mode` selects the kind: `stream2` rules in log order, no mode (or `rate`) in line, `reserve` and `hold`
//! are the kinds for copies, with a format of their own. A case that has `tiers` and no `limits` tests
//! normalisation, and has one result beside them. `"more": true` asks for more fields in each result.
//! Expectations do not influence results: [`differences`] compares them afterwards. Knows nothing of files.
//! What stays true: a result has the field names that an expectation has, so that the two can be compared
//! directly.

mod compare;
mod copies;
mod fault;
mod limits;
mod normal;
mod requests;
mod show;
mod stream;

use serde::Deserialize;
use serde_json::Value;

use limits::CaseTier;

pub use compare::{CaseDifference, differences};
pub use copies::run as play_copies;
pub use fault::CaseFault;

/// Plays one case and returns it with a `result` in each op, or beside the tiers that it normalises.
///
/// # Errors
///
/// [`CaseFault`] describes what is wrong with the line.
pub fn play(line: &str) -> Result<Value, CaseFault> {
    let mut case: Value = serde_json::from_str(line)?;
    let mode = Mode::deserialize(&case)?;
    if mode.mode.is_none() && case.get("limits").is_none() && case.get("tiers").is_some() {
        case["result"] = normal::play(&case)?;
        return Ok(case);
    }
    let results = match mode.mode.as_deref() {
        None | Some("rate") => requests::play(&case)?,
        Some("stream2") => stream::play(&case)?,
        Some("reserve" | "hold") => copies::run(&case)?,
        Some(other) => {
            let found = other.to_owned();
            return Err(CaseFault::Mode { found });
        }
    };
    let ops = case.get_mut("ops").and_then(Value::as_array_mut);
    for (op, result) in ops.into_iter().flatten().zip(results) {
        if let Some(op) = op.as_object_mut() {
            op.insert("result".to_owned(), result);
        }
    }
    Ok(case)
}

#[derive(Deserialize)]
struct Mode {
    mode: Option<String>,
}
