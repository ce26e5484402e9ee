//! Several resources at once: all of them, or none.

use super::errors::ReserveError;
use super::handle::Copies;
use super::hold::Hold;
use crate::answer::Allowed;
use crate::rate::Rate;

/// What was taken together.
#[derive(Debug)]
#[must_use = "its holds are given back when it is dropped"]
pub struct Together {
    /// The holds, in the order in which they were asked for.
    pub holds: Vec<Hold>,
    /// The hit, where one was asked for.
    pub allowed: Option<Allowed>,
}

/// Looks at everything first, so that nothing is taken in vain but in a race; then takes copies, which
/// can be given back, and the hit last, which cannot.
pub(crate) fn take_together(
    copies: &[(&Copies, &str, u32)],
    rate: Option<(&Rate, &str)>,
) -> Result<Together, ReserveError> {
    if let Some((rate, domain)) = rate {
        let _ = rate.peek(domain)?;
    }
    for (handle, domain, _) in copies {
        handle.peek(domain)?;
    }
    // What was taken before a refusal is given back by its drop.
    let holds = copies
        .iter()
        .map(|(handle, domain, copies)| handle.reserve(domain, *copies))
        .collect::<Result<Vec<Hold>, _>>()?;
    let allowed = rate.map(|(rate, domain)| rate.hit(domain)).transpose()?;
    Ok(Together { holds, allowed })
}
