//! Reasoning that a provider wants back in later requests, in the form in which it came.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// What one protocol's providers want back of a message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ProviderReasoning {
    /// Fields of a Chat Completions message, such as `reasoning_content`.
    ChatFields(Map<String, Value>),
    /// Items of a Responses output: reasoning, and what the provider's own tools did.
    ResponseItems(Vec<Value>),
    /// Content blocks of a Messages message, in order.
    MessageBlocks(Vec<Value>),
}

/// The reasoning of one message. It has more than one part only where the model was switched to another wire in the
/// middle of a conversation; each provider is sent the part that it understands.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reasoning(Vec<ProviderReasoning>);

/// The serialised form is a map: Chat fields under their own names, items and blocks under these.
const ITEMS: &str = "items";
const BLOCKS: &str = "blocks";
const CHAT_FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_details"];

/// Begins the text in which a client on another wire carries reasoning.
const CARRIED_PREFIX: &str = "dcr1_";

impl Reasoning {
    /// Of a Chat Completions message: all fields that providers want back.
    pub(crate) fn from_chat_fields(message: &Map<String, Value>) -> Reasoning {
        let known = CHAT_FIELDS.iter().filter_map(|key| Some((*key, message.get(*key)?)));
        let fields: Map<String, Value> =
            known.filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.to_owned(), value.clone())).collect();
        Reasoning(if fields.is_empty() { Vec::new() } else { vec![ProviderReasoning::ChatFields(fields)] })
    }

    /// Known by its text alone.
    pub(crate) fn from_text(text: &str) -> Reasoning {
        let fields = Map::from_iter([(CHAT_FIELDS[0].to_owned(), Value::from(text))]);
        Reasoning(vec![ProviderReasoning::ChatFields(fields)])
    }

    pub(crate) fn from_items(items: Vec<Value>) -> Reasoning {
        Reasoning(if items.is_empty() { Vec::new() } else { vec![ProviderReasoning::ResponseItems(items)] })
    }

    pub(crate) fn from_blocks(blocks: Vec<Value>) -> Reasoning {
        Reasoning(if blocks.is_empty() { Vec::new() } else { vec![ProviderReasoning::MessageBlocks(blocks)] })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the parts of `other`, which replace those of the same kind.
    pub(crate) fn extend(&mut self, other: Reasoning) {
        for part in other.0 {
            let kind = std::mem::discriminant(&part);
            match self.0.iter_mut().find(|known| std::mem::discriminant(*known) == kind) {
                Some(known) => *known = part,
                None => self.0.push(part),
            }
        }
    }

    pub(crate) fn chat_fields(&self) -> Option<&Map<String, Value>> {
        self.0.iter().find_map(|part| match part {
            ProviderReasoning::ChatFields(fields) => Some(fields),
            _ => None,
        })
    }

    /// Whether a provider of another wire than Chat Completions wants something back.
    pub(crate) fn has_other_than_chat(&self) -> bool {
        self.0.iter().any(|part| !matches!(part, ProviderReasoning::ChatFields(_)))
    }

    pub(crate) fn items(&self) -> &[Value] {
        let items = self.0.iter().find_map(|part| match part {
            ProviderReasoning::ResponseItems(items) => Some(items.as_slice()),
            _ => None,
        });
        items.unwrap_or_default()
    }

    pub(crate) fn blocks(&self) -> Option<&[Value]> {
        self.0.iter().find_map(|part| match part {
            ProviderReasoning::MessageBlocks(blocks) => Some(blocks.as_slice()),
            _ => None,
        })
    }

    /// Text that brings the reasoning back as it was, for the opaque field of a client's wire. The provider checks what
    /// comes back, so it is not sealed.
    pub(crate) fn to_carried(&self) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        format!("{CARRIED_PREFIX}{}", URL_SAFE_NO_PAD.encode(json))
    }

    /// `None` for anything that [`Reasoning::to_carried`] did not make.
    pub(crate) fn from_carried(text: &str) -> Option<Reasoning> {
        let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(CARRIED_PREFIX)?).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(crate) fn json_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { serde_json::to_string(self).map_or(0, |json| json.len()) }
    }

    /// Makes room step by step, least important first, until `fits` says that it is enough.
    pub(crate) fn shrink(&mut self, mut fits: impl FnMut(&Reasoning) -> bool) {
        let steps: [fn(&mut Reasoning); 4] = [
            |reasoning| {
                if let Some(fields) = reasoning.chat_fields_mut() {
                    fields.shift_remove("reasoning");
                }
            },
            |reasoning| {
                if let Some(fields) = reasoning.chat_fields_mut() {
                    fields.shift_remove("reasoning_details");
                    if let Some(text) = fields.get_mut("reasoning_content") {
                        *text = Value::from("");
                    }
                }
                // What the provider's own tools found goes before what the model reasoned.
                if let Some(blocks) = reasoning.blocks_mut() {
                    let is_kept = |block: &Value| {
                        matches!(block["type"].as_str(), Some("text" | "thinking" | "redacted_thinking"))
                    };
                    blocks.retain(is_kept);
                }
            },
            |reasoning| {
                reasoning.0.retain(|part| !matches!(part, ProviderReasoning::MessageBlocks(_)));
                if let Some(items) = reasoning.items_mut() {
                    drop_server_tool_items(items);
                }
            },
            |reasoning| reasoning.0.retain(|part| !matches!(part, ProviderReasoning::ResponseItems(_))),
        ];
        for step in steps {
            if fits(self) {
                return;
            }
            step(self);
            self.0.retain(|part| !matches!(part, ProviderReasoning::ChatFields(fields) if fields.is_empty()));
        }
    }

    fn chat_fields_mut(&mut self) -> Option<&mut Map<String, Value>> {
        self.0.iter_mut().find_map(|part| match part {
            ProviderReasoning::ChatFields(fields) => Some(fields),
            _ => None,
        })
    }

    fn items_mut(&mut self) -> Option<&mut Vec<Value>> {
        self.0.iter_mut().find_map(|part| match part {
            ProviderReasoning::ResponseItems(items) => Some(items),
            _ => None,
        })
    }

    fn blocks_mut(&mut self) -> Option<&mut Vec<Value>> {
        self.0.iter_mut().find_map(|part| match part {
            ProviderReasoning::MessageBlocks(blocks) => Some(blocks),
            _ => None,
        })
    }
}

/// Drops items of the provider's own tools, and the reasoning that led to each: providers refuse one without the other.
fn drop_server_tool_items(items: &mut Vec<Value>) {
    let mut kept = Vec::new();
    let mut follows_dropped = false;
    for item in std::mem::take(items).into_iter().rev() {
        let is_reasoning = item["type"] == "reasoning";
        let is_server_tool = !is_reasoning && item["type"] != "message";
        follows_dropped = is_server_tool || is_reasoning && follows_dropped;
        if !follows_dropped {
            kept.push(item);
        }
    }
    kept.reverse();
    *items = kept;
}

impl Serialize for Reasoning {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().flat_map(|part| {
            let entries: Vec<(&str, MapValue<'_>)> = match part {
                ProviderReasoning::ChatFields(fields) => {
                    fields.iter().map(|(key, value)| (key.as_str(), MapValue::One(value))).collect()
                }
                ProviderReasoning::ResponseItems(items) => vec![(ITEMS, MapValue::Many(items))],
                ProviderReasoning::MessageBlocks(blocks) => vec![(BLOCKS, MapValue::Many(blocks))],
            };
            entries
        }))
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum MapValue<'a> {
    One(&'a Value),
    Many(&'a [Value]),
}

impl<'de> Deserialize<'de> for Reasoning {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Reasoning, D::Error> {
        let map: Map<String, Value> = Map::deserialize(deserializer)?;
        let mut reasoning = Reasoning::default();
        // Empty lists and the order of the parts are kept: the id of a run is a hash of the bytes of its state.
        for (key, value) in map {
            match (key.as_str(), value) {
                (ITEMS, Value::Array(items)) => reasoning.0.push(ProviderReasoning::ResponseItems(items)),
                (BLOCKS, Value::Array(blocks)) => reasoning.0.push(ProviderReasoning::MessageBlocks(blocks)),
                (ITEMS | BLOCKS, _) => return Err(D::Error::custom(format!("`{key}` must be an array"))),
                (name, value) if CHAT_FIELDS.contains(&name) && !value.is_null() => match reasoning.chat_fields_mut() {
                    Some(fields) => _ = fields.insert(key, value),
                    None => reasoning.0.push(ProviderReasoning::ChatFields(Map::from_iter([(key, value)]))),
                },
                _ => {}
            }
        }
        Ok(reasoning)
    }
}
