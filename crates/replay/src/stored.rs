//! Values that programs keep for later programs of the same conversation.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::json_text::JsonText;

/// What programs have kept with `store(name, value)`, by name. The step function takes it and gives it back; nothing else
/// keeps it.
///
/// ```
/// use dacapo_replay::{JsonText, StoredValues};
/// let mut stored = StoredValues::default();
/// stored.insert("rate", JsonText::parse("1.25").expect("it is JSON"));
/// assert_eq!(serde_json::to_string(&stored).expect("it is JSON"), r#"{"rate":1.25}"#);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredValues {
    values: BTreeMap<String, JsonText>,
    /// Of all names and values.
    bytes: usize,
}

impl StoredValues {
    /// Nothing is kept yet.
    pub const fn new() -> StoredValues {
        StoredValues { values: BTreeMap::new(), bytes: 0 }
    }

    /// Keeps a value, in place of one of the same name.
    pub fn insert(&mut self, name: impl Into<String>, value: JsonText) {
        let name = name.into();
        self.remove(&name);
        self.bytes += name.len() + value.as_str().len();
        self.values.insert(name, value);
    }

    /// Forgets a value.
    pub fn remove(&mut self, name: &str) {
        if let Some(value) = self.values.remove(name) {
            self.bytes -= name.len() + value.as_str().len();
        }
    }

    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&JsonText> {
        self.values.get(name)
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Size of all names and values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A digest that differs for values that differ.
    pub fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix(b"dacapo stored 1\0");
        for text in self.values.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]) {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        hash.finalize().into()
    }
}

impl Serialize for StoredValues {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // JSON that was read is JSON.
        let raw = |value: &JsonText| RawValue::from_string(value.as_str().to_owned()).ok();
        serializer.collect_map(self.values.iter().map(|(name, value)| (name, raw(value))))
    }
}
