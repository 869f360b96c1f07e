//! One request of a client, and what the model is asked for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use dacapo_replay::{Call, Toolbox};
use serde_json::{Map, Value};

use crate::client_wire::ExplicitState;
use crate::conversation::Conversation;
use crate::encoder::{CallDeltas, EncoderOptions, ItemIds, ResponseEncoder};
use crate::ids::UnsealedCallId;
use crate::model_history::{ModelHistory, ToolMedia};
use crate::model_message::{CallFormat, ModelMessage};
use crate::model_request::ModelRequestBody;
use crate::neutral::{ToolDeclaration, ToolInput, with_field};
use crate::prompt::ModelTools;
use crate::provider_wire::{BodyOrigin, ModelRequest, TextTools};
use crate::seal::RoundHeader;
use crate::state::RunState;
use crate::tool_lists::BorrowedTools;
use crate::unread_entries::UnreadEntries;
use crate::wire::{ClientSide, ProviderSide};

/// What the client says about tool calls in the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// It must call some tool.
    Required,
    /// It must not call any.
    None,
    /// A program must be written.
    Program,
    /// This tool must be called.
    Tool(String),
}

/// How the client wants its response.
#[derive(Debug, Clone)]
pub struct ResponsePrefs {
    /// At once, or as a stream.
    pub delivery: Delivery,
    /// Whether a stream ends with the usage.
    pub stream_usage: StreamUsage,
    /// How many calls it takes in one message.
    pub calls: CallsPerMessage,
    /// Which tools the model must or must not call.
    pub tool_choice: ToolChoice,
    /// How much text a stream holds back until it is known that no program follows.
    pub hold_text_chars: usize,
}

/// Whether a response is streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// One JSON body.
    Whole,
    /// Server-sent events.
    Streamed,
}

impl Delivery {
    pub(crate) fn streamed_if(is_stream: bool) -> Delivery {
        if is_stream { Delivery::Streamed } else { Delivery::Whole }
    }

    /// Whether it is a stream.
    pub fn is_streamed(self) -> bool {
        self == Delivery::Streamed
    }
}

/// Whether a stream ends with the tokens it used, where clients have to ask for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamUsage {
    /// It does.
    Included,
    /// It does not.
    LeftOut,
}

/// How many tool calls the client takes in one message (`parallel_tool_calls`, `disable_parallel_tool_use`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallsPerMessage {
    /// One. A program that makes several at once gets its answers one by one.
    One,
    /// As many as there are.
    Any,
}

impl CallsPerMessage {
    pub(crate) fn one_if(is_one: bool) -> CallsPerMessage {
        if is_one { CallsPerMessage::One } else { CallsPerMessage::Any }
    }
}

/// Whether a model is asked with the tool choice of the client. In one request it may be asked several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolChoiceOverride {
    /// It is.
    Keep,
    /// The client required a call, and a program has run: the model may answer now.
    Auto,
    /// The turn has used up its attempts or model calls, so the model must answer.
    NoCalls,
}

/// Whether the client knows about programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramMode {
    /// It sees ordinary tool calls.
    Plain,
    /// Programs and their results are part of its history.
    Explicit,
}

/// A request that needs the gateway: because of code mode, or because client and model are on different wires.
#[derive(Debug)]
pub struct Turn {
    /// Reads the history, and encodes the response.
    pub client: ClientSide,
    /// Writes the request for the model, and decodes what it says.
    pub provider: ProviderSide,
    /// The client's history.
    pub conversation: Conversation,
    /// The tools and the prompt that the model gets.
    pub model_tools: ModelTools,
    /// Tools from this position in the catalog on are executed by the gateway itself.
    pub owned_from: usize,
    /// A hash of the tool list.
    pub tools_digest: [u8; 8],
    /// Whether the client knows about programs.
    pub mode: ProgramMode,
    /// How the client wants its response.
    pub prefs: ResponsePrefs,
    /// The request body. Fields that the gateway does not understand stay in place.
    pub(crate) body: Map<String, Value>,
    /// Entries of `tools` that stay as they are.
    pub(crate) passed_tools: Vec<Value>,
    /// Fields and tools that the model's wire cannot carry.
    pub dropped: Vec<String>,
    /// The client's name for its provider's tool search: searches are reported under this name.
    pub search_tool: Option<String>,
    /// Names of the client's tools that take text instead of JSON, where the model's wire has none.
    pub(crate) text_tools: BTreeSet<String>,
    /// Set if the tool list of the body is to be given back.
    pub(crate) borrowed_tools: Option<BorrowedTools>,
    /// Whether the client has added tools in the conversation.
    pub(crate) has_added_tools: bool,
    /// Whether the model writes programs as plain text.
    pub(crate) execute_input: TextTools,
    /// What the ids of items are for, on Responses.
    pub item_ids: ItemIds,
    /// Whether the model takes images and files of tools.
    pub tool_media: ToolMedia,
}

impl Turn {
    /// The functions that programs of this turn can call.
    pub fn toolbox(&self) -> &Arc<Toolbox> {
        self.model_tools.toolbox()
    }

    /// The name of the model that the client asks for.
    pub fn model(&self) -> &str {
        self.body.get("model").and_then(Value::as_str).unwrap_or_default()
    }

    /// A history for the model that holds nothing but the system messages.
    pub fn model_history(&self) -> ModelHistory {
        let mut history = ModelHistory::new(self.client, self.provider).with_tool_media(self.tool_media);
        if self.origin() == BodyOrigin::Translated {
            history.push_messages(&self.client.0.system_messages(&self.body));
        }
        history.after_unread(self.conversation.unread.as_ref().map_or(0, UnreadEntries::count))
    }

    /// Writes the response, on the client's wire and as the client wants it.
    pub fn encoder(&self, call_deltas: CallDeltas) -> Box<dyn ResponseEncoder> {
        let ResponsePrefs { delivery, stream_usage, hold_text_chars, .. } = self.prefs;
        let (provider, mode, item_ids) = (self.provider, self.mode, self.item_ids);
        let options = EncoderOptions { provider, delivery, mode, stream_usage, call_deltas, item_ids, hold_text_chars };
        let known_tools = self.borrowed_tools.as_ref().and_then(BorrowedTools::repeatable);
        self.client.0.encoder(options, &self.body, known_tools, self.toolbox())
    }

    /// Whether the ids of a program's calls carry its state. Otherwise an entry of the client's history does.
    pub fn seals_call_ids(&self) -> bool {
        self.mode == ProgramMode::Plain || self.client.0.capabilities().explicit_state == ExplicitState::CallIds
    }

    /// Ids of calls that do not carry the state of their program.
    pub fn unsealed_ids(state: &RunState, round: &RoundHeader, calls: &[Call]) -> Vec<String> {
        UnsealedCallId::of(state, round, calls)
    }

    /// Reads a message as the model meant it: a call of a function by its own name is a program of one line.
    pub fn understand(&self, message: &mut ModelMessage) {
        self.restore_text_calls(message);
        message.join_function_calls(&self.model_tools);
    }

    /// Turns calls of tools that take text back into text: the model's wire has only tools that take JSON.
    fn restore_text_calls(&self, message: &mut ModelMessage) {
        for call in message.calls.iter_mut().filter(|call| call.format == CallFormat::Json) {
            if !self.text_tools.contains(&call.name) {
                continue;
            }
            let arguments: Option<Value> = serde_json::from_str(&call.arguments).ok();
            if let Some(input) = arguments.as_ref().and_then(|arguments| arguments.get("input")?.as_str()) {
                call.format = CallFormat::Text;
                input.clone_into(&mut call.arguments);
            }
        }
    }

    /// Ends the turn: its tool list is kept for the next request.
    pub fn end(mut self) {
        if let Some(borrowed) = self.borrowed_tools.take() {
            borrowed.give_back(&mut self.body);
        }
    }

    pub(crate) fn origin(&self) -> BodyOrigin {
        BodyOrigin::between(self.client, self.provider)
    }

    /// The request for the model.
    pub fn model_request<'a>(
        &'a self,
        history: &'a ModelHistory,
        choice_override: ToolChoiceOverride,
    ) -> ModelRequestBody<'a> {
        let (client, provider, origin) = (self.client.0, self.provider.0, self.origin());
        let ours = self.model_tools.tools().into_iter().map(|(name, description, schema)| {
            let is_text = self.execute_input == TextTools::ForPrograms && name == self.model_tools.execute();
            let input = if is_text { ToolInput::Text { format: None } } else { ToolInput::Schema(schema) };
            provider.write_tool(ToolDeclaration { name: name.to_owned(), description: Some(description), input })
        });
        let (mut body, passed): (_, Vec<Value>) = match origin {
            // The client's tools are replaced by others.
            BodyOrigin::SameWire => (with_field(&self.body, "tools", Value::Null), self.passed_tools.clone()),
            BodyOrigin::Translated => {
                let tools = self.passed_tools.iter().filter_map(|entry| client.read_tool(entry));
                let tools = tools.map(|tool| provider.write_tool(tool)).collect();
                (provider.write_params(&client.read_params(&self.body)), tools)
            }
        };
        if choice_override == ToolChoiceOverride::Auto {
            body.shift_remove("tool_choice");
        }
        let tool_choice = match (choice_override, &self.prefs.tool_choice) {
            (ToolChoiceOverride::NoCalls, _) => ToolChoice::None,
            (ToolChoiceOverride::Auto, _) => ToolChoice::Auto,
            (ToolChoiceOverride::Keep, ToolChoice::Program) => ToolChoice::Tool(self.model_tools.execute().to_owned()),
            (ToolChoiceOverride::Keep, _) if origin == BodyOrigin::SameWire => ToolChoice::Auto,
            (ToolChoiceOverride::Keep, tool_choice) => tool_choice.clone(),
        };
        let request = ModelRequest {
            client: &self.body,
            history: history.entries(&self.conversation),
            tools: ours.chain(passed).collect(),
            tool_choice,
            calls: self.prefs.calls,
            delivery: self.prefs.delivery,
            origin,
        };
        provider.request(body, request).after_unread(self.conversation.unread.as_ref())
    }
}
