//! The switch of the bugs that were put into this copy of the tree, one at a time.
//!
//! Each bug is behind [`planted`]. Knows nothing of what a bug does. What stays true: at most one is turned on, on one
//! thread, and other threads do not notice; but for a process that is started with `TOLLGATE_PLANTED`, where the bug of
//! that name is turned on everywhere.

use std::cell::Cell;
use std::sync::OnceLock;

macro_rules! bugs {
    ($($bug:ident $name:literal $what:literal)*) => {
        /// A bug that was put in.
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

            /// What is wrong with it.
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

/// Turns a bug on for this thread in place of the one that was, or none.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether this bug is turned on.
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
