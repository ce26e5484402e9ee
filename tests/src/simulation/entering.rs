//! Records of `limits`, entered beside the aggregators; and the race of records for a version.
//!
//! ```text
//! @3  a push that expects 2, which is in force       version 3
//! @4  a ban that expects 2 as well                   void: 3 is in force, and its operator gets that answer
//! ```
//!
//! The shipped limits book reads the documents, as in aggregators. Which records become versions is checked here
//! against the versions that they expected. What stays true: a version's number is its offset, and no two
//! records have the same number.

use std::sync::Arc;

use tollgate_limits::versions::{Entered, Version, Void};
use tollgate_log::Stream;
use tollgate_replay::model_check::to_model;
use tollgate_shared::wire::amendment::{self, Amendment};
use tollgate_shared::wire::limits_document::LimitsDocument;
use tollgate_shared::wire::record::kind;

use super::copies_feeding::copies_version;
use super::copy_limits::COPIES;
use super::operators::counter_of;
use super::trace::Violation;
use super::watch::{Kept, Watch};

impl Watch {
    /// Enters a record of `limits` that the log accepted.
    ///
    /// # Errors
    ///
    /// The law that the record violates.
    pub(super) fn enter(&mut self, offset: u64, kept: &Kept) -> Result<(), Violation> {
        if kept.bytes.get(1) == Some(&kind::GENESIS) {
            return Ok(());
        }
        let violation = |check: &'static str, what| {
            let what = format!("{:?}, offset {offset}: {what}", Stream::Limits);
            Violation::new(4, check, what)
        };
        let entered = self.book.read(offset, kept.appended, &kept.bytes);
        let entered = entered
            .map_err(|error| violation("what is appended can be read", error.to_string()))?;
        let expected = expected_by(&kept.bytes);
        check_race(self.newest_version, offset, expected, entered.as_ref())
            .map_err(|what| violation("one version follows another", what))?;
        match entered {
            Some(Entered::Version { version, .. }) => {
                self.newest_version = version.number;
                self.note_version(&version);
            }
            Some(Entered::Void { .. }) => {
                let is_act = kept.bytes.get(1) == Some(&amendment::KIND);
                self.cover.see(match is_act {
                    true => "act lost the race",
                    false => "limits push lost the race",
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn note_version(&mut self, version: &Arc<Version>) {
        // Agents may know the version before any partition is ruled under it.
        let copies = copies_version(version, &self.documents);
        let is_left_out = |name: &&str| !copies.resources.contains_key(*name);
        let left_out: Vec<_> = COPIES.into_iter().filter(is_left_out).collect();
        let is_one = (1..COPIES.len()).contains(&left_out.len());
        self.cover.see_if("limits on copies left out", is_one);
        self.ever_left_out.extend(left_out);
        self.copies.insert(version.number, copies);
        let ignored = |name: &&str| version.limits.namespace_of(name).ignore_configured;
        let ignored = COPIES.into_iter().filter(ignored);
        self.ever_ignored.extend(ignored);
        let Some(made) = &version.made else {
            self.limits
                .insert(version.number, to_model(&version.limits));
            let is_first = self.texts.is_empty();
            if self.texts.contains(&version.text.to_string()) {
                self.cover.see("limits rolled back");
            } else {
                self.texts.push(version.text.to_string());
            }
            self.cover.see_if("limits pushed", !is_first);
            return;
        };
        self.cover.see(counter_of(&made.act));
        if made.act.is_limits() {
            self.limits
                .insert(version.number, to_model(&version.limits));
        }
        self.made.insert(version.number, Arc::clone(made));
    }
}

/// The version that a record expects to be in force.
fn expected_by(bytes: &[u8]) -> Option<u64> {
    let act = Amendment::decode(bytes).map(|act| act.expected);
    let document = || LimitsDocument::decode(bytes).map(|document| document.expected);
    act.or_else(|_| document()).ok()
}

/// Checks that a record wins exactly if it expected the version that is in force.
fn check_race(
    newest: u64,
    offset: u64,
    expected: Option<u64>,
    entered: Option<&Entered>,
) -> Result<(), String> {
    let is_right = match entered {
        Some(Entered::Version { version, .. }) => {
            expected == Some(newest) && version.number == offset && newest < offset
        }
        Some(Entered::Void {
            why: Void::Conflict {
                expected: of,
                found,
            },
            ..
        }) => expected == Some(*of) && *found == newest && *of != newest,
        Some(Entered::Void {
            why: Void::Nothing, ..
        }) => newest == 0 && expected == Some(0),
        // The documents pushed here are valid and have one chunk.
        _ => false,
    };
    match is_right {
        true => Ok(()),
        false => Err(format!(
            "it takes {expected:?} to be in force, {newest} is, and it came to {entered:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_amendments_of_one_version_the_second_loses() {
        let version = |number| {
            let document = "version = 1\nrules = 2\n";
            let limits = tollgate_limits::Limits::parse(document).expect("it is right");
            Entered::Version {
                push: 1,
                version: Arc::new(Version {
                    number,
                    digest: [0; 32],
                    text: document.into(),
                    limits: Arc::new(limits),
                    limits_of: number,
                    made: None,
                }),
            }
        };
        let lost = |expected, found| Entered::Void {
            push: 1,
            why: Void::Conflict { expected, found },
        };
        let check = |newest, offset, expected, entered: Entered| {
            check_race(newest, offset, Some(expected), Some(&entered)).is_ok()
        };
        assert!(check(2, 3, 2, version(3)));
        assert!(check(3, 4, 2, lost(2, 3)));
        // Both records win.
        assert!(!check(3, 4, 2, version(4)));
        assert!(
            !check(3, 4, 2, lost(2, 9)),
            "another is said to be in force"
        );
        // Neither record wins.
        assert!(!check(2, 3, 2, lost(2, 2)));
        // The version's number is not the record's offset.
        assert!(!check(2, 4, 2, version(5)));
        let void = |why| Entered::Void { push: 1, why };
        assert!(check(0, 3, 0, void(Void::Nothing)));
        assert!(!check(2, 3, 2, void(Void::Nothing)));
        assert!(!check(2, 3, 2, void(Void::Zero)));
    }
}
