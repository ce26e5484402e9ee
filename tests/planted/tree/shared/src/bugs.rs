//! The switch of the bugs in this copy of the tree, one bug at a time.
//!
//! Each bug is behind [`planted`]. Knows nothing of the effects of a bug. What stays true: at most one bug is
//! switched on, on one thread, and other threads do not notice. An exception is a process that is started with
//! `TOLLGATE_PLANTED`: in it the bug of that name is switched on everywhere.

use std::cell::Cell;
use std::sync::OnceLock;

macro_rules! bugs {
    ($($bug:ident $name:literal $what:literal)*) => {
        /// A bug in this copy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Bug {
            $(#[doc = $what] $bug,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$bug,)*];

            /// Its name on command lines.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)*
                }
            }

            /// What is wrong with it, in one sentence.
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$bug => $what,)*
                }
            }
        }
    };
}

include!("bugs_list.rs");

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Switches a bug on for this thread in place of the previous one; `None` switches it off.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether this bug is switched on.
#[inline]
pub fn planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug) || everywhere() == Some(bug)
}

/// The bug of the whole process.
fn everywhere() -> Option<Bug> {
    static EVERYWHERE: OnceLock<Option<Bug>> = OnceLock::new();
    *EVERYWHERE.get_or_init(|| {
        let name = std::env::var("TOLLGATE_PLANTED").ok()?;
        let bug = Bug::ALL.iter().find(|bug| bug.name() == name);
        assert!(bug.is_some(), "TOLLGATE_PLANTED: no bug {name}");
        bug.copied()
    })
}
