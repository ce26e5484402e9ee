//! The same limits at another speed: to replay recorded traffic in less time than it took.
//!
//! ```text
//! 60 times as fast   100 in 10s, hard 200/s   ->   100 in 166666us, hard 12000/s
//! ```
//!
//! Durations shrink, limits per second grow, limits of windows stay. What stays true: tiers stay normalised.

use std::num::NonZeroU32;

use tollgate_shared::time::Span;

use super::assemble::{OverridesDraft, assemble};
use super::path::{Path, PathStep};
use super::rate::{Bucket, Tier};
use super::settings::BlindPolicy;
use super::stated::Stated;
use super::units::greatest_common_divisor;
use super::units::print_span;
use super::version::Limits;

/// The shortest window for a replay: below it the delay of a denial, some milliseconds, would dominate the
/// measurement.
pub const SCALED_WINDOW_MIN: Span = Span::from_millis(100);

/// A window that would become too short.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{path} = \"{}\": at {speed} times the speed it is {}, expected at least {}",
    print_span(*.window), print_span(*.scaled), print_span(SCALED_WINDOW_MIN)
)]
pub struct ScaleFault {
    /// The path to it, as in `resource "http.requests": tier[1].window`.
    pub path: Box<str>,
    /// The window as configured.
    pub window: Span,
    /// The window after scaling.
    pub scaled: Span,
    /// The speed that was asked for.
    pub speed: NonZeroU32,
}

impl Limits {
    /// These limits for a replay at `speed` times the original speed.
    ///
    /// Durations are divided and rounded down to microseconds, hard, global and local limits
    /// multiplied. The engine's own settings stay: its agents live in real time.
    ///
    /// # Errors
    ///
    /// [`ScaleFault`] names the first window that would be shorter than [`SCALED_WINDOW_MIN`].
    pub fn scaled(&self, speed: NonZeroU32) -> Result<Self, ScaleFault> {
        if speed.get() == 1 {
            return Ok(self.clone());
        }
        let scale = Scale { speed };
        let mut draft = self.to_draft();
        for rate in &mut draft.rates {
            let resource = Path::DOCUMENT.then(PathStep::Named("resource", &rate.name));
            scale
                .stated(&mut rate.default)
                .map_err(|short| short.at(&resource))?;
            if let Some(candidate) = &mut rate.candidate {
                let path = resource.then(PathStep::Section("candidate"));
                scale.stated(candidate).map_err(|short| short.at(&path))?;
            }
            let OverridesDraft {
                domains,
                stated_of,
                stated,
            } = &mut rate.overrides;
            for (number, stated) in stated.iter_mut().enumerate() {
                scale.stated(stated).map_err(|short| {
                    let who = stated_of.iter().position(|&of| of as usize == number);
                    let domain = who.map_or("", |domain| domains.name(domain));
                    short.at(&resource.then(PathStep::Named("domain", domain)))
                })?;
            }
            rate.global = rate.global.map(|global| scale.count(global));
            rate.blind = rate.blind.map(|blind| scale.blind(blind));
        }
        for copies in &mut draft.copies {
            copies.max_age = copies.max_age.map(|age| scale.span(age));
        }
        draft.namespaces.default.blind = scale.blind(draft.namespaces.default.blind);
        for namespace in draft.namespaces.named.values_mut() {
            namespace.blind = scale.blind(namespace.blind);
        }
        Ok(assemble(draft))
    }
}

/// A fault whose path is not known yet.
struct TooShort {
    of: PathStep<'static>,
    field: Option<&'static str>,
    window: Span,
    scaled: Span,
    speed: NonZeroU32,
}

impl TooShort {
    fn at(self, owner: &Path<'_>) -> ScaleFault {
        let of = owner.then(self.of);
        let path = match self.field {
            Some(field) => of.then(PathStep::Field(field)).to_string(),
            None => of.to_string(),
        };
        ScaleFault {
            path: path.into(),
            window: self.window,
            scaled: self.scaled,
            speed: self.speed,
        }
    }
}

struct Scale {
    speed: NonZeroU32,
}

impl Scale {
    fn span(&self, span: Span) -> Span {
        Span::from_micros(span.as_micros() / u64::from(self.speed.get()))
    }

    fn count(&self, hits: u64) -> u64 {
        hits.saturating_mul(u64::from(self.speed.get()))
    }

    fn blind(&self, blind: BlindPolicy) -> BlindPolicy {
        match blind {
            BlindPolicy::Local(mut rate) => {
                // An agent's own limiter counts in 32 bits.
                rate.hits = self.count(rate.hits).min(u64::from(u32::MAX));
                BlindPolicy::Local(rate)
            }
            open_or_closed => open_or_closed,
        }
    }

    fn stated(&self, stated: &mut Stated) -> Result<(), TooShort> {
        let short = |name, index: usize, window, scaled| TooShort {
            of: PathStep::item(name, index),
            field: (name == "tier").then_some("window"),
            window,
            scaled,
            speed: self.speed,
        };
        if let Some(hard) = stated.hard.value_mut() {
            *hard = self.count(*hard);
        }
        let windows = stated.windows.value_mut().into_iter().flatten();
        for (index, of) in windows.enumerate() {
            let scaled = self.window(of.window);
            let before = of.window;
            of.window = scaled.map_err(|scaled| short("windows", index, before, scaled))?;
        }
        let tiers = stated.tiers.value_mut().into_iter().flatten();
        for (index, tier) in tiers.enumerate() {
            let scaled = self.tier(*tier);
            let before = tier.window;
            *tier = scaled.map_err(|scaled| short("tier", index, before, scaled))?;
        }
        if let Some(bucket) = stated.bucket.value_mut() {
            *bucket = self.bucket(*bucket);
        }
        // A quota's period is a day or longer and begins by a calendar, whatever the speed.
        Ok(())
    }

    /// The scaled window; an error with its length if that is too short.
    fn window(&self, window: Span) -> Result<Span, Span> {
        let scaled = self.span(window);
        match scaled < SCALED_WINDOW_MIN {
            true => Err(scaled),
            false => Ok(scaled),
        }
    }

    /// A bucket that fills as many times as fast; its burst and debt stay.
    fn bucket(&self, bucket: Bucket) -> Bucket {
        let tokens = self.count(bucket.tokens);
        let shared = greatest_common_divisor(tokens, bucket.period.as_micros());
        Bucket {
            tokens: tokens / shared,
            period: Span::from_micros(bucket.period.as_micros() / shared),
            ..bucket
        }
    }

    /// The scaled tier; an error with the window's length if that is too short.
    fn tier(&self, tier: Tier) -> Result<Tier, Span> {
        let window = self.window(tier.window)?;
        // As many whole windows as before; dividing window and active time separately could leave a part of a
        // window.
        let windows = tier.active.as_micros() / tier.window.as_micros().max(1);
        Ok(Tier {
            window,
            active: Span::from_micros(window.as_micros().saturating_mul(windows)),
            cooldown: self.span(tier.cooldown),
            ..tier
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(times: u32) -> NonZeroU32 {
        NonZeroU32::new(times).expect("a speed is not zero")
    }

    const TEXT: &str = r#"
        [rate.x]
        hard = "200/s"
        global = "1000/s"
        blind = { local = "2/s" }
        tiers = [{ limit = 100, window = "10s", active = "30s", cooldown = "1m" }]
        candidate = { rate = "50/m" }
        domains = { a = { rate = "9/m" }, b = { hard = "3/s" } }
    "#;

    #[test]
    fn durations_shrink_and_what_counts_per_second_grows() {
        let limits = Limits::parse(TEXT).expect("it is right");
        let fast = limits.scaled(speed(60)).expect("no window gets too short");
        let expected = Limits::parse(
            r#"
            [rate.x]
            hard = "12000/s"
            global = "60000/s"
            blind = { local = "120/s" }
            tiers = [{ limit = 100, window = "166666us", active = "499998us", cooldown = "1s" }]
            candidate = { rate = "50/s" }
            domains = { a = { rate = "9/s" }, b = { hard = "180/s" } }
            "#,
        );
        assert_eq!(Ok(fast), expected);
        assert_eq!(limits.scaled(speed(1)), Ok(limits));
    }

    #[test]
    fn a_window_that_would_be_too_short_is_named() {
        let limits = Limits::parse(TEXT).expect("it is right");
        assert!(limits.scaled(speed(100)).is_ok());
        let fault = limits.scaled(speed(101)).expect_err("10s by 101");
        assert_eq!(
            fault.to_string(),
            "resource \"x\": tier[1].window = \"10s\": at 101 times the speed it is 99ms9us, \
             expected at least 100ms"
        );
        let own = Limits::parse("rate.x = { rate = \"1/h\", domains.\"a.b\".rate = \"5/s\" }");
        let fault = own
            .expect("it is right")
            .scaled(speed(60))
            .expect_err("1s by 60");
        assert!(
            fault
                .to_string()
                .starts_with("resource \"x\": domain \"a.b\": windows[0]"),
            "{fault}"
        );
    }
}
