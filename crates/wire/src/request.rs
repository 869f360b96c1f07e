//! Reading a client's request: whether code mode applies to it, and what is to be done.

use std::collections::BTreeSet;
use std::sync::Arc;

use dacapo_replay::{Toolbox, Toolboxes};
use serde_json::{Map, Value};

use crate::allowed_callers::{CallerRules, Extensions, ListContents, ProgramDeclaration, ToolSplit};
use crate::applied_mode::{AppliedMode, OffReason};
use crate::body_outline::{BodyOutline, OutlinedTools};
use crate::client_wire::{Body, CallIds, ExplicitState, HistoryReading, ParamNames, ProgramHistory, RequestSurvey};
use crate::conversation::{Conversation, ConversationItem};
use crate::encoder::ItemIds;
use crate::model_history::{ModelHistory, ToolMedia};
use crate::neutral::{ReasoningEffort, ToolDeclaration, ToolInput, USER_FIELDS, field};
use crate::plain_mode::{StateOpener, StoredStates, UnopenedStates};
use crate::prompt::{FunctionCalls, ModelTools};
use crate::provider_wire::{BodyOrigin, ImageDetail, StopSequences, TextTools};
use crate::request_servers;
use crate::seal::Sealer;
use crate::server_tools::ServerTools;
use crate::tool_lists::{BorrowedTools, RequestBody};
use crate::turn::{ProgramMode, ToolChoice, Turn};
use crate::unread_entries::UnreadEntries;
use crate::wire::{ClientSide, ProviderSide};

/// A request that cannot be served, and where it is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{param}: {message}")]
pub struct BadRequest {
    /// The path of the field that is wrong: `messages[2].content`.
    pub param: String,
    /// What is wrong with it.
    pub message: String,
}

impl BadRequest {
    pub(crate) fn new(param: impl Into<String>, message: impl Into<String>) -> BadRequest {
        BadRequest { param: param.into(), message: message.into() }
    }
}

/// The entries of a history that must be there.
pub(crate) fn entries<'a>(body: &'a Body, key: &str) -> Result<&'a [Value], BadRequest> {
    let entries = match body.get(key) {
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(BadRequest::new(key, "must be an array")),
        None => return Err(BadRequest::new(key, "is missing")),
    };
    match entries.iter().position(|entry| !entry.is_object()) {
        Some(at) => Err(BadRequest::new(format!("{key}[{at}]"), "must be an object")),
        None => Ok(entries),
    }
}

/// How code mode is switched, by the header `x-dacapo-mode` or the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeMode {
    /// The model has the tools of the client, and no programs.
    Off,
    /// The client sees ordinary tool calls.
    Plain,
    /// The client reads programs in its history, and sends them back.
    Explicit,
    /// Clients that declare programs get those of the model's provider; for others it is [`CodeMode::Plain`].
    Native,
}

impl CodeMode {
    /// As the header `x-dacapo-mode` and the configuration write it.
    pub fn parse(text: &str) -> Option<CodeMode> {
        match text {
            "off" => Some(CodeMode::Off),
            "plain" => Some(CodeMode::Plain),
            "explicit" => Some(CodeMode::Explicit),
            "native" => Some(CodeMode::Native),
            _ => None,
        }
    }

    /// What [`CodeMode::parse`] reads.
    pub fn name(self) -> &'static str {
        match self {
            CodeMode::Off => "off",
            CodeMode::Plain => "plain",
            CodeMode::Explicit => "explicit",
            CodeMode::Native => "native",
        }
    }
}

/// What holds where a request says nothing.
#[derive(Debug, Clone, Copy)]
pub struct CodeModeDefaults {
    /// Whether the model writes programs.
    pub mode: CodeMode,
    /// Tokens of function declarations in the prompt. What does not fit is found by searches.
    pub declarations_tokens_max: usize,
    /// Whether models write programs as plain text, where their wire has tools for that.
    pub execute_input: TextTools,
}

/// Reads requests for one model.
///
/// ```
/// use dacapo_replay::Toolboxes;
/// use dacapo_wire::*;
/// use serde_json::json;
///
/// let reader = RequestReader {
///     provider: ProviderSide::CHAT,
///     header: None,
///     defaults: CodeModeDefaults { mode: CodeMode::Plain, declarations_tokens_max: 1_000, execute_input: TextTools::No },
///     callers: CallerRules::default(),
///     sealer: &Sealer::new(b"a secret of some length", ""),
///     stored: &StoredStates::default(),
///     unopened: &UnopenedStates::default(),
///     toolboxes: &Toolboxes::default(),
///     tenant: "",
///     servers: None,
/// };
/// let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "Rain in Oslo?"}]});
/// assert_eq!(reader.read(ClientSide::CHAT, body.clone())?.mode, AppliedMode::Off(OffReason::NoTools));
/// body["tools"] = json!([{"type": "function", "function": {"name": "get_weather"}}]);
/// assert_eq!(reader.read(ClientSide::CHAT, body)?.mode, AppliedMode::Plain);
/// # Ok::<(), BadRequest>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RequestReader<'a> {
    /// Of the model that will be asked.
    pub provider: ProviderSide,
    /// The value of `x-dacapo-mode`.
    pub header: Option<CodeMode>,
    /// What holds if neither header nor body say something.
    pub defaults: CodeModeDefaults,
    /// Who may call tools whose callers the client does not name.
    pub callers: CallerRules<'a>,
    /// Opens the states in call ids.
    pub sealer: &'a Sealer,
    /// States that a store has kept for ids that are too short to carry them.
    pub stored: &'a StoredStates,
    /// Where states are noted that cannot be opened.
    pub unopened: &'a UnopenedStates,
    /// Tool lists that were read before.
    pub toolboxes: &'a Toolboxes,
    /// Whose request it is. What one tenant sent does not hasten a request of another.
    pub tenant: &'a str,
    /// Tools of servers behind the gateway that the tenant may use.
    pub servers: Option<&'a ServerTools>,
}

/// What is to be done for a request.
#[derive(Debug)]
pub enum ParsedRequest {
    /// Code mode does not apply, and the model is on the client's wire. `None`: the body is forwarded byte for byte.
    PassThrough(Option<Value>),
    /// The gateway reads the history, and asks the model itself.
    Turn(Box<Turn>),
}

/// A request, and how code mode applies to it.
#[derive(Debug)]
pub struct ReadRequest {
    /// What is to be done.
    pub parsed: ParsedRequest,
    /// For the header `x-dacapo-mode`, the log and the metrics.
    pub mode: AppliedMode,
}

const CODE_MODE: &str = "code_mode";

/// A request without code mode, as far as it has been looked at.
struct PlainRequest {
    body: Body,
    survey: RequestSurvey,
    /// Whether tools say who may call them.
    marked_tools: Extensions,
    /// Whether the body itself switched code mode.
    switch: Extensions,
    borrowed: Option<BorrowedTools>,
}

/// The tools of a request in code mode.
struct ProgramTools {
    toolbox: Arc<Toolbox>,
    model_tools: ModelTools,
    /// Tools from this position on are the gateway's own.
    owned_from: usize,
    passed: Vec<Value>,
    search_tool: Option<String>,
}

impl RequestReader<'_> {
    /// Reads a request body.
    pub fn read(&self, client: ClientSide, body: Value) -> Result<ReadRequest, BadRequest> {
        self.read_body(client, RequestBody::from(body))
    }

    /// Reads a request body whose tool list may be borrowed. Where not all of its history was parsed, an error may name the
    /// wrong entry: whoever reports it reads the whole body first.
    pub fn read_body(&self, client: ClientSide, body: RequestBody) -> Result<ReadRequest, BadRequest> {
        let (body, borrowed, mut unread) = body.into_parts();
        let Value::Object(mut body) = body else {
            return Err(BadRequest::new("body", "must be a JSON object"));
        };
        let history_field = client.0.capabilities().history;
        let origin = BodyOrigin::between(client, self.provider);
        if origin == BodyOrigin::Translated {
            UnreadEntries::put_back(unread.take(), &mut body, history_field)?;
        }
        let mode = code_mode(&body, self.header, self.defaults.mode)?;
        let switch = body.shift_remove(CODE_MODE).map_or(Extensions::None, |_| Extensions::Found);
        if origin == BodyOrigin::Translated {
            check_params(&body, client.0.capabilities().params)?;
        }
        let survey = client.0.survey(&body)?;
        let is_declared = survey.declaration == ProgramDeclaration::Declared;
        let has_programs = survey.history == ProgramHistory::HasPrograms;
        let is_native = mode == CodeMode::Native && is_declared && origin == BodyOrigin::SameWire;
        let is_ruled = !is_declared && mode != CodeMode::Off;
        let marked = is_ruled.then(|| self.callers.marked(&body)).flatten();
        // Tools that the operator has marked are not as they stand in the list.
        let list = borrowed.as_ref().filter(|_| marked.is_none());
        let contents = list.map_or(ListContents::Unknown, |list| list.contents(client));
        let mut split = client.0.split_tools(marked.as_ref().unwrap_or(&body), survey.declaration, contents)?;
        if let Some(list) = list {
            list.note_contents(client, &body, &split);
        }
        let has_added_tools = !split.added.is_empty();
        if origin == BodyOrigin::Translated {
            split.passed.append(&mut split.added);
        }
        let incompatible = incompatible_with_programs(client, self.provider, &body);
        let needs_programs = has_programs || is_declared && mode != CodeMode::Off && !is_native;
        if let Some(key) = incompatible.filter(|_| needs_programs) {
            return Err(BadRequest::new(
                key,
                "cannot be had together with programs, which cannot promise it; leave it out, or switch code mode off",
            ));
        }
        if is_native {
            UnreadEntries::put_back(unread, &mut body, history_field)?;
            let parsed = ParsedRequest::PassThrough((switch == Extensions::Found).then_some(Value::Object(body)));
            return Ok(ReadRequest { parsed, mode: AppliedMode::Native });
        }
        let off = match (mode, incompatible) {
            (CodeMode::Off, _) if switch == Extensions::Found => Some(OffReason::Body),
            (CodeMode::Off, _) if self.header.is_some() => Some(OffReason::Header),
            (CodeMode::Off, _) => Some(OffReason::Configuration),
            (_, Some(key)) => Some(OffReason::Field(key)),
            (_, None) if split.tools.is_empty() && !is_declared && self.servers().is_none() => Some(OffReason::NoTools),
            (_, None) => None,
        };
        if has_programs && !is_declared {
            if mode == CodeMode::Off {
                return Err(BadRequest::new(CODE_MODE, "is off, but the history has programs"));
            }
        } else if let Some(reason) = off {
            let has_only_history = split.tools.is_empty() && survey.call_ids == CallIds::Sealed;
            // Several answers to one request pass through as they come.
            if has_only_history && !matches!(incompatible, Some("n" | "functions" | "function_call")) {
                let other_tools = split.passed;
                UnreadEntries::put_back(unread, &mut body, history_field)?;
                let turn = self.reading_programs(client, body, other_tools)?;
                let parsed = ParsedRequest::Turn(Box::new(Turn { borrowed_tools: borrowed, has_added_tools, ..turn }));
                return Ok(ReadRequest { parsed, mode: AppliedMode::Off(reason) });
            }
            // Marks of the operator are not in the body.
            let marked_tools = match &marked {
                Some(_) => client.0.split_tools(&body, survey.declaration, ListContents::Unknown)?.extensions,
                None => split.extensions,
            };
            UnreadEntries::put_back(unread, &mut body, history_field)?;
            let request = PlainRequest { body, survey, marked_tools, switch, borrowed };
            let parsed = self.without_code_mode(client, request)?;
            return Ok(ReadRequest { parsed, mode: AppliedMode::Off(reason) });
        }
        // A conversation that began in plain mode stays in it, unless call ids carry the state in both modes.
        let may_start =
            survey.call_ids == CallIds::Ordinary || client.0.capabilities().explicit_state == ExplicitState::CallIds;
        let is_explicit = has_programs || is_declared || mode == CodeMode::Explicit && may_start;
        let (mode, applied) = if is_explicit {
            (ProgramMode::Explicit, AppliedMode::Explicit)
        } else {
            (ProgramMode::Plain, AppliedMode::Plain)
        };
        let digest = borrowed.as_ref().map(|borrowed| borrowed.digest_of(&body, &split.tools));
        let taken = self.servers.map(ServerTools::servers_of_request);
        if let Some(taken) = taken {
            split.passed.retain(|entry| !request_servers::is_about(entry, taken));
        }
        let tools = self.program_tools(split, digest)?;
        if let Some(list) = &borrowed {
            list.note_read();
        }
        if let Some(taken) = taken {
            request_servers::remove(&mut body, taken);
        }
        if mode == ProgramMode::Explicit {
            UnreadEntries::put_back(unread.take(), &mut body, history_field)?;
        }
        let mut turn = self.with_code_mode(client, body, mode, tools, borrowed.as_ref())?;
        turn.conversation.unread = unread;
        let parsed = ParsedRequest::Turn(Box::new(Turn { borrowed_tools: borrowed, has_added_tools, ..turn }));
        Ok(ReadRequest { parsed, mode: applied })
    }

    /// Reads a request that is forwarded as it came. `None` if it may have to be read as a whole.
    pub fn read_outline(&self, client: ClientSide, outline: &BodyOutline) -> Option<ReadRequest> {
        if BodyOrigin::between(client, self.provider) == BodyOrigin::Translated {
            return None;
        }
        let mode = match (self.header.unwrap_or(self.defaults.mode), outline.tools) {
            (CodeMode::Off, _) if self.header.is_some() => OffReason::Header,
            (CodeMode::Off, _) => OffReason::Configuration,
            (_, OutlinedTools::Some) => return None,
            (_, OutlinedTools::None) if self.servers().is_some() => return None,
            (_, OutlinedTools::None) => {
                let incompatible = incompatible_with_programs(client, self.provider, &outline.fields);
                incompatible.map_or(OffReason::NoTools, OffReason::Field)
            }
        };
        Some(ReadRequest { parsed: ParsedRequest::PassThrough(None), mode: AppliedMode::Off(mode) })
    }

    fn with_code_mode(
        &self,
        client: ClientSide,
        mut body: Body,
        mode: ProgramMode,
        tools: ProgramTools,
        borrowed: Option<&BorrowedTools>,
    ) -> Result<Turn, BadRequest> {
        let RequestReader { sealer, stored, unopened, .. } = *self;
        let catalog = tools.toolbox.catalog();
        let opener = StateOpener { sealer, stored, unopened, catalog };
        let (reading, tools_digest) = match mode {
            ProgramMode::Plain => (HistoryReading::Plain(&opener), tools.toolbox.text_digest()),
            ProgramMode::Explicit => (HistoryReading::Explicit(&opener), [0; 8]),
        };
        let conversation = client.0.conversation(&mut body, reading)?;
        let is_plain = || borrowed.is_some_and(BorrowedTools::is_plain) || !has_marked_tools(&body);
        let function_calls = match mode {
            ProgramMode::Plain if is_plain() => FunctionCalls::Programs,
            ProgramMode::Plain | ProgramMode::Explicit => FunctionCalls::Mistakes,
        };
        let model_tools = tools.model_tools.with_function_calls(function_calls);
        Ok(Turn {
            owned_from: tools.owned_from,
            search_tool: tools.search_tool,
            tools_digest,
            mode,
            ..self.turn(client, body, conversation, model_tools, tools.passed)
        })
    }

    /// `digest` identifies the tools for programs, if that is known without writing them.
    fn program_tools(&self, split: ToolSplit<'_>, digest: Option<[u8; 32]>) -> Result<ProgramTools, BadRequest> {
        let text = || serde_json::to_string(&split.tools.iter().collect::<Vec<_>>()).unwrap_or_default();
        let toolbox = match (digest, self.servers()) {
            (Some(digest), None) => self.toolboxes.get_known(self.tenant, digest, text),
            (None, None) => self.toolboxes.get_for(self.tenant, &text()),
            (digest, Some(servers)) => {
                let of_client = digest.map_or_else(|| text().into_bytes(), Vec::from);
                let digest = servers.joined_digest(self.tenant, &of_client);
                self.toolboxes.get_known(self.tenant, digest, || servers.joined(&split.tools))
            }
        };
        let toolbox = toolbox.map_err(|error| BadRequest::new(split.request_path(&error.path), error.message))?;
        let tokens_max = self.defaults.declarations_tokens_max;
        let model_tools = ModelTools::new(Arc::clone(&toolbox), split.direct, &split.deferred, tokens_max)
            .with_toolsets(split.toolsets)
            .with_later_tools(split.later_tools)
            .with_unavailable(self.servers().map(ServerTools::unavailable).unwrap_or_default());
        let owned_from = split.tools.len();
        Ok(ProgramTools { toolbox, model_tools, owned_from, passed: split.passed, search_tool: split.search_tool })
    }

    /// Tools of servers, if there are any.
    fn servers(&self) -> Option<&ServerTools> {
        self.servers.filter(|servers| !servers.is_empty())
    }

    fn turn(
        &self,
        client: ClientSide,
        body: Body,
        conversation: Conversation,
        model_tools: ModelTools,
        passed_tools: Vec<Value>,
    ) -> Turn {
        let execute_input = self.defaults.execute_input;
        let ProviderFit { text_tools, dropped, execute_input } =
            ProviderFit::of(client, self.provider, (&body, &conversation), &passed_tools, execute_input);
        Turn {
            client,
            provider: self.provider,
            conversation,
            model_tools,
            owned_from: usize::MAX,
            tools_digest: [0; 8],
            mode: ProgramMode::Plain,
            prefs: client.0.response_prefs(&body),
            body,
            passed_tools,
            dropped,
            search_tool: None,
            text_tools,
            execute_input,
            item_ids: ItemIds::Carriers,
            tool_media: ToolMedia::Taken,
            borrowed_tools: None,
            has_added_tools: false,
        }
    }

    /// A request without functions, whose history has programs. The model reads them as programs and results: the calls
    /// in between may be many times as long. Agents compact that way.
    fn reading_programs(&self, client: ClientSide, body: Body, passed: Vec<Value>) -> Result<Turn, BadRequest> {
        let toolbox = self.toolboxes.get("[]").map_err(|error| BadRequest::new("tools", error.message))?;
        let model_tools = ModelTools::reading(Arc::clone(&toolbox));
        let tools = ProgramTools { toolbox, model_tools, owned_from: usize::MAX, passed, search_tool: None };
        self.with_code_mode(client, body, ProgramMode::Plain, tools, None)
    }

    /// On the same wire the body is forwarded, without what only the gateway understands.
    fn without_code_mode(&self, client: ClientSide, request: PlainRequest) -> Result<ParsedRequest, BadRequest> {
        let PlainRequest { mut body, survey, marked_tools, switch, borrowed } = request;
        if let ToolChoice::Tool(name) = client.0.response_prefs(&body).tool_choice
            && !client
                .0
                .ordinary_tools(&body, survey.declaration)
                .iter()
                .any(|tool| client.0.read_tool(tool).is_some_and(|tool| tool.name == name))
            && marked_tools == Extensions::Found
        {
            let message = format!("`{name}` may only be called by programs, so that the model cannot be made to");
            return Err(BadRequest::new("tool_choice", message));
        }
        if BodyOrigin::between(client, self.provider) == BodyOrigin::Translated {
            let mut tools = client.0.ordinary_tools(&body, survey.declaration);
            let added = client.0.split_tools(&body, survey.declaration, ListContents::Unknown)?.added;
            let has_added_tools = !added.is_empty();
            tools.extend(added);
            let conversation = client.0.conversation(&mut body, HistoryReading::WithoutPrograms)?;
            let no_tools = self.toolboxes.get("[]").map_err(|error| BadRequest::new("tools", error.message))?;
            let turn = self.turn(client, body, conversation, ModelTools::off(no_tools), tools);
            let turn = Turn { borrowed_tools: borrowed, has_added_tools, ..turn };
            return Ok(ParsedRequest::Turn(Box::new(turn)));
        }
        let history = match survey.call_ids {
            CallIds::Ordinary if marked_tools == Extensions::None && switch == Extensions::None => {
                if let Some(borrowed) = borrowed {
                    borrowed.give_back(&mut body);
                }
                return Ok(ParsedRequest::PassThrough(None));
            }
            CallIds::Ordinary => None,
            CallIds::Sealed => {
                let mut history = ModelHistory::new(client, self.provider);
                let conversation = client.0.conversation(&mut body, HistoryReading::WithoutPrograms)?;
                for (at, item) in conversation.items.iter().enumerate() {
                    match item {
                        ConversationItem::Entry(entry) => history.push_item(at, entry),
                        ConversationItem::LostCalls(calls) => history.push_calls_without_program(calls),
                        ConversationItem::Program(_) | ConversationItem::Search(_) => {}
                    }
                }
                Some(history.entries(&conversation).into_iter().cloned().collect())
            }
        };
        Ok(ParsedRequest::PassThrough(Some(client.0.without_code_mode(body, history))))
    }
}

/// What of a request depends on the wire of the model.
struct ProviderFit {
    text_tools: BTreeSet<String>,
    dropped: Vec<String>,
    execute_input: TextTools,
}

impl ProviderFit {
    fn of(
        client: ClientSide,
        provider: ProviderSide,
        (body, conversation): (&Body, &Conversation),
        passed_tools: &[Value],
        execute_input: TextTools,
    ) -> ProviderFit {
        let (text_tools, dropped) = match BodyOrigin::between(client, provider) {
            BodyOrigin::SameWire => (BTreeSet::new(), Vec::new()),
            BodyOrigin::Translated => {
                let takes_text = |tool: &ToolDeclaration| matches!(tool.input, ToolInput::Text { .. });
                let tools = passed_tools.iter().filter_map(|entry| client.0.read_tool(entry)).filter(takes_text);
                (tools.map(|tool| tool.name).collect(), dropped(client, provider, (body, conversation), passed_tools))
            }
        };
        let execute_input = match provider.capabilities().text_tools {
            TextTools::ForPrograms => execute_input,
            TextTools::No => TextTools::No,
        };
        ProviderFit { text_tools, dropped, execute_input }
    }
}

impl Turn {
    /// Lets a model on another wire be asked, as long as none has responded. Fails if it could not be asked for the same.
    pub fn ask_on(&mut self, provider: ProviderSide, execute_input: TextTools) -> Result<(), BadRequest> {
        if BodyOrigin::between(self.client, provider) == BodyOrigin::Translated {
            check_params(&self.body, self.client.0.capabilities().params)?;
        }
        if self.has_added_tools && BodyOrigin::between(self.client, provider) != self.origin() {
            let message = "were added in the conversation, which the wire of this model cannot express";
            return Err(BadRequest::new("tools", message));
        }
        let incompatible = incompatible_with_programs(self.client, provider, &self.body);
        if let Some(key) = incompatible.filter(|_| self.model_tools.is_on()) {
            return Err(BadRequest::new(key, "cannot be had together with programs on the wire of this model"));
        }
        // Last, because it moves entries: after an error, the history that was written from them is still used.
        if BodyOrigin::between(self.client, provider) == BodyOrigin::Translated {
            let not_json = |error| BadRequest::new("body", format!("is not JSON: {error}"));
            self.conversation.read_all().map_err(not_json)?;
        }
        let fit =
            ProviderFit::of(self.client, provider, (&self.body, &self.conversation), &self.passed_tools, execute_input);
        (self.text_tools, self.dropped, self.execute_input) = (fit.text_tools, fit.dropped, fit.execute_input);
        self.provider = provider;
        Ok(())
    }
}

/// The first field whose guarantee a program cannot give.
fn incompatible_with_programs(client: ClientSide, provider: ProviderSide, body: &Body) -> Option<&'static str> {
    let has_stops = provider.capabilities().stop_sequences == StopSequences::Supported;
    // Where the model's wire has no stop sequences, `stop` is dropped and needs no guarantee.
    let stops = client.0.capabilities().params.stops;
    client.0.incompatible_with_programs(body).filter(|key| has_stops || Some(*key) != stops)
}

/// Fields and tools that the model's wire cannot carry.
fn dropped(
    client: ClientSide,
    provider: ProviderSide,
    (body, conversation): (&Body, &Conversation),
    passed_tools: &[Value],
) -> Vec<String> {
    let params = client.0.read_params(body);
    // Whatever is missing when it is read back has no place on the model's wire.
    let carried = provider.0.read_params(&provider.0.write_params(&params));
    let lost = [
        (params.temperature.is_some() && carried.temperature.is_none(), "temperature"),
        (params.top_p.is_some() && carried.top_p.is_none(), "top_p"),
        (params.stops != carried.stops, "stop"),
        (params.effort > Some(ReasoningEffort::None) && carried.effort.is_none(), "reasoning effort"),
        (params.format.is_some() && carried.format.is_none(), "response format"),
        (params.user.is_some() && carried.user.is_none(), "user"),
        (params.verbosity != carried.verbosity, "verbosity"),
    ];
    let choice = body.get("tool_choice");
    let is_choice_lost = choice.is_some_and(Value::is_object)
        && client.0.response_prefs(body).tool_choice == ToolChoice::Auto
        && choice.is_some_and(|choice| choice["type"] != "auto");
    let is_detail_lost =
        provider.capabilities().image_detail == ImageDetail::Unsupported && conversation.has_image_detail();
    let lost = lost.into_iter().chain([(is_choice_lost, "tool_choice"), (is_detail_lost, "image detail")]);
    let lost = lost.filter(|(is_lost, _)| *is_lost).map(|(_, name)| name.to_owned());
    // Who asks is carried under another name.
    let is_lost = |key: &&String| !carried.shared.contains_key(*key) && !USER_FIELDS.contains(&key.as_str());
    let shared = params.shared.keys().filter(is_lost).cloned();
    let tools = passed_tools.iter().filter(|entry| client.0.read_tool(entry).is_none());
    let tools = tools.map(|entry| {
        let name = entry.get("type").or_else(|| entry.get("name")).and_then(Value::as_str).unwrap_or("?");
        format!("tools: {name}")
    });
    params.dropped.iter().cloned().chain(shared).chain(lost).chain(tools).collect()
}

/// Whether some tool says who may call it.
fn has_marked_tools(body: &Body) -> bool {
    let is_marked = |tool: &Value| {
        let of_function = field(tool, "function").and_then(|function| field(function, "allowed_callers"));
        [field(tool, "allowed_callers"), of_function].into_iter().flatten().any(|mark| !mark.is_null())
    };
    let tools = body.get("tools").and_then(Value::as_array).into_iter().flatten();
    // Responses has namespaces of tools.
    let nested =
        |tool: &Value| field(tool, "tools").and_then(Value::as_array).is_some_and(|tools| tools.iter().any(is_marked));
    tools.into_iter().any(|tool| is_marked(tool) || nested(tool))
}

/// Refuses wrong values. A request that is forwarded as it came is checked by its provider; a translated one is not.
fn check_params(body: &Map<String, Value>, names: ParamNames) -> Result<(), BadRequest> {
    let is_wrong = |key: &&str, is_right: fn(&Value) -> bool| {
        body.get(*key).is_some_and(|value| !value.is_null() && !is_right(value))
    };
    let is_count = |value: &Value| value.as_u64().is_some_and(|count| count > 0);
    if let Some(key) = names.tokens_max.iter().find(|key| is_wrong(key, is_count)) {
        return Err(BadRequest::new(*key, "must be a whole number above 0"));
    }
    if let Some(key) = ["temperature", "top_p"].into_iter().find(|key| is_wrong(key, Value::is_number)) {
        return Err(BadRequest::new(key, "must be a number"));
    }
    if is_wrong(&"stream", Value::is_boolean) {
        return Err(BadRequest::new("stream", "must be true or false"));
    }
    let mut effort_path = names.effort.split('.');
    let effort = effort_path.next().and_then(|key| body.get(key));
    let effort = effort_path.fold(effort, |value, key| value?.get(key));
    match effort {
        None | Some(Value::Null) => Ok(()),
        Some(value) if value.as_str().and_then(ReasoningEffort::parse).is_some() => Ok(()),
        Some(_) => Err(BadRequest::new(names.effort, "must be none, minimal, low, medium, high, xhigh or max")),
    }
}

/// What the request itself says goes before the header, and that before the configuration.
fn code_mode(body: &Map<String, Value>, header: Option<CodeMode>, default: CodeMode) -> Result<CodeMode, BadRequest> {
    let on = || match header.unwrap_or(default) {
        CodeMode::Off => CodeMode::Plain,
        on => on,
    };
    match body.get(CODE_MODE) {
        None | Some(Value::Null) => Ok(header.unwrap_or(default)),
        Some(Value::Bool(false)) => Ok(CodeMode::Off),
        Some(Value::Bool(true)) => Ok(on()),
        Some(Value::Object(fields)) => {
            if let Some(key) = fields.keys().find(|key| *key != "explicit") {
                return Err(BadRequest::new(format!("{CODE_MODE}.{key}"), "is not known; the only key is `explicit`"));
            }
            match fields.get("explicit") {
                Some(Value::Bool(true)) => Ok(CodeMode::Explicit),
                Some(Value::Bool(false)) => Ok(CodeMode::Plain),
                None => Ok(on()),
                Some(_) => Err(BadRequest::new("code_mode.explicit", "must be true or false")),
            }
        }
        Some(_) => Err(BadRequest::new(CODE_MODE, "must be true, false or {\"explicit\": true}")),
    }
}
