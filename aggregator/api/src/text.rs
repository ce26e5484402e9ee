//! Values that are written as text.
//!
//! An aggregator makes a view while it rules nothing, and the text only in the thread that writes the answer. Knows
//! nothing of what the values are. What stays true: what is read back displays as what was written.

use std::borrow::Cow;
use std::fmt::{self, Display};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One of a few names, such as `pair` or `held`. A client also takes names that it does not know.
pub type Keyword = Cow<'static, str>;

/// A value whose JSON is the text that it displays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsText<T> {
    /// The value, where the answer is made.
    Value(T),
    /// Its text, where the answer was read.
    Text(Box<str>),
}

impl<T> From<T> for AsText<T> {
    fn from(value: T) -> Self {
        Self::Value(value)
    }
}

impl<T: Display> Display for AsText<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => value.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl<T: Display> Serialize for AsText<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, T> Deserialize<'de> for AsText<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::deserialize(deserializer).map(Self::Text)
    }
}
