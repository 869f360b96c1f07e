//! The formats in which clients send requests, and models are asked.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use dacapo_replay::{Answer, Attachment, Catalog, CompletedCall, RecordedOutcome};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client_wire::{ClientWire, EntryAuthor, FailureMark};
use crate::conversation::{Conversation, ConversationItem, LostCalls, WireCall};
use crate::decoder::{ModelResponse, ResponseDecoder};
use crate::encoder::ApiError;
use crate::ids::{RunId, UnsealedCallId};
use crate::placeholder;
use crate::plain_mode::tool_name;
use crate::provider_wire::{ProviderCapabilities, ProviderWire};
use crate::request::BadRequest;
use crate::request_servers::RequestServer;
use crate::sse::SseEvent;
use crate::tool_answer::{ToolAnswer, written_media};
use crate::turn::Delivery;
use crate::{chat, messages, responses};

/// A protocol of the LLM APIs. Its two sides are [`ClientSide`] and [`ProviderSide`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Wire {
    /// `OpenAI` Chat Completions.
    Chat,
    /// `OpenAI` Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
}

impl Wire {
    /// Every wire once.
    pub const ALL: [Wire; 3] = [Wire::Chat, Wire::Responses, Wire::Messages];

    /// A wire by the name that configurations and scripts have for it.
    ///
    /// ```
    /// use dacapo_wire::{ClientSide, Wire};
    ///
    /// let wire = Wire::parse("messages").expect("there is one");
    /// assert_eq!(ClientSide::of(wire).map(ClientSide::wire), Some(Wire::Messages));
    /// assert_eq!(Wire::parse("anthropic"), None);
    /// ```
    pub fn parse(name: &str) -> Option<Wire> {
        Wire::ALL.into_iter().find(|wire| wire.name() == name)
    }

    /// What [`Wire::parse`] reads.
    pub fn name(self) -> &'static str {
        match self {
            Wire::Chat => "chat",
            Wire::Responses => "responses",
            Wire::Messages => "messages",
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A wire that clients can speak. There may be wires that only models are asked on.
#[derive(Clone, Copy)]
pub struct ClientSide(pub(crate) &'static dyn ClientWire);

/// A wire that models can be asked on. There may be wires that only clients speak.
#[derive(Clone, Copy)]
pub struct ProviderSide(pub(crate) &'static dyn ProviderWire);

impl ClientSide {
    /// Clients of Chat Completions.
    pub const CHAT: ClientSide = ClientSide(&chat::Chat);
    /// Clients of Responses.
    pub const RESPONSES: ClientSide = ClientSide(&responses::Responses);
    /// Clients of Messages.
    pub const MESSAGES: ClientSide = ClientSide(&messages::Messages);
    /// Every one of them once.
    pub const ALL: [ClientSide; 3] = [ClientSide::CHAT, ClientSide::RESPONSES, ClientSide::MESSAGES];

    /// `None` if no client speaks this wire.
    pub fn of(wire: Wire) -> Option<ClientSide> {
        ClientSide::ALL.into_iter().find(|client| client.wire() == wire)
    }

    /// The wire that it is a side of.
    pub fn wire(self) -> Wire {
        self.0.wire()
    }

    /// An error as this wire's clients expect it.
    pub fn error_body(self, error: &ApiError<'_>) -> Value {
        self.0.error_body(error)
    }

    /// An error in a stream that is passed on as it comes, from the body that it would have as a response.
    pub fn error_event(self, body: &Value) -> SseEvent {
        self.0.error_event(body)
    }

    /// Who wrote an entry of the history.
    pub fn entry_author(self, entry: &Value) -> EntryAuthor {
        self.0.entry_author(entry)
    }

    /// Whether an answer is surely one of a tool that succeeded. Where tool results have no field for failures, text that
    /// begins with `Error` is not.
    pub fn has_succeeded(self, answer: &Answer) -> bool {
        match (answer, self.0.capabilities().failures) {
            (Answer::Error { .. }, _) => false,
            (Answer::Ok(_), FailureMark::Field) => true,
            (Answer::Ok(json), FailureMark::Text) => !json.as_string().is_some_and(|text| text.starts_with("Error")),
        }
    }

    /// Adds calls of a program whose state was lost to a record. Their ids may know of calls before them that the client
    /// has cut out of the history.
    pub fn record_lost_calls(self, lost: &LostCalls, catalog: &Catalog, record: &mut Vec<CompletedCall>) {
        let of_ids = lost.calls.iter().filter_map(|call| UnsealedCallId::parse(&self.0.read_call(call).0.id)?.carried);
        for carried in of_ids.map(Cow::Owned).chain(lost.carried.as_ref().map(Cow::Borrowed)) {
            record.extend(carried.missing_in(record));
        }
        record.extend(self.recorded_calls(lost, catalog));
    }

    fn recorded_calls(self, lost: &LostCalls, catalog: &Catalog) -> Vec<CompletedCall> {
        let recorded = |wire_call: &WireCall| {
            let (call, _) = self.0.read_call(wire_call);
            let args = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
            let tool = tool_name(&call.name, catalog);
            let Some(ToolAnswer { answer, .. }) = self.lost_answer(wire_call) else {
                return Some(CompletedCall::with_outcome(tool, &args, RecordedOutcome::Unknown));
            };
            if placeholder::is_placeholder(&answer) {
                return Some(CompletedCall::with_outcome(tool, &args, RecordedOutcome::AnswerLost));
            }
            let has_succeeded = self.has_succeeded(&answer);
            match answer {
                Answer::Ok(ok) if has_succeeded => Some(CompletedCall::new(tool, &args, ok)),
                _ => None,
            }
        };
        lost.calls.iter().filter_map(recorded).collect()
    }

    /// The answer to a call of a program whose state was lost.
    fn lost_answer(self, call: &WireCall) -> Option<ToolAnswer> {
        let answer = call.answer.as_ref()?;
        let key = RunId::of(self.0.read_call(call).0.id.as_bytes()).to_string();
        Some(self.0.read_answer(answer, &key))
    }

    /// The images and files that handles stand for, in blocks of this wire; `None` for those that the conversation does not
    /// have.
    pub fn attachments(self, conversation: &Conversation, handles: &[&str]) -> Vec<Option<Value>> {
        let places: BTreeMap<&str, usize> = handles.iter().copied().zip(0..).collect();
        let mut found = vec![None; handles.len()];
        let mut add = |attachment: &Attachment| {
            if let Some(place) = places.get(attachment.handle.as_str()) {
                found[*place] = Some(attachment.block.clone());
            }
        };
        for item in &conversation.items {
            match item {
                ConversationItem::Program(block) => {
                    let calls = block.rounds.iter().flat_map(|round| &round.calls);
                    calls.flat_map(|call| &call.attachments).for_each(&mut add);
                }
                ConversationItem::LostCalls(lost) => {
                    let answers = lost.calls.iter().filter_map(|call| self.lost_answer(call));
                    answers.for_each(|answer| answer.attachments.iter().for_each(&mut add));
                }
                ConversationItem::Entry(_) | ConversationItem::Search(_) => {}
            }
        }
        for (handle, found) in handles.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
            *found = conversation.executed_attachments.get(*handle).cloned();
        }
        found
    }

    /// The image or file in a content block of MCP, in a block of this wire. `None` if it is neither.
    pub fn attachment_block(self, block: &Value) -> Option<Value> {
        written_media(block).map(|media| self.0.write_block(&media))
    }

    /// The MCP servers that a request names, with their addresses.
    pub fn request_servers(self, body: &Value) -> Result<Vec<RequestServer>, BadRequest> {
        body.as_object().map_or(Ok(Vec::new()), |body| self.0.request_servers(body))
    }

    /// Whether the history ends with tool results, so that a program may continue now.
    pub fn awaits_answers(self, body: &Value) -> bool {
        self.0.awaits_answers(body)
    }
}

impl ProviderSide {
    /// Providers of Chat Completions.
    pub const CHAT: ProviderSide = ProviderSide(&chat::Chat);
    /// Providers of Responses.
    pub const RESPONSES: ProviderSide = ProviderSide(&responses::Responses);
    /// Providers of Messages.
    pub const MESSAGES: ProviderSide = ProviderSide(&messages::Messages);
    /// Every one of them once.
    pub const ALL: [ProviderSide; 3] = [ProviderSide::CHAT, ProviderSide::RESPONSES, ProviderSide::MESSAGES];

    /// `None` if no model is asked on this wire.
    pub fn of(wire: Wire) -> Option<ProviderSide> {
        ProviderSide::ALL.into_iter().find(|provider| provider.wire() == wire)
    }

    /// Which wire it is.
    pub fn wire(self) -> Wire {
        self.0.wire()
    }

    /// How the wire differs from the others.
    pub fn capabilities(self) -> ProviderCapabilities {
        self.0.capabilities()
    }

    /// Where a model is asked, below the provider's base URL, which ends in `/v1`.
    pub fn endpoint(self, model: &str, delivery: Delivery) -> Cow<'static, str> {
        self.0.endpoint(model, delivery)
    }

    /// Puts one streamed response together.
    ///
    /// ```
    /// use dacapo_wire::{ProviderSide, SseReader};
    /// let stream = br#"data: {"id": "1", "choices": [{"delta": {"content": "Hel"}}]}
    ///
    /// data: {"id": "1", "choices": [{"delta": {"content": "lo"}, "finish_reason": "stop"}]}
    ///
    /// "#;
    /// let mut decoder = ProviderSide::CHAT.decoder();
    /// for event in SseReader::default().read(stream).expect("it is short") {
    ///     decoder.decode_event(&event).expect("it is JSON");
    /// }
    /// assert_eq!(decoder.finish().expect("it is complete").message.text.as_deref(), Some("Hello"));
    /// ```
    pub fn decoder(self) -> Box<dyn ResponseDecoder> {
        self.0.decoder()
    }

    /// Decodes a response that came whole.
    pub fn decode_response(self, body: Value) -> Result<ModelResponse, String> {
        self.0.decode_response(body)
    }
}

impl fmt::Debug for ClientSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientSide({})", self.wire())
    }
}

impl fmt::Debug for ProviderSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProviderSide({})", self.wire())
    }
}
