//! What services link: decides rate limits in-process and never waits.
