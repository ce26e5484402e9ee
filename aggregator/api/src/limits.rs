//! `GET /v1/limits`: the limits in force.
//!
//! The document's texts may be megabytes. The aggregator fills in types of its own, which make the text only where the
//! answer is written. Knows nothing of the language of limits.

use serde::{Deserialize, Serialize};

use crate::text::Keyword;

/// The limits in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsView<Text = String, Digest = String, Document = String> {
    /// The schema's name.
    pub schema: Keyword,
    /// The version; 0: none.
    pub version: u64,
    /// BLAKE3 of the text, in hexadecimal; null without a version.
    pub digest: Option<Digest>,
    /// The document as it was pushed.
    pub text: Option<Text>,
    /// How many domains have limits of their own beside the document.
    pub rows: u64,
    /// The normalised document, including those domains.
    pub normalised: Option<Document>,
    /// Whether the limits file differs from the version in force and is not followed.
    pub file_differs: bool,
    /// Switches of namespaces that override the document.
    pub switches: Vec<SwitchView>,
}

/// The switches of a namespace that override the document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchView {
    /// The namespace; `*`: all that have no switches of their own.
    pub namespace: String,
    /// Overrides `ignore_configured`; null: as the document states.
    pub ignore_configured: Option<bool>,
    /// Overrides `allow_unconfigured`; null: as the document states.
    pub allow_unconfigured: Option<bool>,
}
