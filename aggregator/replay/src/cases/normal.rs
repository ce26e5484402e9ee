//! Cases of normalisation: tiers as written, and as normalised by section 4.1 of the paper.
//!
//! ```text
//! {"tiers":[{"limit":5,"window":10000000,"active":4000000,"cooldown":0,"skippable":false}]}
//!     -> [{"limit":5,"window":4000000,"active":4000000,"cooldown":0,"skippable":false}]
//! ```

use serde::Deserialize;
use serde_json::Value;
use tollgate_limits::{Tier, normalise};

use super::{CaseFault, CaseTier};

#[derive(Deserialize)]
struct NormalCase {
    tiers: Vec<CaseTier>,
}

/// Plays a case. Returns the normalised tiers.
pub(super) fn play(case: &Value) -> Result<Value, CaseFault> {
    let case = NormalCase::deserialize(case)?;
    let tiers: Vec<Tier> = case.tiers.into_iter().map(Tier::from).collect();
    let normal: Vec<CaseTier> = normalise(&tiers).0.into_iter().map(Into::into).collect();
    Ok(serde_json::to_value(normal)?)
}
