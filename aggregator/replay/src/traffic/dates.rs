//! Dates as access logs write them.
//!
//! ```text
//! 20/Feb/2016:00:00:45 -0500
//! ```
//!
//! What stays true: the result does not depend on dates read before.

use tollgate_shared::time::Timestamp;

/// The date read last. Neighbouring lines mostly have the same minute, and parsing a date costs
/// more than the rest of a line together.
#[derive(Debug, Default)]
pub(super) struct LastDate {
    text: Vec<u8>,
    at: Timestamp,
}

/// The position of the seconds in `20/Feb/2016:00:00:45 -0500`.
const SECONDS: std::ops::Range<usize> = 18..20;

impl LastDate {
    pub(super) fn parse(&mut self, text: &[u8]) -> Option<Timestamp> {
        if let Some(at) = self.same_minute(text) {
            return Some(at);
        }
        let at = parse_date(text)?;
        self.text.clear();
        self.text.extend_from_slice(text);
        self.at = at;
        Some(at)
    }

    /// The instant, if the text differs from the last one in its seconds at most.
    fn same_minute(&self, text: &[u8]) -> Option<Timestamp> {
        let last = &self.text[..];
        let same = text.len() == last.len()
            && text.get(..SECONDS.start)? == last.get(..SECONDS.start)?
            && text.get(SECONDS.end..)? == last.get(SECONDS.end..)?;
        let (now, then) = (two_digits(text)?, two_digits(last)?);
        let seconds = i64::from(now) - i64::from(then);
        same.then(|| self.at.saturating_offset(seconds * 1_000_000))
    }
}

/// The seconds of a date; `None` from 60 on, which needs the full parser.
fn two_digits(date: &[u8]) -> Option<u8> {
    let [tens @ b'0'..=b'5', ones @ b'0'..=b'9'] = *date.get(SECONDS)? else {
        return None;
    };
    Some((tens - b'0') * 10 + (ones - b'0'))
}

fn parse_date(text: &[u8]) -> Option<Timestamp> {
    let parsed = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?;
    let micros = parsed.to_timestamp().ok()?.as_microsecond();
    u64::try_from(micros).ok().map(Timestamp::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_read_the_same_beside_any_other() {
        let dates = [
            "20/Feb/2016:00:00:45 -0500",
            "20/Feb/2016:00:00:03 -0500",
            "20/Feb/2016:00:00:59 -0500",
            "20/Feb/2016:00:01:00 -0500",
            "20/Feb/2016:00:01:00 -0400",
            "01/Jan/1970:00:00:10 +0000",
            "01/Jan/1970:00:00:10 +0100",
            "20/Feb/2016:00:00:x9 -0500",
            "20/Feb/2016:00:00:61 -0500",
            "31/Feb/2016:00:00:01 -0500",
        ];
        for first in dates {
            let mut last = LastDate::default();
            last.parse(first.as_bytes());
            for second in dates {
                let alone = LastDate::default().parse(second.as_bytes());
                assert_eq!(last.parse(second.as_bytes()), alone, "{first} {second}");
            }
        }
    }
}
