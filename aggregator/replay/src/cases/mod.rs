//! Test vectors: cases in JSON, one a line, played through the rules.
//!
//! ```text
//! {"name":"five","limits":{"tiers":[…]},"ops":[{"t":0,"domain":"d","copies":1,"min":1}]}
//!     -> the same, and in each op: "result":{"granted":1,"burst":true,…}
//! ```
//!
//! `mode` tells the kinds apart: `stream2` is the reading of the log, none (or `rate`) the in-line one,
//! `reserve` and `hold` are those of copies, which know their cases themselves. A case that has `tiers` and no
//! `limits` is one of normalisation, and has one result beside them. `"more": true` asks for more in each
//! result. What an op is expected to result in changes nothing: [`differences`] compares it afterwards. Knows
//! nothing of files. What stays true: a result has the field names that an expectation has, so that the two
//! are compared as they are.

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

/// Plays one case and gives it back with a `result` in each op, or beside the tiers that it normalises.
///
/// # Errors
///
/// [`CaseFault`] says what is wrong with the line.
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
