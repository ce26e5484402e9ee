//! Several resources at once: all of them, or none.

use super::handle::Copies;
use super::hold::Hold;
use crate::answer::Allowed;
use crate::rate::Rate;
use crate::refused::Refused;

/// What [`Agent::reserve_all`](crate::Agent::reserve_all) took.
#[derive(Debug)]
#[must_use = "its holds are given back when it is dropped"]
pub struct Together {
    /// The holds, in the order of the call's copies.
    pub holds: Vec<Hold>,
    /// The hit, if the call wanted one.
    pub allowed: Option<Allowed>,
}

/// What a call wants of one resource for one domain.
type Wish<'a> = (&'a Copies, &'a str, u32);

/// Looks at everything first, so that nothing is taken in vain except in a race. Then takes copies, which can be
/// given back, and makes the hit last, because it cannot.
pub(crate) fn take_together(
    copies: &[Wish<'_>],
    rate: Option<(&Rate, &str)>,
) -> Result<Together, Refused> {
    for (handle, _, copies) in copies {
        handle.check(*copies)?;
    }
    let mut looked = Ok(());
    if let Some((rate, domain)) = rate {
        looked = rate.look_for_one(domain).map(|_| ()).map_err(Refused::from);
    }
    for (at, wish) in copies.iter().enumerate() {
        let earlier = copies.get(..at).unwrap_or_default();
        // Every wish is looked at, even after a refusal, so that each refusal is recorded.
        looked = looked.and(look_beside(earlier, wish));
    }
    looked?;
    // Holds that were taken before a refusal are dropped, which gives their copies back.
    let holds = copies
        .iter()
        .map(|(handle, domain, copies)| handle.reserve(domain, *copies))
        .collect::<Result<Vec<Hold>, _>>()?;
    let allowed = rate.map(|(rate, domain)| rate.hit(domain)).transpose()?;
    Ok(Together { holds, allowed })
}

/// Looks at one wish beside the wishes before it: together they may be too many for a domain that has room for each
/// one.
fn look_beside(earlier: &[Wish<'_>], wish: &Wish<'_>) -> Result<(), Refused> {
    let (handle, domain, copies) = *wish;
    let more = earlier
        .iter()
        .filter(|(other, of, _)| *of == domain && handle.is_of_resource(other))
        .fold(0_u32, |sum, (_, _, copies)| sum.saturating_add(*copies));
    handle.look_beside(domain, more, copies)
}
