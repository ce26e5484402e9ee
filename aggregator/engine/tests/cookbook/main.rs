//! What the cookbook (`config/cookbook/`) says that its limits do is what the engine does.

mod copies_cookbook;
mod recipes;
