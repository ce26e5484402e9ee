//! What an empty list says of the resource that it was asked about: a mistyped name looks like one that nobody uses.
//!
//! ```text
//! $ tollgate denials --resource api.serach
//! nobody is denied
//! tollgate: the limits in force have no resource api.serach, did you mean api.search?
//! ```

use tollgate_limits::{Limits, Resource, nearest};
use tollgate_shared::escape::escaped;

use super::operator::limits_in_force;

/// Says on the standard error that the limits in force do not name a resource, directly or by a pattern. It asks the
/// aggregator once more, and says nothing if that does not answer now: the list itself has been printed.
pub(super) fn remark_unlimited(url: &str, resource: Option<&String>) {
    let Some(resource) = resource else { return };
    let Ok(limits) = limits_in_force(url) else {
        return;
    };
    if let Some(text) = unlimited(&limits, resource) {
        remark!("tollgate: {text}");
    }
}

fn unlimited(limits: &Limits, resource: &str) -> Option<String> {
    if limits.resource(resource).is_some() {
        return None;
    }
    let near = nearest(resource, limits.resources().iter().map(Resource::name));
    let meant = near.map(|near| format!(", did you mean {}?", escaped(near)));
    let resource = escaped(resource);
    let text = format!("the limits in force have no resource {resource}");
    Some(text + &meant.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_limits_is_shown_with_the_nearest_one() {
        let text = "[rate.\"api.search\"]\nrate = \"5/s\"\n[rate.\"web.*\"]\nrate = \"5/s\"\n[copies.sandbox]\nlimit = 3\n";
        let limits = Limits::parse(text).expect("good limits");
        for known in ["api.search", "web.shop", "sandbox"] {
            assert_eq!(unlimited(&limits, known), None, "{known}");
        }
        let shown = |name| unlimited(&limits, name).expect("a remark");
        let meant = "the limits in force have no resource api.serach, did you mean api.search?";
        assert_eq!(shown("api.serach"), meant);
        let none = "the limits in force have no resource db\\x1b";
        assert_eq!(shown("db\u{1b}"), none);
    }
}
