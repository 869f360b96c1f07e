//! A JSON Schema as the owner of a tool wrote it.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::schema::is_deeper_than;

/// What is nested deeper could be written as text, but not be read again.
const TEXT_DEPTH_MAX: usize = 100;

/// A JSON Schema of a tool. It reads as a JSON value.
///
/// As text it takes a fifth of the room, so long lists hold it as text until somebody needs it as a value.
///
/// ```
/// use dacapo_catalog::ToolSchema;
/// let schema = ToolSchema::as_text(&serde_json::json!({"type": "object"}));
/// assert_eq!(schema["type"], "object");
/// ```
#[derive(Clone)]
pub struct ToolSchema {
    /// Absent where only the value is held.
    text: Option<Box<str>>,
    value: OnceLock<Box<Value>>,
}

impl ToolSchema {
    /// Holds the schema as text until it is needed.
    pub fn as_text(schema: &Value) -> ToolSchema {
        if is_deeper_than(schema, TEXT_DEPTH_MAX) {
            return ToolSchema::from(schema.clone());
        }
        ToolSchema { text: Some(schema.to_string().into()), value: OnceLock::new() }
    }

    /// The schema for a reader who passes over many: what is held as text stays so.
    pub fn passing(&self) -> Cow<'_, Value> {
        match (self.value.get(), &self.text) {
            (None, Some(text)) => Cow::Owned(read(text)),
            _ => Cow::Borrowed(self),
        }
    }
}

impl Deref for ToolSchema {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.value.get_or_init(|| Box::new(self.text.as_deref().map(read).unwrap_or_default()))
    }
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).expect("it was written from a value, and is not too deep")
}

impl From<Value> for ToolSchema {
    fn from(schema: Value) -> ToolSchema {
        ToolSchema { text: None, value: OnceLock::from(Box::new(schema)) }
    }
}

impl PartialEq for ToolSchema {
    fn eq(&self, other: &ToolSchema) -> bool {
        self.passing() == other.passing()
    }
}

/// As JSON.
impl fmt::Display for ToolSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => write!(f, "{}", **self),
        }
    }
}

impl fmt::Debug for ToolSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.passing(), f)
    }
}

impl Serialize for ToolSchema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.passing().serialize(serializer)
    }
}
