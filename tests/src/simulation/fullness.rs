//! Law 6: what is said to be full is full, and nothing else, by limits read from the document's text.
//!
//! ```text
//! holds of acme 2, 1, staged 1 ──> 4 copies      limit = 4: said to be full       limit = 5: not
//! ```
//!
//! Adds up what each hold and each transfer has, and shares nothing with the engine's counts and limits but the
//! list of holds. Who is banned is denied whatever it holds, and where a namespace ignores denials none is said. A
//! version of lower limits denies nobody, but the next copy does that is taken.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_engine::copies::{Copies, HoldState};
use tollgate_limits::versions::Version;
use tollgate_shared::wire::statement::{Cause, Says, Scope, Statement};

use super::copy_limits::COPIES;
use super::documents::DOMAINS;
use super::watch::Ruled;

/// What was said last about a scope of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// It is full.
    Full,
    /// It is banned.
    Banned,
    /// Neither.
    Open,
}

/// What was said last, by resource and scope.
pub(super) type Words = BTreeMap<(Box<str>, Scope), Word>;

/// Limits of one resource, as its document's text has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Whether every domain may be said to be full: where fewer may, it goes unsaid of some.
    has_room: bool,
    pair: Option<u64>,
    whole: Option<u64>,
    groups: BTreeMap<String, u64>,
    /// The domains of each group.
    members: BTreeMap<String, BTreeSet<String>>,
}

impl Sizes {
    /// The effective limit of a scope: a domain's or a group's is at most that of the whole.
    fn of(&self, scope: &Scope) -> Option<u64> {
        let own = match scope {
            Scope::Pair(_) => self.pair,
            Scope::Resource => self.whole,
            Scope::Group(name) => self.groups.get(&**name).copied(),
        };
        own.map(|own| self.whole.map_or(own, |whole| own.min(whole)))
    }

    /// The groups of a domain, in order.
    pub(super) fn groups_of(&self, domain: &str) -> Vec<Box<str>> {
        let all = self.members.iter();
        let of_it = all.filter(|(_, members)| members.contains(domain));
        of_it.map(|(name, _)| name.as_str().into()).collect()
    }

    /// Everything that limits a domain, each with its effective limit.
    pub(super) fn limited_scopes(&self, domain: &str) -> Vec<(Scope, u64)> {
        let groups = self.groups_of(domain).into_iter().map(Scope::Group);
        let all = groups.chain([Scope::Pair(domain.into()), Scope::Resource]);
        all.filter_map(|scope| Some((scope.clone(), self.of(&scope)?)))
            .collect()
    }
}

/// Whether any of these documents has a domain in a group.
pub(super) fn is_member<'a>(
    all: impl IntoIterator<Item = &'a AllSizes>,
    (resource, group): (&str, &str),
    domain: &str,
) -> bool {
    all.into_iter().any(|sizes| {
        let members = sizes.get(resource).and_then(|of| of.members.get(group));
        members.is_some_and(|members| members.contains(domain))
    })
}

/// The least limit of one domain that any of these documents has for a resource.
pub(super) fn least_limit<'a>(
    all: impl IntoIterator<Item = &'a AllSizes>,
    resource: &str,
) -> Option<u64> {
    let all = all.into_iter().filter_map(|sizes| sizes.get(resource));
    all.filter_map(|of| of.of(&Scope::Pair("".into()))).min()
}

/// Limits of all resources of copies.
pub(super) type AllSizes = BTreeMap<&'static str, Sizes>;

/// Reads what a text says of copies: documents here write no limit of one domain alone.
pub(super) fn sizes_of(text: &str) -> AllSizes {
    let document: toml::Table = text.parse().unwrap_or_default();
    let number = |table: &toml::Value, key: &str| {
        let found = table.get(key)?.as_integer()?;
        u64::try_from(found).ok()
    };
    let of = |name: &&'static str| {
        let table = document.get("copies")?.get(*name)?;
        let groups = || {
            let groups = table.get("groups").and_then(toml::Value::as_table);
            groups.into_iter().flatten()
        };
        let members = |group: &toml::Value| {
            let all = group.get("members").and_then(toml::Value::as_array);
            let names = all.into_iter().flatten().filter_map(toml::Value::as_str);
            names.map(str::to_owned).collect()
        };
        let said_max = document
            .get("engine")
            .and_then(|engine| number(engine, "pairs_per_partition_max"));
        let sizes = Sizes {
            has_room: said_max.is_none_or(|max| DOMAINS.len() as u64 <= max),
            pair: number(table, "limit"),
            whole: number(table, "global"),
            groups: groups()
                .filter_map(|(name, group)| Some((name.clone(), number(group, "limit")?)))
                .collect(),
            members: groups()
                .map(|(name, group)| (name.clone(), members(group)))
                .collect(),
        };
        Some((*name, sizes))
    };
    COPIES.iter().filter_map(of).collect()
}

/// Copies by scope, added up.
pub(super) type Sums = BTreeMap<Scope, u64>;

fn sums(copies: &Copies) -> Sums {
    let mut sums = BTreeMap::new();
    let mut add = |domain: &str, groups: &[&str], copies: u32| {
        let groups = groups.iter().map(|name| Scope::Group((*name).into()));
        for scope in groups.chain([Scope::Pair(domain.into()), Scope::Resource]) {
            *sums.entry(scope).or_default() += u64::from(copies);
        }
    };
    for hold in copies.oldest_first() {
        if hold.state == HoldState::Live {
            add(hold.domain, &hold.groups, hold.copies);
        }
    }
    for staged in copies.staged() {
        add(staged.domain, &staged.groups, staged.copies);
    }
    sums
}

/// Takes note of what was said about a scope.
pub(super) fn note_word(words: &mut Words, resource: &str, statement: &Statement) {
    let word = match statement.says {
        Says::Denied(denial) if denial.cause == Cause::Banned => Word::Banned,
        Says::Denied(_) => Word::Full,
        Says::Open => Word::Open,
    };
    words.insert((resource.into(), statement.scope.clone()), word);
}

impl Ruled {
    /// What is said to be full and is not, or was filled by the record and is not said to be; `is_version`: that
    /// brought limits, and filled nothing.
    ///
    /// # Errors
    ///
    /// Which scope, and the figures.
    pub(super) fn check_fullness(
        &mut self,
        version: &Version,
        all: &AllSizes,
        is_version: bool,
    ) -> Result<(), String> {
        let mut sums_now = BTreeMap::new();
        for (name, copies) in self.engine.copies() {
            let Some(sizes) = all.get(&**name) else {
                continue;
            };
            let is_silent = version.limits.namespace_of(name).ignore_configured;
            let sums = sums(copies);
            let before = self.sums.get(name);
            let said = self.words.keys().filter(|(of, _)| **of == **name);
            let said = said.map(|(_, scope)| scope);
            for scope in sums.keys().chain(said) {
                let limit = sizes.of(scope);
                let sum = sums.get(scope).copied().unwrap_or(0);
                let is_full = limit.is_some_and(|limit| limit <= sum) && !is_silent;
                let word = self.words.get(&((**name).into(), scope.clone()));
                let word = word.copied().unwrap_or(Word::Open);
                let is_right = match word {
                    Word::Banned => true,
                    Word::Full => is_full,
                    Word::Open => {
                        let before = before.and_then(|before| before.get(scope));
                        let has_risen = before.copied().unwrap_or(0) < sum;
                        let is_said = sizes.has_room || !matches!(scope, Scope::Pair(_));
                        !(is_full && has_risen && is_said) || is_version
                    }
                };
                if !is_right {
                    return Err(format!(
                        "{name}, {scope:?}: {sum} copies of {limit:?} in version {}, and what was said last is {word:?}",
                        version.number
                    ));
                }
            }
            sums_now.insert(name.clone(), sums);
        }
        self.sums = sums_now;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_for_what_it_says_of_copies() {
        let text = "[copies.\"gpu.slot\"]\nlimit = 3\nglobal = 9\ngroups.few = { limit = 4, members = [\"acme\"] }\n\
                    [copies.\"seat.pool\"]\nlimit = 1\n";
        let read = sizes_of(text);
        assert_eq!(
            (read["gpu.slot"].pair, read["gpu.slot"].whole),
            (Some(3), Some(9))
        );
        assert_eq!(read["gpu.slot"].groups["few"], 4);
        assert!(is_member([&read], ("gpu.slot", "few"), "acme"));
        for (resource, group, domain) in [
            ("gpu.slot", "few", "globex"),
            ("gpu.slot", "many", "acme"),
            ("seat.pool", "few", "acme"),
        ] {
            assert!(!is_member([&read], (resource, group), domain));
        }
        assert_eq!(
            (read["seat.pool"].pair, read["seat.pool"].whole),
            (Some(1), None)
        );
        assert_eq!(sizes_of("[rate.x]\n"), AllSizes::new());
    }
}
