//! Who holds copies. What stays true: agents come in the same order for the same holds.

use std::collections::BTreeMap;

use tollgate_engine::copies::{Copies, HoldState};
use tollgate_shared::wire::statement::Scope;

use crate::explain::view::HolderView;

/// The agents that hold copies of a scope, most first; staged copies have no agent.
pub(super) fn holders(copies: &Copies, scope: &Scope) -> Vec<HolderView> {
    let within = |domain: &str, groups: &[&str]| match scope {
        Scope::Pair(of) => domain == &**of,
        Scope::Group(of) => groups.contains(&&**of),
        Scope::Resource => true,
    };
    let mut by_agent: BTreeMap<Option<&str>, HolderView> = BTreeMap::new();
    let live = copies
        .oldest_first()
        .filter(|hold| hold.state == HoldState::Live);
    for hold in live.filter(|hold| within(hold.domain, &hold.groups)) {
        let of = by_agent
            .entry(Some(hold.agent))
            .or_insert_with(|| HolderView {
                agent: Some(hold.agent.to_owned()),
                oldest_us: hold.start.as_micros(),
                ..HolderView::default()
            });
        of.add(hold.copies);
    }
    for staged in copies.staged().filter(|of| within(of.domain, &of.groups)) {
        let of = by_agent.entry(None).or_insert_with(|| HolderView {
            oldest_us: staged.start.as_micros(),
            ..HolderView::default()
        });
        of.add(staged.copies);
    }
    let mut holders: Vec<HolderView> = by_agent.into_values().collect();
    holders.sort_by(|a, b| b.copies.cmp(&a.copies).then(a.agent.cmp(&b.agent)));
    holders
}
