//! A message of the model, and what it means.

use dacapo_catalog::{ANSWER_TOKENS_DEFAULT, SearchText, shorten};
use dacapo_replay::unescaped_program;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::ids::short_id;
use crate::near_json;
use crate::prompt::ModelTools;
use crate::reasoning::Reasoning;
use crate::state;

/// One message of the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelMessage {
    /// What it says beside its calls, or as its answer.
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What its provider wants back of its thinking.
    #[serde(rename = "o", default, skip_serializing_if = "Reasoning::is_empty")]
    pub reasoning: Reasoning,
    /// In the order in which it made them.
    #[serde(rename = "c", default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ModelCall>,
    /// What the client sent back of the message itself. It is in the history, so no id carries it.
    #[serde(skip)]
    pub client_echo: ClientEcho,
}

/// Parts of a model's message that the client's history holds, and the sealed state does not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClientEcho {
    /// Content blocks, reasoning among them, that were too large for an id.
    pub(crate) blocks: Option<Vec<Value>>,
    /// Where the client wants its provider to cache.
    pub(crate) cache_control: Option<Value>,
}

/// One tool call of the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelCall {
    /// The tool, as the model named it.
    #[serde(rename = "n")]
    pub name: String,
    /// JSON text of an object, or whatever the model wrote instead.
    #[serde(rename = "a")]
    pub arguments: String,
    /// The provider's own id; only calls that go to the client keep it.
    #[serde(skip)]
    pub id: String,
    /// What the arguments are.
    #[serde(skip)]
    pub format: CallFormat,
    /// As it came, for a client on the same wire.
    #[serde(skip)]
    pub native: Value,
    /// What its provider wants back with it.
    #[serde(rename = "o", default, skip_serializing_if = "CallExtra::is_none")]
    pub extra: CallExtra,
}

/// What the arguments of a call are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallFormat {
    /// A JSON object.
    #[default]
    Json,
    /// Plain text: a call of a custom tool.
    Text,
}

/// What a provider wants back with a call, besides its name and arguments. The serialised form is a map.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Map<String, Value>", into = "Map<String, Value>")]
pub enum CallExtra {
    /// Nothing.
    #[default]
    None,
    /// `extra_content` of a Chat Completions call: Gemini keeps its thought signatures there.
    ExtraContent(Value),
    /// The model wrote the call as plain text. Its arguments were made JSON, as all wires can carry that.
    WrittenAsText,
}

impl CallExtra {
    pub(crate) const EXTRA_CONTENT: &str = "extra_content";
    const WRITTEN_AS_TEXT: &str = "custom";

    fn is_none(&self) -> bool {
        *self == CallExtra::None
    }

    /// Of a Chat Completions call.
    pub(crate) fn of_chat_call(call: &Value) -> CallExtra {
        let extra = call.get(CallExtra::EXTRA_CONTENT).filter(|extra| !extra.is_null());
        extra.map_or(CallExtra::None, |extra| CallExtra::ExtraContent(extra.clone()))
    }

    fn json_bytes(&self) -> usize {
        if self.is_none() { 0 } else { serde_json::to_string(self).map_or(0, |json| json.len()) }
    }
}

impl From<Map<String, Value>> for CallExtra {
    fn from(mut map: Map<String, Value>) -> CallExtra {
        match map.shift_remove(CallExtra::EXTRA_CONTENT) {
            Some(extra) => CallExtra::ExtraContent(extra),
            None if map.contains_key(CallExtra::WRITTEN_AS_TEXT) => CallExtra::WrittenAsText,
            None => CallExtra::None,
        }
    }
}

impl From<CallExtra> for Map<String, Value> {
    fn from(extra: CallExtra) -> Map<String, Value> {
        let entry = match extra {
            CallExtra::None => None,
            CallExtra::ExtraContent(extra) => Some((CallExtra::EXTRA_CONTENT.to_owned(), extra)),
            CallExtra::WrittenAsText => Some((CallExtra::WRITTEN_AS_TEXT.to_owned(), Value::Bool(true))),
        };
        entry.into_iter().collect()
    }
}

/// A call of the tool `search`: what the model is looking for, and how much of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    /// One query, or several.
    pub text: SearchText,
    /// As the model said; else [`SearchQuery::LIMIT_DEFAULT`].
    pub limit: Option<usize>,
}

impl SearchQuery {
    /// How many functions are found for a query that does not say it.
    pub const LIMIT_DEFAULT: usize = 5;
    const LIMIT_MAX: usize = 50;

    /// How many functions to find.
    pub fn limit(&self) -> usize {
        self.text.hits(self.limit.unwrap_or(SearchQuery::LIMIT_DEFAULT))
    }

    /// Tokens that the answer may take, about.
    pub fn tokens_max(&self) -> usize {
        self.text.tokens(ANSWER_TOKENS_DEFAULT)
    }
}

/// What a message of the model asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Intent {
    /// No calls: this is the answer.
    Answer,
    /// Calls that the client executes, and nothing else.
    Direct,
    /// One program. The other calls are searches, or calls that the client executes.
    Program {
        /// Its position among the calls.
        at: usize,
        /// The program itself, however the model wrapped it.
        code: String,
    },
    /// Calls that the gateway replies to: searches and mistakes.
    Reply,
}

/// How the gateway replies to a call that the client does not execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallReply {
    /// This text.
    Text(String),
    /// The program's result.
    Program,
}

/// A call that is answered instead of being executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModelMistake {
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
enum CallMeaning {
    Program(String),
    Search(SearchQuery),
    Direct,
    Mistake(ModelMistake),
}

/// Under this key stand arguments that are not JSON: no provider takes them as they are.
const BROKEN: &str = "not_json";

/// Reasoning beyond this is not carried: it would not fit into an id that all clients bring back.
const REASONING_BYTES_MAX: usize = 12 << 10;

impl ModelMessage {
    /// Whether the client gets it as it is: an answer, or calls that the client executes.
    pub fn is_for_client(&self, model_tools: &ModelTools) -> bool {
        self.calls.iter().all(|call| call.is_direct(model_tools))
    }

    /// What the message asks for, taken as a whole: its calls are answered together.
    pub fn intent(&self, model_tools: &ModelTools) -> Intent {
        let meanings: Vec<CallMeaning> = self.calls.iter().map(|call| call.meaning(model_tools)).collect();
        let count = |test: fn(&CallMeaning) -> bool| meanings.iter().filter(|meaning| test(meaning)).count();
        let programs = count(|meaning| matches!(meaning, CallMeaning::Program(_)));
        let direct = count(|meaning| matches!(meaning, CallMeaning::Direct));
        let mistakes = count(|meaning| matches!(meaning, CallMeaning::Mistake(_)));
        if meanings.is_empty() {
            Intent::Answer
        } else if direct == meanings.len() {
            Intent::Direct
        } else if programs == 1 && mistakes == 0 {
            let program = meanings.into_iter().enumerate().find_map(|(at, meaning)| match meaning {
                CallMeaning::Program(code) => Some(Intent::Program { at, code }),
                _ => None,
            });
            program.unwrap_or(Intent::Reply)
        } else {
            Intent::Reply
        }
    }

    /// Replaces calls of functions by their own names with one program that makes them, where such calls are understood.
    pub(crate) fn join_function_calls(&mut self, model_tools: &ModelTools) {
        let expression = |call: &ModelCall| match call.format {
            CallFormat::Json => model_tools.expression(&call.name, || call.object()),
            CallFormat::Text => None,
        };
        let is_left = |call: &ModelCall| {
            call.is_direct(model_tools) || model_tools.is_search(&call.name) && call.query().is_some()
        };
        let expressions: Vec<Option<String>> = self.calls.iter().map(expression).collect();
        let is_understood = |(call, expression): (&ModelCall, &Option<String>)| expression.is_some() || is_left(call);
        if !self.calls.iter().zip(&expressions).all(is_understood) {
            return;
        }
        let Some(first) = expressions.iter().position(Option::is_some) else { return };
        let joined: Vec<&str> = expressions.iter().flatten().map(String::as_str).collect();
        let code = match &joined[..] {
            [one] => format!("return await {one};"),
            // One that fails keeps nothing of the others back.
            several => {
                let each = |call: &&str| format!("  {call}.catch((error) => ({{ error: error.message }})),\n");
                format!("return await Promise.all([\n{}]);", several.iter().map(each).collect::<String>())
            }
        };
        let extra = std::mem::take(&mut self.calls[first].extra);
        let (name, arguments) = (model_tools.execute().to_owned(), json!({"code": code}).to_string());
        self.calls[first] = ModelCall { name, arguments, extra, ..ModelCall::default() };
        let mut at = 0;
        self.calls.retain(|_| {
            at += 1;
            at == first + 1 || expressions[at - 1].is_none()
        });
    }

    /// The reply to each call, in order.
    pub fn replies(&self, model_tools: &ModelTools, search: &dyn Fn(&SearchQuery) -> String) -> Vec<CallReply> {
        let intent = self.intent(model_tools);
        let programs =
            self.calls.iter().filter(|call| matches!(call.meaning(model_tools), CallMeaning::Program(_))).count();
        let reply = |call: &ModelCall| match (call.meaning(model_tools), &intent) {
            (CallMeaning::Search(query), _) => CallReply::Text(search(&query)),
            (CallMeaning::Mistake(mistake), _) => CallReply::Text(mistake.text(model_tools)),
            (CallMeaning::Program(_), Intent::Reply) if programs > 1 => {
                CallReply::Text(ModelMistake::SeveralPrograms.text(model_tools))
            }
            (CallMeaning::Program(_), Intent::Reply) | (CallMeaning::Direct, _) => {
                CallReply::Text(ModelMistake::NotExecuted.text(model_tools))
            }
            (CallMeaning::Program(_), _) => CallReply::Program,
        };
        self.calls.iter().map(reply).collect()
    }

    /// What it searches for, in order.
    pub fn searches(&self, model_tools: &ModelTools) -> Vec<SearchQuery> {
        let query = |call: &ModelCall| match call.meaning(model_tools) {
            CallMeaning::Search(query) => Some(query),
            _ => None,
        };
        self.calls.iter().filter_map(query).collect()
    }

    /// Whether the model made a mistake that it has to read about.
    pub fn is_mistaken(&self, model_tools: &ModelTools) -> bool {
        self.intent(model_tools) == Intent::Reply
            && !self.calls.iter().all(|call| matches!(call.meaning(model_tools), CallMeaning::Search(_)))
    }

    /// Calls that the client executes.
    pub fn direct_calls(&self, model_tools: &ModelTools) -> impl Iterator<Item = &ModelCall> {
        self.calls.iter().filter(|call| call.is_direct(model_tools))
    }

    /// Drops the calls that the client executes: the client's history holds them as ordinary calls.
    #[must_use]
    pub fn without_direct(mut self, model_tools: &ModelTools) -> ModelMessage {
        self.calls.retain(|call| !call.is_direct(model_tools));
        self
    }

    /// Makes the message fit to be carried after those `before` it, and to be shown to any provider: reasoning that is
    /// too large gives way to what its provider takes instead, and arguments become one JSON object. Reasoning that was
    /// shown once stays: providers check what stands before it.
    #[must_use]
    pub fn normalized(self, model_tools: &ModelTools, before: &[ModelMessage]) -> ModelMessage {
        self.normalized_with(|_, call| call.meaning(model_tools), before)
    }

    /// The same for a message whose call at position `at` is the program with this code. Looking for a program may take parsing
    /// it as one.
    #[must_use]
    pub fn normalized_around(
        self,
        (at, code): (usize, &str),
        model_tools: &ModelTools,
        before: &[ModelMessage],
    ) -> ModelMessage {
        let meaning = |number: usize, call: &ModelCall| {
            if number == at { CallMeaning::Program(code.to_owned()) } else { call.meaning(model_tools) }
        };
        self.normalized_with(meaning, before)
    }

    fn normalized_with(
        mut self,
        meaning: impl Fn(usize, &ModelCall) -> CallMeaning,
        before: &[ModelMessage],
    ) -> ModelMessage {
        if self.text.as_deref().is_some_and(|text| text.trim().is_empty()) {
            self.text = None;
        }
        for (number, call) in self.calls.iter_mut().enumerate() {
            call.arguments = match meaning(number, call) {
                CallMeaning::Program(code) => state::arguments(&code),
                _ if call.format == CallFormat::Text => continue,
                CallMeaning::Mistake(ModelMistake::BrokenArguments { .. }) if call.object().is_none() => {
                    json!({BROKEN: call.arguments}).to_string()
                }
                _ => call.object().map_or_else(|| "{}".to_owned(), |object| Value::Object(object).to_string()),
            };
        }
        let taken: usize = before.iter().map(ModelMessage::reasoning_bytes).sum();
        self.shorten_reasoning(REASONING_BYTES_MAX.saturating_sub(taken));
        self
    }

    fn shorten_reasoning(&mut self, bytes_max: usize) {
        let of_calls: usize = self.calls.iter().map(|call| call.extra.json_bytes()).sum();
        self.reasoning.shrink(|reasoning| reasoning.json_bytes() + of_calls <= bytes_max);
        if self.reasoning_bytes() > bytes_max {
            for call in &mut self.calls {
                if let CallExtra::ExtraContent(extra) = &mut call.extra
                    && let Some(signature) = extra.pointer_mut("/google/thought_signature")
                {
                    *signature = Value::from("skip_thought_signature_validator");
                }
            }
        }
    }

    fn reasoning_bytes(&self) -> usize {
        self.reasoning.json_bytes() + self.calls.iter().map(|call| call.extra.json_bytes()).sum::<usize>()
    }

    /// Ids for the calls, where `before` calls stand earlier in the history.
    pub(crate) fn short_ids(&self, before: usize) -> Vec<String> {
        let id = |(at, call): (usize, &ModelCall)| short_id(&call.name, &call.arguments, before + at);
        self.calls.iter().enumerate().map(id).collect()
    }
}

impl ModelCall {
    fn meaning(&self, model_tools: &ModelTools) -> CallMeaning {
        if model_tools.is_execute(&self.name) {
            self.program().map_or_else(CallMeaning::Mistake, CallMeaning::Program)
        } else if model_tools.is_search(&self.name) {
            self.query().map_or(CallMeaning::Mistake(ModelMistake::NoQuery), CallMeaning::Search)
        } else if self.is_direct(model_tools) {
            CallMeaning::Direct
        } else {
            let arguments = self.object().map_or_else(|| "{…}".to_owned(), |object| Value::Object(object).to_string());
            CallMeaning::Mistake(model_tools.cannot_call(&self.name, arguments))
        }
    }

    /// Whether the client executes it.
    fn is_direct(&self, model_tools: &ModelTools) -> bool {
        let is_ours = model_tools.is_execute(&self.name) || model_tools.is_search(&self.name);
        !is_ours && model_tools.is_direct(&self.name)
    }

    /// The code, however the model wrapped it.
    fn program(&self) -> Result<String, ModelMistake> {
        let written = self.arguments.trim();
        let broken = || ModelMistake::BrokenArguments { name: self.name.clone() };
        let code = match serde_json::from_str(written) {
            Ok(Value::Object(fields)) if fields.contains_key(BROKEN) => return Err(broken()),
            Ok(Value::Object(fields)) => {
                let texts: Vec<&Value> = fields.values().filter(|value| value.is_string()).collect();
                let code = fields.get("code").or(if texts.len() == 1 { texts.first().copied() } else { None });
                code.and_then(Value::as_str).map(str::to_owned)
            }
            Ok(Value::String(code)) => Some(code),
            Ok(_) => None,
            Err(_) if written.strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with('"')) => {
                let code = near_json::parse(written).and_then(|fields| Some(fields.get("code")?.as_str()?.to_owned()));
                let code = code.or_else(|| near_json::code(written));
                return code.ok_or_else(broken);
            }
            Err(_) => Some(written.to_owned()),
        };
        let code = code.filter(|code| !code.trim().is_empty());
        let code = code.ok_or_else(|| ModelMistake::NoCode { found: quoted(written) })?;
        Ok(unescaped_program(&code).unwrap_or(code))
    }

    fn query(&self) -> Option<SearchQuery> {
        let object = self.object()?;
        let texts = |value: &Value| -> Option<Vec<String>> {
            let text = |text: &Value| text.as_str().map(|text| text.trim().to_owned());
            match value {
                Value::Null => Some(Vec::new()),
                Value::Array(list) => list.iter().map(text).collect(),
                one => Some(vec![text(one)?]),
            }
        };
        let mut queries = texts(object.get("query").unwrap_or(&Value::Null))?;
        queries.extend(texts(object.get("queries").unwrap_or(&Value::Null))?);
        queries.retain(|query| !query.is_empty());
        if queries.is_empty() {
            return None;
        }
        let text = SearchText::new(None, queries).ok()?;
        let limit = match object.get("limit") {
            None | Some(Value::Null) => None,
            Some(limit) => {
                let is_fitting = |limit: &usize| (1..=SearchQuery::LIMIT_MAX).contains(limit);
                Some(usize::try_from(limit.as_u64()?).ok().filter(is_fitting)?)
            }
        };
        Some(SearchQuery { text, limit })
    }

    fn object(&self) -> Option<Map<String, Value>> {
        match serde_json::from_str(&self.arguments).ok().or_else(|| near_json::parse(&self.arguments)) {
            Some(Value::Object(fields)) => Some(fields),
            // Some models leave the arguments out.
            None if self.arguments.trim().is_empty() => Some(Map::new()),
            _ => None,
        }
    }
}

impl ModelMistake {
    /// The result that the model gets.
    fn text(&self, model_tools: &ModelTools) -> String {
        let execute = model_tools.execute();
        let message = match self {
            ModelMistake::OnlyPrograms { tool, expression, arguments } => format!(
                "`{tool}` cannot be called directly, only from a program; call {execute} with code like: return await {expression}({arguments})"
            ),
            ModelMistake::Unknown { name, closest } if closest.is_empty() => {
                format!("there is no tool `{name}`; call {execute} with a program that uses the declared functions")
            }
            ModelMistake::Unknown { name, closest } => format!(
                "there is no tool `{name}`; call {execute} with a program that uses the declared functions, such as {}",
                closest.join(" or ")
            ),
            ModelMistake::NoCode { found } => {
                format!("{execute} needs the program as text: {{\"code\": \"…\"}}; found {found}")
            }
            ModelMistake::BrokenArguments { name } => format!(
                "the arguments of {name} are not valid JSON; send {{\"code\": \"…\"}} again, complete and with quotes and line breaks escaped"
            ),
            ModelMistake::SeveralPrograms => format!(
                "only one program per message can run, and none of these did; put all of it into one call of {execute}, with Promise.all where parts are independent"
            ),
            ModelMistake::NotExecuted => {
                "not executed, because of another call in the same message; call it again in a message of its own"
                    .to_owned()
            }
            ModelMistake::NoQuery => {
                format!(
                    "search needs {{\"queries\": [\"what a tool should do\", \"what the next should do\"]}}, at most {}, or one {{\"query\": \"…\"}}; and takes \"limit\" from 1 to {}",
                    SearchText::QUERIES_MAX,
                    SearchQuery::LIMIT_MAX
                )
            }
        };
        json!({"status": "error", "error": {"kind": "mistake", "message": message}}).to_string()
    }
}

fn quoted(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 80;
    if text.is_empty() {
        return "nothing".to_owned();
    }
    shorten(text, SHOWN_CHARS_MAX)
}
