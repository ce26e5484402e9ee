//! Rows of one change that state the same limit of the same domain, perhaps in two spellings of it.
//!
//! ```text
//! row 0    api.search  2001:DB8::/32   rate 5/s
//! row 1    api.search  2001:db8::/32   hard 9/s     another limit
//! row 2    api.search  2001:db8::/32   rate 7/s     stated by row 0 already
//! ```
//!
//! Knows nothing of where rows come from. What stays true: of a change without such rows the order does not matter.

use std::borrow::Cow;
use std::collections::HashMap;

use super::own::Own;
use super::version::Limits;

/// The limits that the rows of a change have stated so far, each with its row's number.
#[derive(Debug, Default)]
pub struct StatedLimits<'r>(HashMap<(&'r str, Cow<'r, str>, &'static str), usize>);

/// A limit that an earlier row states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedTwice<'r> {
    /// `rate`, `hard` or `limit`.
    pub what: &'static str,
    /// The domain that both rows change.
    pub domain: Cow<'r, str>,
    /// The number of the earlier row.
    pub first: usize,
}

impl<'r> StatedLimits<'r> {
    /// Notes the limits of a row. If a row before it states one of them, it is not noted, and the result says which.
    pub fn stated_before(
        &mut self,
        limits: &Limits,
        number: usize,
        (resource, domain): (&'r str, &'r str),
        own: &Own,
    ) -> Option<StatedTwice<'r>> {
        // Of an invalid name, the change itself is refused.
        let domain = limits.domain_of_entry(resource, domain).ok()?;
        let stated = [
            ("rate", own.rate.is_some()),
            ("hard", own.hard.is_some()),
            ("limit", own.limit.is_some()),
        ];
        let stated = stated.into_iter().filter(|(_, is_stated)| *is_stated);
        let keys: Vec<_> = stated
            .map(|(what, _)| (resource, domain.clone(), what))
            .collect();
        let earlier = keys.iter().find_map(|key| Some((key.2, *self.0.get(key)?)));
        let Some((what, first)) = earlier else {
            self.0.extend(keys.into_iter().map(|key| (key, number)));
            return None;
        };
        Some(StatedTwice {
            what,
            domain,
            first,
        })
    }
}
