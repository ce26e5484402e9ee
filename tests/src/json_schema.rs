//! JSON Schema, of those keywords that the schemas of this repository use: what of a value is not allowed.
//!
//! For tests alone, which have this file in them by its path. Fetches nothing and knows no formats. What stays true: a
//! keyword that it does not know is a panic, so that no schema counts as checked of which a part was passed over.

use serde_json::{Map, Value};

/// What says something about a value, and forbids none.
const ANNOTATIONS: [&str; 5] = ["$schema", "title", "description", "default", "definitions"];

/// A schema, and how it is taken.
#[derive(Clone, Copy)]
pub struct JsonSchema<'a> {
    /// The document that references are looked up in.
    pub document: &'a Value,
    /// Whether a pattern matches a text.
    pub matches: fn(&str, &str) -> bool,
}

impl JsonSchema<'_> {
    /// What of a value a schema does not allow, by path. An object may have the properties alone that are listed, unless
    /// `additionalProperties` says otherwise: so what is written is described as a whole.
    pub fn faults(&self, schema: &Value, value: &Value) -> Vec<String> {
        let mut found = Vec::new();
        self.check(schema, value, "", &mut found);
        found
    }

    fn allows(&self, schema: &Value, value: &Value) -> bool {
        self.faults(schema, value).is_empty()
    }

    fn check(&self, schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
        let keywords = match schema {
            Value::Bool(true) => return,
            Value::Object(keywords) => keywords,
            _ => return found.push(format!("{path}: nothing is allowed here")),
        };
        for (keyword, of) in keywords {
            let is_allowed = match keyword.as_str() {
                "$ref" => {
                    self.check(self.referenced(of), value, path, found);
                    continue;
                }
                "required" => {
                    let names = of.as_array().into_iter().flatten();
                    let names = names.filter_map(Value::as_str);
                    let missing =
                        names.filter(|name| value.is_object() && value.get(name).is_none());
                    found.extend(missing.map(|name| format!("{path}.{name}: missing")));
                    continue;
                }
                "items" => {
                    let items = value.as_array().into_iter().flatten();
                    for (index, item) in items.enumerate() {
                        self.check(of, item, &format!("{path}[{index}]"), found);
                    }
                    continue;
                }
                "properties" | "additionalProperties" => continue,
                known if ANNOTATIONS.contains(&known) => continue,
                "allOf" => {
                    for one in of.as_array().into_iter().flatten() {
                        self.check(one, value, path, found);
                    }
                    continue;
                }
                "anyOf" => {
                    let mut choices = of.as_array().into_iter().flatten();
                    choices.any(|choice| self.allows(choice, value))
                }
                keyword => self.allows_one(keyword, of, value),
            };
            if !is_allowed {
                found.push(format!("{path}: {value}: not of {keyword} {of}"));
            }
        }
        if let Some(object) = value.as_object() {
            self.check_properties(keywords, object, path, found);
        }
    }

    /// Keywords that are about a value alone, and have nothing below them.
    fn allows_one(&self, keyword: &str, of: &Value, value: &Value) -> bool {
        let number = |value: &Value| value.as_f64();
        let count = |len: usize| of.as_u64().map(|bound| (len as u64, bound));
        match keyword {
            "type" => match of {
                Value::Array(kinds) => kinds.iter().any(|kind| is_of(kind, value)),
                kind => is_of(kind, value),
            },
            "const" => of == value,
            "enum" => of.as_array().is_some_and(|values| values.contains(value)),
            "minimum" => number(value).is_none_or(|found| number(of) <= Some(found)),
            "maximum" => number(value).is_none_or(|found| Some(found) <= number(of)),
            "minItems" | "maxItems" => {
                let pair = value.as_array().and_then(|items| count(items.len()));
                pair.is_none_or(|(len, bound)| is_within(keyword, len, bound))
            }
            "minLength" | "maxLength" => {
                let pair = value.as_str().and_then(|text| count(text.chars().count()));
                pair.is_none_or(|(len, bound)| is_within(keyword, len, bound))
            }
            "pattern" => {
                let pattern = of.as_str().expect("a pattern is a text");
                value
                    .as_str()
                    .is_none_or(|text| (self.matches)(pattern, text))
            }
            unknown => panic!("the keyword {unknown} is not known here"),
        }
    }

    fn check_properties(
        &self,
        keywords: &Map<String, Value>,
        object: &Map<String, Value>,
        path: &str,
        found: &mut Vec<String>,
    ) {
        let listed = keywords.get("properties");
        let others = keywords.get("additionalProperties");
        for (name, value) in object {
            let path = format!("{path}.{name}");
            match (listed.and_then(|listed| listed.get(name)), others) {
                (Some(schema), _) | (None, Some(schema)) => self.check(schema, value, &path, found),
                (None, None) if listed.is_some() => found.push(format!("{path}: not described")),
                (None, None) => {}
            }
        }
    }

    fn referenced(&self, reference: &Value) -> &Value {
        let pointer = reference.as_str().and_then(|text| text.strip_prefix('#'));
        let found = pointer.and_then(|pointer| self.document.pointer(pointer));
        found.unwrap_or_else(|| panic!("{reference}: nothing is there"))
    }
}

fn is_within(keyword: &str, len: u64, bound: u64) -> bool {
    match keyword.starts_with("min") {
        true => bound <= len,
        false => len <= bound,
    }
}

fn is_of(kind: &Value, value: &Value) -> bool {
    match kind.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => panic!("{kind}: not a type"),
    }
}
