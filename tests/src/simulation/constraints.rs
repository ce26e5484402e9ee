//! Random windows, buckets and quotas, drawn beside tiers, hard and global limits.
//!
//! ```text
//! api.search              windows = ["12/830000us", "40/3100000us"], no tiers
//!   acme                  bucket = { rate = "7/900000us", burst = 9, debt = 11 }    replaces the windows
//!   globex                windows = "none", quota = ["300/day"]
//! the next version        the second window is longer, all else is the same
//! ```
//!
//! A day ends in some runs: midnight of [`ZONES`] is soon after the beginning. Knows nothing of the other fields of
//! a document. What stays true: the written text parses, and a later version differs by little.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::random::Random;

/// Zones of quotas. In the first zone a day begins when the earliest simulation does, in
/// the second zone a minute later.
const ZONES: [&str; 3] = ["-08:00", "-08:01", "UTC"];

/// The greatest time from the beginning of a simulation to that midnight.
pub const BEFORE_MIDNIGHT_MAX_US: u64 = 20_000_000;

/// The statement about one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Field<T> {
    /// No statement.
    #[default]
    Unsaid,
    /// `"none"`.
    None,
    /// This value.
    Own(T),
}

impl<T> Field<T> {
    const fn is_unsaid(&self) -> bool {
        matches!(self, Self::Unsaid)
    }

    fn write(&self, text: &mut String, name: &str, of: impl Fn(&T) -> String) {
        // Writing to a String does not fail.
        let _ = match self {
            Self::Unsaid => Ok(()),
            Self::None => writeln!(text, "{name} = \"none\""),
            Self::Own(own) => writeln!(text, "{name} = {}", of(own)),
        };
    }
}

/// A limit in copies, and the length of the window in microseconds.
type Window = (u64, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bucket {
    tokens: u64,
    period_us: u64,
    burst: u64,
    /// `None`: the default debt.
    debt: Option<u64>,
}

/// A limit and the unit of its period.
type Quota = (u64, String);

/// The statements of a resource, or of a domain on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Constraints {
    #[serde(skip_serializing_if = "Field::is_unsaid")]
    windows: Field<Vec<Window>>,
    #[serde(skip_serializing_if = "Field::is_unsaid")]
    bucket: Field<Bucket>,
    #[serde(skip_serializing_if = "Field::is_unsaid")]
    quotas: Field<Vec<Quota>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    keeps_estimates: bool,
}

impl Constraints {
    /// Constraints of a resource.
    pub fn draw(random: &mut Random) -> Self {
        let mut drawn = Self::default();
        let of = random.below(6);
        if of < 4 {
            drawn.windows = Field::Own(windows(random));
        }
        if matches!(of, 3 | 4) {
            drawn.bucket = Field::Own(bucket(random));
        }
        if random.one_in(3) {
            drawn.quotas = Field::Own(quotas(random));
            drawn.zone = Some((*random.pick(&ZONES)).to_owned());
        }
        drawn.keeps_estimates = random.one_in(6);
        drawn
    }

    /// Constraints of a domain: mostly one field.
    pub fn draw_own(random: &mut Random) -> Self {
        let mut drawn = Self::default();
        match random.below(8) {
            0 => drawn.windows = Field::None,
            1 => drawn.bucket = Field::None,
            2 => drawn.quotas = Field::None,
            3 | 4 => drawn.windows = Field::Own(windows(random)),
            5 => drawn.bucket = Field::Own(bucket(random)),
            6 => drawn.quotas = Field::Own(quotas(random)),
            _ => {
                drawn.windows = Field::Own(windows(random));
                drawn.bucket = Field::Own(bucket(random));
            }
        }
        drawn
    }

    /// Whether a document states none of these fields.
    pub fn says_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it states its own windows or bucket.
    pub fn limits_by_itself(&self) -> bool {
        matches!(self.windows, Field::Own(_)) || matches!(self.bucket, Field::Own(_))
    }

    /// Changes them for the next version.
    pub fn change(&mut self, random: &mut Random) {
        match random.below(8) {
            0 | 1 => {
                if let Field::Own(windows) = &mut self.windows {
                    change_windows(random, windows);
                }
            }
            2 | 3 => {
                if let Field::Own(of) = &mut self.bucket {
                    change_bucket(random, of);
                }
            }
            4 => {
                if let Field::Own(quotas) = &mut self.quotas {
                    quotas[0].0 = random.spread(1, 600);
                }
            }
            5 => {
                if let Some(zone) = &mut self.zone {
                    *zone = (*random.pick(&ZONES)).to_owned();
                }
            }
            6 => {
                let anew = Self::draw(random);
                (self.windows, self.bucket) = (anew.windows, anew.bucket);
            }
            _ => {}
        }
    }

    /// Writes them as in a document.
    pub fn write(&self, text: &mut String) {
        let listed = |all: Vec<String>| format!("[{}]", all.join(", "));
        self.windows.write(text, "windows", |all| {
            let one = |(limit, us): &Window| format!("\"{limit}/{us}us\"");
            listed(all.iter().map(one).collect())
        });
        self.bucket.write(text, "bucket", |of| {
            let (tokens, period_us, burst) = (of.tokens, of.period_us, of.burst);
            let debt = of.debt.map(|debt| format!(", debt = {debt}"));
            let debt = debt.unwrap_or_default();
            format!("{{ rate = \"{tokens}/{period_us}us\", burst = {burst}{debt} }}")
        });
        self.quotas.write(text, "quota", |all| {
            let one = |(limit, unit): &Quota| format!("\"{limit}/{unit}\"");
            listed(all.iter().map(one).collect())
        });
        if let Some(zone) = &self.zone {
            let _ = writeln!(text, "zone = \"{zone}\"");
        }
        if self.keeps_estimates {
            text.push_str("refunds = false\n");
        }
    }
}

fn windows(random: &mut Random) -> Vec<Window> {
    let count = random.between(1, 2);
    (0..count).map(|_| window(random)).collect()
}

fn window(random: &mut Random) -> Window {
    let us = random.spread(20_000, 6_000_000);
    match random.below(25) {
        0 => (0, us),
        // A window whose stamps are rounded.
        1 => (random.between(4_097, 6_000), us),
        _ => (random.spread(1, 200), us),
    }
}

fn bucket(random: &mut Random) -> Bucket {
    let mut drawn = Bucket {
        tokens: random.spread(1, 50),
        period_us: random.spread(20_000, 2_000_000),
        burst: random.spread(1, 200),
        debt: None,
    };
    draw_debt(random, &mut drawn);
    drawn
}

/// Draws a debt of at least what the bucket gains in a quarter of a second, the least that may be stated.
fn draw_debt(random: &mut Random, bucket: &mut Bucket) {
    let least = (bucket.tokens * 250_000).div_ceil(bucket.period_us);
    bucket.debt = random
        .one_in(2)
        .then(|| random.between(least, least + bucket.burst));
}

fn quotas(random: &mut Random) -> Vec<Quota> {
    let mut drawn = vec![(random.spread(1, 600), "day".to_owned())];
    if random.one_in(3) {
        let unit = *random.pick(&["week", "month", "year"]);
        drawn.push((random.spread(1, 900), unit.to_owned()));
    }
    drawn
}

fn change_windows(random: &mut Random, windows: &mut Vec<Window>) {
    let at = random.below(windows.len() as u64) as usize;
    match random.below(5) {
        0 => windows[at].0 /= 2,
        1 => windows[at].0 = windows[at].0 * 2 + 1,
        2 => windows[at].1 = random.spread(20_000, 6_000_000),
        3 if windows.len() < 3 => windows.push(window(random)),
        _ if 1 < windows.len() => drop(windows.swap_remove(at)),
        _ => {}
    }
}

fn change_bucket(random: &mut Random, of: &mut Bucket) {
    match random.below(3) {
        0 => of.burst = random.spread(1, 200),
        1 => of.tokens = random.spread(1, 50),
        _ => of.period_us = random.spread(20_000, 2_000_000),
    }
    // The least debt may have changed.
    draw_debt(random, of);
}
