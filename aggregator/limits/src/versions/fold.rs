//! Changes of a limits document, less those that later ones override.
//!
//! ```text
//! acme rate 5/s, globex rate 7/s, acme rate 9/s       acme rate 9/s, globex rate 7/s
//! acme rate 5/s, acme hard 8/s                        both: each states a field of its own
//! acme rate 5/s, acme taken away, acme rate 9/s       all three: nobody knows here what the document has of acme
//! … taken away and stated again, however often        the first two, and what is stated now
//! ```
//!
//! So a chain of changes is at most as long as four times the domains' fields that were ever changed, and not as
//! the number of amendments. Knows nothing of texts. What stays true: a document with the folded changes is, to a
//! space, the document with all of them.

use std::collections::HashMap;
use std::mem::take;

use crate::Own;

use super::edit::TextEdit;

/// Whom a change is about: a resource, and a domain of it.
type Whom = (String, Option<String>);

/// What of one domain is kept.
#[derive(Default)]
struct KeptStatement {
    /// Where its fields are stated that count, by field.
    fields: [Option<usize>; 3],
    /// It was taken away before.
    is_removed: bool,
}

/// The changes that are left, in the order of the first of each.
pub(super) fn folded(changes: impl IntoIterator<Item = TextEdit>) -> Vec<TextEdit> {
    let mut left: Vec<Option<TextEdit>> = Vec::new();
    let mut known: HashMap<Whom, KeptStatement> = HashMap::new();
    for change in changes {
        let whom = (change.resource.clone(), change.domain.clone());
        let kept = known.entry(whom).or_default();
        let Some(own) = &change.own else {
            let mut stated: Vec<usize> = take(&mut kept.fields).into_iter().flatten().collect();
            stated.sort_unstable();
            // Taken away for the first time it may be what was pushed that goes, or what was stated since: then
            // something has to be stated before.
            let keeps = usize::from(!kept.is_removed);
            for index in stated.into_iter().skip(keeps) {
                left[index] = None;
            }
            if !kept.is_removed {
                kept.is_removed = true;
                left.push(Some(change));
            }
            continue;
        };
        for (field, stated) in fields_of(own) {
            match kept.fields[field] {
                Some(index) => {
                    if let Some(TextEdit { own, .. }) = &mut left[index] {
                        *own = Some(stated);
                    }
                }
                None => {
                    kept.fields[field] = Some(left.len());
                    left.push(Some(TextEdit {
                        own: Some(stated),
                        ..change.clone()
                    }));
                }
            }
        }
    }
    left.into_iter().flatten().collect()
}

/// Each field that is stated, by itself, in the order in which they are written down.
fn fields_of(own: &Own) -> impl Iterator<Item = (usize, Own)> {
    let rate = own.rate.clone().map(|rate| Own {
        rate: Some(rate),
        ..Own::default()
    });
    let hard = own.hard.clone().map(|hard| Own {
        hard: Some(hard),
        ..Own::default()
    });
    let limit = own.limit.map(|limit| Own {
        limit: Some(limit),
        ..Own::default()
    });
    let all = [rate, hard, limit].into_iter().enumerate();
    all.filter_map(|(field, stated)| Some((field, stated?)))
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;
    use crate::versions::edit::apply;

    const DOCUMENT: &str = r#"# ours
[rate.a]
rate = "100/s"
domains = { b = { rate = "2/s" }, c = { hard = "3/s" } }
[rate.t] # theirs
rate = "1/s"
[rate.t.domains.c]
tiers = [{ limit = 2, window = "1s", active = "1s" }]
hard = "9/s" # a remark
[copies.s]
limit = 10
domains = { b = 5 }
"#;

    /// A change that can be made of the text, or none: what domains have is known by the text alone.
    fn random_change(random: &mut StdRng, text: &str) -> Option<TextEdit> {
        let resource = ["a", "t", "s"][random.random_range(0..3)];
        let number = random.random_range(1..50_u64);
        let text_of = |has: bool| has.then(|| format!("{number}/s").into());
        let own = match (resource, random.random_range(0..5)) {
            (_, 0) => None,
            ("s", _) => Some(Own {
                limit: Some(number),
                ..Own::default()
            }),
            (_, kind) => Some(Own {
                rate: text_of(kind != 1),
                hard: text_of(kind <= 2),
                limit: None,
            }),
        };
        let change = TextEdit {
            resource: resource.to_owned(),
            domain: Some(["b", "c", "d", "e"][random.random_range(0..4)].to_owned()),
            own,
        };
        let one = [(String::new(), change.clone())];
        apply(text, &one).is_ok().then_some(change)
    }

    fn applied(changes: &[TextEdit]) -> String {
        let placed: Vec<_> = changes
            .iter()
            .map(|one| (String::new(), one.clone()))
            .collect();
        apply(DOCUMENT, &placed).expect("they can be made")
    }

    #[test]
    fn folded_changes_give_the_same_text() {
        for seed in 0..200 {
            let mut random = StdRng::seed_from_u64(seed);
            let (mut changes, mut text) = (Vec::new(), DOCUMENT.to_owned());
            for _ in 0..60 {
                if let Some(change) = random_change(&mut random, &text) {
                    changes.push(change);
                    text = applied(&changes);
                }
            }
            let less = folded(changes.iter().cloned());
            assert_eq!(applied(&less), text, "seed {seed}: {changes:#?}");
            // Folded on the way, and again, it is the same.
            let (first, rest) = changes.split_at(changes.len() / 2);
            let on_the_way = folded(
                folded(first.iter().cloned())
                    .into_iter()
                    .chain(rest.iter().cloned()),
            );
            assert_eq!(applied(&on_the_way), text, "seed {seed}");
        }
    }

    #[test]
    fn what_is_left_is_bounded_by_the_domains_that_were_changed() {
        let state = |n: u64| TextEdit {
            resource: "a".to_owned(),
            domain: Some("b".to_owned()),
            own: Some(Own {
                rate: Some(format!("{}/s", n + 1).into()),
                hard: n.is_multiple_of(2).then(|| "9/s".into()),
                limit: None,
            }),
        };
        let remove = TextEdit {
            own: None,
            ..state(0)
        };
        let changes = (0..1_000).flat_map(|n| [state(n), remove.clone(), state(n)]);
        assert!(folded(changes).len() <= 4);
    }
}
