//! What a model said, and what it wants by it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::ids::short_id;
use crate::prompt::Offer;

/// One message of the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Saying {
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Fields of the message that the provider wants back as they were: its reasoning.
    #[serde(rename = "o", default, skip_serializing_if = "Map::is_empty")]
    pub opaque: Map<String, Value>,
    #[serde(rename = "c", default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ModelCall>,
}

/// One tool call of the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelCall {
    #[serde(rename = "n")]
    pub name: String,
    /// JSON text of an object, or whatever the model wrote instead.
    #[serde(rename = "a")]
    pub arguments: String,
    /// The provider's own id; only calls that go to the client keep it.
    #[serde(skip)]
    pub id: String,
    /// Takes text instead of JSON.
    #[serde(skip)]
    pub is_custom: bool,
    /// As it came, for a client on the same wire.
    #[serde(skip)]
    pub native: Value,
    #[serde(rename = "o", default, skip_serializing_if = "Map::is_empty")]
    pub opaque: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    pub query: String,
    /// As the model said; else [`SearchQuery::LIMIT_DEFAULT`].
    pub limit: Option<usize>,
}

impl SearchQuery {
    pub const LIMIT_DEFAULT: usize = 5;
    const LIMIT_MAX: usize = 50;

    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(SearchQuery::LIMIT_DEFAULT)
    }
}

/// What a model wants by a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Intent {
    /// No calls: this is the answer.
    Answer,
    /// Calls that the client executes, and nothing else.
    Direct,
    /// One program, at this position among the calls; the others are searches, or calls that the client executes.
    Program { at: usize, code: String },
    /// Calls that we answer: searches and mistakes.
    Respond,
}

/// Who answers a call, unless the client does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    Now(String),
    /// The program's result.
    Program,
}

/// A call that is answered instead of being executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mistake {
    OnlyPrograms {
        tool: String,
        expression: String,
        arguments: String,
    },
    Unknown {
        name: String,
        closest: Vec<String>,
    },
    NoCode {
        found: String,
    },
    BrokenArguments {
        name: String,
    },
    SeveralPrograms,
    /// The call is well-formed, but its message is answered as a whole.
    NotExecuted,
    NoQuery,
}

/// What one call means by itself.
#[derive(Debug, Clone, PartialEq)]
enum Meaning {
    Program(String),
    Search(SearchQuery),
    Direct,
    Mistake(Mistake),
}

/// Under this key stand arguments that are not JSON: no provider takes them as they are.
const BROKEN: &str = "not_json";

/// Under this key stands reasoning that the client has brought back by itself: no id carries it.
pub(crate) const ECHOED: &str = "echoed";

/// Reasoning beyond this is not carried: it would not fit into an id that all clients bring back.
const OPAQUE_BYTES_MAX: usize = 12 << 10;

impl Saying {
    pub fn intent(&self, offer: &Offer) -> Intent {
        let meanings: Vec<Meaning> = self.calls.iter().map(|call| call.meaning(offer)).collect();
        let count = |test: fn(&Meaning) -> bool| meanings.iter().filter(|meaning| test(meaning)).count();
        let programs = count(|meaning| matches!(meaning, Meaning::Program(_)));
        let direct = count(|meaning| matches!(meaning, Meaning::Direct));
        let mistakes = count(|meaning| matches!(meaning, Meaning::Mistake(_)));
        if meanings.is_empty() {
            Intent::Answer
        } else if direct == meanings.len() {
            Intent::Direct
        } else if programs == 1 && mistakes == 0 {
            let program = meanings.into_iter().enumerate().find_map(|(at, meaning)| match meaning {
                Meaning::Program(code) => Some(Intent::Program { at, code }),
                _ => None,
            });
            program.unwrap_or(Intent::Respond)
        } else {
            Intent::Respond
        }
    }

    /// Who answers each call, in order.
    pub fn responses(&self, offer: &Offer, search: &dyn Fn(&SearchQuery) -> String) -> Vec<Response> {
        let intent = self.intent(offer);
        let programs = self.calls.iter().filter(|call| matches!(call.meaning(offer), Meaning::Program(_))).count();
        let respond = |call: &ModelCall| match (call.meaning(offer), &intent) {
            (Meaning::Search(query), _) => Response::Now(search(&query)),
            (Meaning::Mistake(mistake), _) => Response::Now(mistake.told(offer)),
            (Meaning::Program(_), Intent::Respond) if programs > 1 => {
                Response::Now(Mistake::SeveralPrograms.told(offer))
            }
            (Meaning::Program(_), Intent::Respond) | (Meaning::Direct, _) => {
                Response::Now(Mistake::NotExecuted.told(offer))
            }
            (Meaning::Program(_), _) => Response::Program,
        };
        self.calls.iter().map(respond).collect()
    }

    /// What it searches for, in order.
    pub fn searches(&self, offer: &Offer) -> Vec<SearchQuery> {
        let query = |call: &ModelCall| match call.meaning(offer) {
            Meaning::Search(query) => Some(query),
            _ => None,
        };
        self.calls.iter().filter_map(query).collect()
    }

    /// Does the model have to be told that something is wrong with its calls?
    pub fn is_mistaken(&self, offer: &Offer) -> bool {
        self.intent(offer) == Intent::Respond
            && !self.calls.iter().all(|call| matches!(call.meaning(offer), Meaning::Search(_)))
    }

    /// Calls that the client executes.
    pub fn direct_calls(&self, offer: &Offer) -> impl Iterator<Item = &ModelCall> {
        self.calls.iter().filter(|call| call.meaning(offer) == Meaning::Direct)
    }

    /// Drops the calls that the client executes: they travel as ordinary calls.
    #[must_use]
    pub fn without_direct(mut self, offer: &Offer) -> Saying {
        self.calls.retain(|call| call.meaning(offer) != Meaning::Direct);
        self
    }

    /// Makes the message fit to be carried after those `before` it, and to be shown to any provider: reasoning that is
    /// too large gives way to what its provider takes instead, and arguments become one JSON object. Reasoning that was
    /// shown once stays: providers check what stands before it.
    #[must_use]
    pub fn normalized(mut self, offer: &Offer, before: &[Saying]) -> Saying {
        if self.text.as_deref().is_some_and(|text| text.trim().is_empty()) {
            self.text = None;
        }
        for call in &mut self.calls {
            call.arguments = match call.meaning(offer) {
                Meaning::Program(code) => json!({"code": code}).to_string(),
                _ if call.is_custom => continue,
                Meaning::Mistake(Mistake::BrokenArguments { .. }) if call.object().is_none() => {
                    json!({BROKEN: call.arguments}).to_string()
                }
                _ => call.object().map_or_else(|| "{}".to_owned(), |object| Value::Object(object).to_string()),
            };
        }
        let taken: usize = before.iter().map(Saying::opaque_bytes).sum();
        self.shorten_reasoning(OPAQUE_BYTES_MAX.saturating_sub(taken));
        self
    }

    fn shorten_reasoning(&mut self, bytes_max: usize) {
        if self.opaque_bytes() > bytes_max {
            self.opaque.remove("reasoning");
        }
        if self.opaque_bytes() > bytes_max {
            self.opaque.remove("reasoning_details");
            if let Some(reasoning) = self.opaque.get_mut("reasoning_content") {
                *reasoning = Value::from("");
            }
            // What the provider's own tools found goes before what the model thought.
            if let Some(Value::Array(blocks)) = self.opaque.get_mut("blocks") {
                let is_kept =
                    |block: &Value| matches!(block["type"].as_str(), Some("text" | "thinking" | "redacted_thinking"));
                blocks.retain(is_kept);
            }
        }
        if self.opaque_bytes() > bytes_max {
            self.opaque.remove("blocks");
            self.drop_provider_items();
        }
        if self.opaque_bytes() > bytes_max {
            self.opaque.remove("items");
        }
        if self.opaque_bytes() > bytes_max {
            for call in &mut self.calls {
                if let Some(signature) = call
                    .opaque
                    .get_mut("extra_content")
                    .and_then(|extra| extra.pointer_mut("/google/thought_signature"))
                {
                    *signature = Value::from("skip_thought_signature_validator");
                }
            }
        }
    }

    /// A thought goes with the provider's item that it led to.
    fn drop_provider_items(&mut self) {
        let Some(Value::Array(items)) = self.opaque.get_mut("items") else { return };
        let mut kept = Vec::new();
        let mut led_to_provider = false;
        for item in std::mem::take(items).into_iter().rev() {
            let is_thought = item["type"] == "reasoning";
            let is_providers = !is_thought && item["type"] != "message";
            if is_providers || is_thought && led_to_provider {
                led_to_provider = true;
            } else {
                led_to_provider = false;
                kept.push(item);
            }
        }
        kept.reverse();
        *items = kept;
    }

    fn opaque_bytes(&self) -> usize {
        let bytes = |opaque: &Map<String, Value>| {
            if opaque.is_empty() { 0 } else { serde_json::to_string(opaque).map_or(0, |json| json.len()) }
        };
        bytes(&self.opaque) + self.calls.iter().map(|call| bytes(&call.opaque)).sum::<usize>()
    }

    /// Ids for the calls, where `before` calls stand earlier in the history.
    pub(crate) fn short_ids(&self, before: usize) -> Vec<String> {
        let id = |(at, call): (usize, &ModelCall)| short_id(&call.name, &call.arguments, before + at);
        self.calls.iter().enumerate().map(id).collect()
    }
}

impl ModelCall {
    fn meaning(&self, offer: &Offer) -> Meaning {
        if offer.is_execute(&self.name) {
            self.program().map_or_else(Meaning::Mistake, Meaning::Program)
        } else if offer.is_search(&self.name) {
            self.query().map_or(Meaning::Mistake(Mistake::NoQuery), Meaning::Search)
        } else if offer.is_direct(&self.name) {
            Meaning::Direct
        } else {
            let arguments = self.object().map_or_else(|| "{…}".to_owned(), |object| Value::Object(object).to_string());
            Meaning::Mistake(offer.cannot_call(&self.name, arguments))
        }
    }

    /// The code, however the model wrapped it.
    fn program(&self) -> Result<String, Mistake> {
        let written = self.arguments.trim();
        let code = match serde_json::from_str(written) {
            Ok(Value::Object(fields)) if fields.contains_key(BROKEN) => {
                return Err(Mistake::BrokenArguments { name: self.name.clone() });
            }
            Ok(Value::Object(fields)) => {
                let texts: Vec<&Value> = fields.values().filter(|value| value.is_string()).collect();
                let code = fields.get("code").or(if texts.len() == 1 { texts.first().copied() } else { None });
                code.and_then(Value::as_str).map(str::to_owned)
            }
            Ok(Value::String(code)) => Some(code),
            Ok(_) => None,
            Err(_) if written.starts_with("{\"") || written.starts_with("{ \"") => {
                return Err(Mistake::BrokenArguments { name: self.name.clone() });
            }
            Err(_) => Some(written.to_owned()),
        };
        code.filter(|code| !code.trim().is_empty()).ok_or_else(|| Mistake::NoCode { found: cut(written) })
    }

    fn query(&self) -> Option<SearchQuery> {
        let object = self.object()?;
        let query = object.get("query")?.as_str()?.trim().to_owned();
        let limit = match object.get("limit") {
            None | Some(Value::Null) => None,
            Some(limit) => {
                let is_fitting = |limit: &usize| (1..=SearchQuery::LIMIT_MAX).contains(limit);
                Some(usize::try_from(limit.as_u64()?).ok().filter(is_fitting)?)
            }
        };
        (!query.is_empty()).then_some(SearchQuery { query, limit })
    }

    fn object(&self) -> Option<Map<String, Value>> {
        match serde_json::from_str(&self.arguments) {
            Ok(Value::Object(fields)) => Some(fields),
            _ => None,
        }
    }
}

impl Mistake {
    /// The result that the model gets.
    fn told(&self, offer: &Offer) -> String {
        let execute = offer.execute();
        let message = match self {
            Mistake::OnlyPrograms { tool, expression, arguments } => format!(
                "`{tool}` cannot be called directly, only from a program; call {execute} with code like: return await {expression}({arguments})"
            ),
            Mistake::Unknown { name, closest } if closest.is_empty() => {
                format!("there is no tool `{name}`; call {execute} with a program that uses the declared functions")
            }
            Mistake::Unknown { name, closest } => format!(
                "there is no tool `{name}`; call {execute} with a program that uses the declared functions, such as {}",
                closest.join(" or ")
            ),
            Mistake::NoCode { found } => {
                format!("{execute} needs the program as text: {{\"code\": \"…\"}}; found {found}")
            }
            Mistake::BrokenArguments { name } => format!(
                "the arguments of {name} are not valid JSON; send {{\"code\": \"…\"}} again, complete and with quotes and line breaks escaped"
            ),
            Mistake::SeveralPrograms => format!(
                "only one program per message can run, and none of these did; put all of it into one call of {execute}, with Promise.all where parts are independent"
            ),
            Mistake::NotExecuted => {
                "not executed, because of another call in the same message; call it again in a message of its own"
                    .to_owned()
            }
            Mistake::NoQuery => {
                format!(
                    "search needs {{\"query\": \"what the tool should do\"}}, and takes \"limit\" from 1 to {}",
                    SearchQuery::LIMIT_MAX
                )
            }
        };
        json!({"status": "error", "error": {"kind": "mistake", "message": message}}).to_string()
    }
}

fn cut(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 80;
    if text.is_empty() {
        return "nothing".to_owned();
    }
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
