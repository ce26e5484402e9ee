//! The page's style sheet: light and dark, as the reader's system prefers.

/// The style sheet.
pub const STYLE: &str = "
:root { color-scheme: light dark; --granted: #3b82c4; --refused: #d1432f; --active: #cfe3c6;
  --cooling: #f0d9b5; --held: #4c7a3d; --rule: #8886; }
@media (prefers-color-scheme: dark) { :root { --granted: #5b9bd5; --refused: #f0705c;
  --active: #2f4a2a; --cooling: #55432a; --held: #8cc47a; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; }
th, td { padding: .2em .8em; text-align: right; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; display: block; }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
.granted { fill: var(--granted); background: var(--granted); }
.refused { fill: var(--refused); background: var(--refused); }
.active { fill: var(--active); background: var(--active); }
.cooling { fill: var(--cooling); background: var(--cooling); }
.held { fill: var(--held); background: var(--held); }
.rule { stroke: var(--rule); }
.legend span { display: inline-block; width: .9em; height: .9em; margin: 0 .4em 0 1em; }
";
