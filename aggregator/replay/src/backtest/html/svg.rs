//! Plots as inline SVG: bars over time, bars of pairs, lanes of tiers.
//!
//! Written by hand: a plot here is a few rectangles, and SVG libraries support neither tooltips by
//! title nor classes, through which one style sheet serves light and dark. Knows nothing of where
//! numbers come from.

use std::fmt::Write as _;

/// Width of every plot.
pub const WIDTH: f64 = 960.0;

/// Room for labels at the left.
pub const LEFT: f64 = 70.0;

/// Escapes a user's text, so that it cannot be markup.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Control characters do not belong in a name, and some are not allowed in HTML at all.
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// An SVG that is being built.
pub struct Svg {
    text: String,
}

/// A rectangle.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl Svg {
    /// An empty plot.
    pub fn new(height: f64, label: &str) -> Self {
        let mut text = String::new();
        let _ = write!(
            text,
            "<svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {WIDTH} {height}\">",
            escaped(label)
        );
        Self { text }
    }

    /// A mark with a title as its tooltip. Skips a mark without extent.
    pub fn mark(&mut self, class: &str, area: Area, title: &str) {
        if area.width <= 0.0 || area.height <= 0.0 {
            return;
        }
        let Area {
            x,
            y,
            width,
            height,
        } = area;
        let _ = write!(
            self.text,
            "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\"><title>{}</title></rect>",
            escaped(title)
        );
    }

    /// A line across the plot.
    pub fn rule(&mut self, y: f64) {
        let _ = write!(
            self.text,
            "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.2}\" y2=\"{y:.2}\"/>"
        );
    }

    /// A text; `anchor` is start, middle or end.
    pub fn text(&mut self, x: f64, y: f64, anchor: &str, words: &str) {
        let _ = write!(
            self.text,
            "<text x=\"{x:.2}\" y=\"{y:.2}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(words)
        );
    }

    /// The finished element.
    pub fn end(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// One bar of two parts: what was granted and, on top, what was refused.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The lower part.
    pub granted: u64,
    /// The upper part.
    pub refused: u64,
    /// The tooltip.
    pub title: String,
}

/// Bars side by side within an area, scaled to the highest bar.
pub fn bars(svg: &mut Svg, within: Area, bars: &[Bar]) {
    let most = bars.iter().map(|bar| bar.granted + bar.refused).max();
    let most = most.unwrap_or(0).max(1);
    let width = within.width / bars.len().max(1) as f64;
    let height = |count: u64| within.height * count as f64 / most as f64;
    for (number, bar) in bars.iter().enumerate() {
        let x = within.x + number as f64 * width;
        let base = within.y + within.height;
        let (granted, refused) = (height(bar.granted), height(bar.refused));
        let area = |y: f64, height: f64| Area {
            x,
            y,
            width: (width - 0.4).max(0.5),
            height,
        };
        svg.mark("granted", area(base - granted, granted), &bar.title);
        // A few refusals among many grants must be visible, so a mark is at least 1.5 units high.
        let refused = if 0 < bar.refused {
            refused.max(1.5)
        } else {
            0.0
        };
        svg.mark(
            "refused",
            area(base - granted - refused, refused),
            &bar.title,
        );
    }
    for part in [0.0, 0.5, 1.0] {
        let y = within.y + within.height * (1.0 - part);
        svg.rule(y);
        let value = most as f64 * part;
        // Half of a small odd number is not a whole one.
        let places = usize::from(most < 10 && value.fract() != 0.0);
        svg.text(LEFT - 6.0, y + 4.0, "end", &format!("{value:.places$}"));
    }
}

/// Labels of instants under an area.
pub fn instants(svg: &mut Svg, within: Area, from_us: u64, lasts_us: u64) {
    const LABELS: u64 = 4;
    for label in 0..LABELS {
        let part = label as f64 / LABELS as f64;
        let at = from_us + (lasts_us as f64 * part) as u64;
        // Labels are precise to the second at most.
        let text = crate::backtest::table::instant(at / 1_000_000 * 1_000_000);
        let x = within.x + within.width * part;
        svg.text(x, within.y + within.height + 16.0, "start", &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_be_markup() {
        assert_eq!(
            escaped("<b a=\"'&\u{1}"),
            "&lt;b a=&quot;&#39;&amp;\u{fffd}"
        );
    }

    #[test]
    fn a_single_refusal_among_many_grants_is_seen() {
        let mut svg = Svg::new(100.0, "test");
        let within = Area {
            x: LEFT,
            y: 0.0,
            width: 100.0,
            height: 100.0,
        };
        let bar = |granted, refused| Bar {
            granted,
            refused,
            title: "t".to_owned(),
        };
        bars(&mut svg, within, &[bar(1_000_000, 1), bar(0, 0)]);
        let text = svg.end();
        assert_eq!(text.matches("class=\"refused\"").count(), 1);
        assert_eq!(text.matches("class=\"granted\"").count(), 1);
        assert!(text.contains("height=\"1.50\""), "{text}");
        let mut svg = Svg::new(100.0, "test");
        bars(&mut svg, within, &[bar(1, 0)]);
        let text = svg.end();
        let labels = ["0", "0.5", "1"].map(|label| text.contains(&format!(">{label}</text>")));
        assert_eq!(labels, [true; 3], "{text}");
    }
}
