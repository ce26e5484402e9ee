//! Where a value stands in YAML.
//!
//! ```text
//! [descriptors, 0, rate_limit, unit]  ──>  at line 4 column 13
//! ```
//!
//! The parser states positions only in its errors. So the text is read once more up to the value, and this reading
//! fails there on purpose. Knows nothing of limits. What stays true: a value that the text does not have gets the
//! position of the nearest one around it.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A step from a value to one within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum YamlStep {
    Key(&'static str),
    Item(usize),
}

/// A fault of a value, with its position in the text.
pub(super) fn located(text: &str, path: &[YamlStep], fault: &str) -> String {
    let mut around = (0..=path.len()).rev().filter_map(|steps| path.get(..steps));
    let found = around.find_map(|path| {
        let yaml = serde_yaml_ng::Deserializer::from_str(text);
        YamlSearch(path).deserialize(yaml).err()?.location()
    });
    match found {
        Some(at) => format!("{fault} at line {} column {}", at.line(), at.column()),
        None => fault.to_owned(),
    }
}

/// A search for the value at the end of a path, which fails where it finds the value.
struct YamlSearch<'p>(&'p [YamlStep]);

impl<'de> DeserializeSeed<'de> for YamlSearch<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for YamlSearch<'_> {
    type Value = ();

    // A scalar is not expected at all, so it fails wherever it is found.
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((YamlStep::Key(wanted), rest)) = self.0.split_first() else {
            return Err(A::Error::custom("found"));
        };
        while let Some(key) = map.next_key::<String>()? {
            match key == *wanted {
                true => map.next_value_seed(YamlSearch(rest))?,
                false => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Some((YamlStep::Item(wanted), rest)) = self.0.split_first() else {
            return Err(A::Error::custom("found"));
        };
        for _ in 0..*wanted {
            items.next_element::<IgnoredAny>()?;
        }
        items.next_element_seed(YamlSearch(rest))?;
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_its_line_or_that_of_what_is_around_it() {
        const TEXT: &str = "domain: a\nlist:\n- key: x\n- key: y\n  limit:\n    unit: day\n";
        use YamlStep::{Item, Key};

        for (path, line, column) in [
            (
                &[Key("list"), Item(1), Key("limit"), Key("unit")][..],
                6,
                11,
            ),
            (&[Key("list"), Item(1), Key("limit"), Key("hits")], 6, 5),
            (&[Key("list"), Item(0)], 3, 3),
            (&[Key("list"), Item(7)], 3, 1),
            (&[], 1, 1),
        ] {
            let expected = format!("x at line {line} column {column}");
            assert_eq!(located(TEXT, path, "x"), expected, "{path:?}");
        }
    }
}
