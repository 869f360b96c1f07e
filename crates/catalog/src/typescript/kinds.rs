//! The kinds of value that a schema allows.

use serde_json::Value;

use super::keywords::Keywords;

/// A set of the kinds of value that JSON has. Whole numbers are no kind of their own here, because
/// TypeScript has one type for all numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds(u8);

impl Kinds {
    pub(super) const STRING: Kinds = Kinds(1);
    pub(super) const NUMBER: Kinds = Kinds(1 << 1);
    pub(super) const BOOLEAN: Kinds = Kinds(1 << 2);
    pub(super) const ARRAY: Kinds = Kinds(1 << 3);
    pub(super) const OBJECT: Kinds = Kinds(1 << 4);
    pub(super) const NULL: Kinds = Kinds(1 << 5);
    pub(super) const NONE: Kinds = Kinds(0);
    pub(super) const ALL: Kinds = Kinds((1 << 6) - 1);

    /// What `type` and `nullable` say; `None` where they say nothing.
    pub(super) fn declared(keywords: &Keywords) -> Result<Option<Kinds>, String> {
        let declared = match keywords.types {
            None => return Ok(None),
            Some(Value::String(name)) => Kinds::named(name)?,
            Some(Value::Array(names)) => {
                let mut kinds = Kinds::NONE;
                for name in names {
                    let name = name.as_str().ok_or_else(|| "`type` is no list of names".to_owned())?;
                    kinds = kinds.with(Kinds::named(name)?);
                }
                kinds
            }
            Some(_) => return Err("`type` is neither a name nor a list of names".to_owned()),
        };
        Ok(Some(if keywords.is_nullable() { declared.with(Kinds::NULL) } else { declared }))
    }

    /// What a schema without `type` was written for, in a place for these kinds of value.
    pub(super) fn implied_in(keywords: &Keywords, place: Kinds) -> Kinds {
        if place == Kinds::ALL { Kinds::implied(keywords) } else { place }
    }

    fn implied(keywords: &Keywords) -> Kinds {
        let has = |values: &[Option<&Value>]| values.iter().any(Option::is_some);
        let for_objects =
            [keywords.additional_properties, keywords.pattern_properties, keywords.properties, keywords.required];
        match (has(&for_objects), has(&[keywords.items, keywords.prefix_items])) {
            (true, true) => Kinds::OBJECT.with(Kinds::ARRAY),
            (true, false) => Kinds::OBJECT,
            (false, true) => Kinds::ARRAY,
            (false, false) => Kinds::ALL,
        }
    }

    pub(super) fn of(value: &Value) -> Kinds {
        match value {
            Value::Null => Kinds::NULL,
            Value::Bool(_) => Kinds::BOOLEAN,
            Value::Number(_) => Kinds::NUMBER,
            Value::String(_) => Kinds::STRING,
            Value::Array(_) => Kinds::ARRAY,
            Value::Object(_) => Kinds::OBJECT,
        }
    }

    pub(super) fn with(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    pub(super) fn contains(self, other: Kinds) -> bool {
        self.0 & other.0 == other.0
    }

    fn named(name: &str) -> Result<Kinds, String> {
        Ok(match name {
            "string" => Kinds::STRING,
            "number" | "integer" => Kinds::NUMBER,
            "boolean" => Kinds::BOOLEAN,
            "array" => Kinds::ARRAY,
            "object" => Kinds::OBJECT,
            "null" => Kinds::NULL,
            _ => return Err(format!("`type` {name:?} is unknown")),
        })
    }
}
