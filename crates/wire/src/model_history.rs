//! The history as the model sees it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::client_wire::EntriesPerResponse;
use crate::conversation::{Conversation, ConversationItem, LostCalls, WireCall};
use crate::ids::short_id;
use crate::model_message::{CallFormat, ModelMessage};
use crate::neutral::{MessagePart, MessageRole, NeutralMessage, ToolResult};
use crate::provider_wire::{BodyOrigin, ResultMedia};
use crate::tool_answer;
use crate::wire::{ClientSide, ProviderSide};

/// A history for the model, in the entries of its wire. The same conversation gives the same bytes, so that providers'
/// prompt caches keep hitting.
#[derive(Debug, Clone)]
pub struct ModelHistory {
    client: ClientSide,
    provider: ProviderSide,
    tool_media: ToolMedia,
    /// Entries of the client before those below, which nobody has read.
    unread: usize,
    entries: Vec<HistoryEntry>,
    /// How many calls were written so far.
    calls: usize,
    /// Ids of calls that took text.
    text_calls: BTreeSet<String>,
    /// The last message if it was the model's, and where its entries begin.
    last: Option<(usize, NeutralMessage)>,
}

#[derive(Debug, Clone)]
enum HistoryEntry {
    Written(Value),
    /// The item of the client's conversation at this position, which the model gets as it is. Histories are long, and a
    /// model is not asked in every turn, so it is not copied before.
    OfClient(usize),
}

/// The result of a call that the gateway answers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallResult {
    /// What the model reads.
    pub text: String,
    /// Images and files, in blocks of the client's wire.
    pub blocks: Vec<Value>,
}

impl From<String> for CallResult {
    fn from(text: String) -> CallResult {
        CallResult { text, blocks: Vec::new() }
    }
}

/// Whether a model takes images and files that programs return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolMedia {
    /// They stand in the result, or after it where results of the wire hold only text.
    Taken,
    /// A line says so in place of each.
    Refused,
}

/// Before images and files that stand outside of their result.
const MEDIA_TITLE: &str = "Images and files of the result above, in the order of their handles:";

/// Stands for a tool result that never came.
pub(crate) const UNANSWERED: &str = "(no answer came back)";
const LOST: &str = "(These calls were made by a program whose state was lost on its way back, so it did not go on.)";

/// Bounds the work of joining entries that one response of the model made.
const JOINED_PARTS_MAX: usize = 128;

impl ModelHistory {
    pub(crate) fn new(client: ClientSide, provider: ProviderSide) -> ModelHistory {
        ModelHistory {
            client,
            provider,
            tool_media: ToolMedia::Taken,
            unread: 0,
            entries: Vec::new(),
            calls: 0,
            last: None,
            text_calls: BTreeSet::new(),
        }
    }

    #[must_use]
    pub(crate) fn with_tool_media(mut self, tool_media: ToolMedia) -> ModelHistory {
        self.tool_media = tool_media;
        self
    }

    /// With so many entries of the client before all others.
    #[must_use]
    pub(crate) fn after_unread(mut self, count: usize) -> ModelHistory {
        self.unread = count;
        self
    }

    /// How many messages or items it has, on the provider's wire.
    pub fn entry_count(&self) -> usize {
        self.unread + self.entries.len()
    }

    /// Its entries, without those that nobody has read; `conversation` is the one that it was written from.
    pub fn entries<'a>(&'a self, conversation: &'a Conversation) -> Vec<&'a Value> {
        let entry = |entry: &'a HistoryEntry| match entry {
            HistoryEntry::Written(entry) => entry,
            HistoryEntry::OfClient(at) => match &conversation.items[*at] {
                ConversationItem::Entry(entry) => entry,
                other => unreachable!("the item was an entry when it was written: {other:?}"),
            },
        };
        self.entries.iter().map(entry).collect()
    }

    fn origin(&self) -> BodyOrigin {
        BodyOrigin::between(self.client, self.provider)
    }

    /// Appends an entry of the client's conversation, which stands there at this position.
    pub fn push_item(&mut self, at: usize, entry: &Value) {
        match self.origin() {
            BodyOrigin::SameWire => self.entries.push(HistoryEntry::OfClient(at)),
            BodyOrigin::Translated => self.translate(entry),
        }
    }

    /// Appends an entry of the client's history that is not part of a program.
    pub fn push_entry(&mut self, entry: Value) {
        match self.origin() {
            BodyOrigin::SameWire => self.entries.push(HistoryEntry::Written(entry)),
            BodyOrigin::Translated => self.translate(&entry),
        }
    }

    fn translate(&mut self, entry: &Value) {
        for mut message in self.client.0.read_entry(entry) {
            message.parts.iter_mut().for_each(|part| self.adapt(part));
            let joins = self.client.0.capabilities().entries == EntriesPerResponse::Many;
            if joins && message.role == MessageRole::Assistant {
                self.join(message);
            } else {
                self.push_messages(&[message]);
            }
        }
    }

    /// Appends to the model's last message: calls that it made together stay together.
    fn join(&mut self, message: NeutralMessage) {
        let last = self.last.take().filter(|(_, joined)| joined.parts.len() < JOINED_PARTS_MAX);
        let empty = || NeutralMessage { role: MessageRole::Assistant, parts: Vec::new() };
        let (at, mut joined) = last.unwrap_or_else(|| (self.entries.len(), empty()));
        joined.parts.extend(message.parts);
        self.entries.truncate(at);
        self.write(self.provider.0.write_entry(&joined));
        self.last = Some((at, joined));
    }

    pub(crate) fn push_messages(&mut self, messages: &[NeutralMessage]) {
        self.last = None;
        for message in messages {
            self.write(self.provider.0.write_entry(message));
        }
    }

    fn write(&mut self, entries: Vec<Value>) {
        self.entries.extend(entries.into_iter().map(HistoryEntry::Written));
    }

    /// Appends a message of the model with the results of its calls, and the calls beside them that the client executed.
    pub fn push_model_message(&mut self, message: &ModelMessage, results: &[CallResult], direct: &[WireCall]) {
        self.last = None;
        let ids = message.short_ids(self.calls);
        self.calls += ids.len();
        let mut media = Vec::new();
        let results = ids.iter().zip(results).map(|(id, result)| self.result(id, result, &mut media)).collect();
        let direct = match self.origin() {
            BodyOrigin::SameWire => direct.to_vec(),
            BodyOrigin::Translated => direct.iter().map(|call| self.translated(call, &mut media)).collect(),
        };
        self.write(self.provider.0.write_model_message(message, &ids, results, direct));
        if !media.is_empty() {
            media.insert(0, MessagePart::Text(MEDIA_TITLE.to_owned()));
            self.push_messages(&[NeutralMessage { role: MessageRole::User, parts: media }]);
        }
    }

    /// A result on the model's wire. What it cannot hold there is added to `media`.
    fn result(&self, id: &str, result: &CallResult, media: &mut Vec<MessagePart>) -> ToolResult {
        let mut written = ToolResult { id: id.to_owned(), text: result.text.clone(), ..ToolResult::default() };
        for block in &result.blocks {
            let part = match (self.tool_media, self.origin()) {
                (ToolMedia::Refused, _) => MessagePart::missing(tool_answer::kind(block).unwrap_or("file")),
                (ToolMedia::Taken, BodyOrigin::SameWire) => MessagePart::Native(block.clone()),
                (ToolMedia::Taken, BodyOrigin::Translated) => self.client.0.read_block(block),
            };
            match part {
                MessagePart::Text(note) => {
                    written.text.push('\n');
                    written.text.push_str(&note);
                }
                part => written.media.push(part),
            }
        }
        self.move_media(&mut written, media);
        written
    }

    fn move_media(&self, result: &mut ToolResult, media: &mut Vec<MessagePart>) {
        if self.provider.capabilities().result_media == ResultMedia::AfterResults {
            media.append(&mut result.media);
        }
    }

    /// Appends calls of a program whose state was lost, as ordinary calls with a line that says so.
    pub fn push_lost_calls(&mut self, lost: &LostCalls) {
        self.push_ordinary_calls(lost, Some(LOST));
    }

    /// Appends calls of a program as ordinary calls, for a request without code mode.
    pub fn push_calls_without_program(&mut self, calls: &LostCalls) {
        self.push_ordinary_calls(calls, None);
    }

    fn push_ordinary_calls(&mut self, lost: &LostCalls, note: Option<&str>) {
        let client = self.client.0;
        let ids: Vec<String> = lost
            .calls
            .iter()
            .zip(self.calls..)
            .map(|(call, position)| {
                let (call, _) = client.read_call(call);
                short_id(&call.name, &call.arguments, position)
            })
            .collect();
        self.calls += ids.len();
        for entry in client.ordinary_calls(lost.clone(), &ids, note) {
            self.push_entry(entry);
        }
    }

    /// A call and its result on the model's wire.
    fn translated(&self, call: &WireCall, media: &mut Vec<MessagePart>) -> WireCall {
        let (mut call, mut result) = self.client.0.read_call(call);
        call.id = self.accepted_id(std::mem::take(&mut call.id));
        if let Some(result) = &mut result {
            result.id = self.accepted_id(std::mem::take(&mut result.id));
            if call.format == CallFormat::Text {
                result.format = CallFormat::Text;
            }
            self.move_media(result, media);
        }
        self.provider.0.write_call(&call, result.as_ref())
    }

    /// Replaces ids that the provider would refuse, and gives results the format of their calls.
    fn adapt(&mut self, part: &mut MessagePart) {
        match part {
            MessagePart::Call(call) => {
                call.id = self.accepted_id(std::mem::take(&mut call.id));
                if call.format == CallFormat::Text {
                    self.text_calls.insert(call.id.clone());
                }
            }
            MessagePart::Result(result) => {
                result.id = self.accepted_id(std::mem::take(&mut result.id));
                if self.text_calls.contains(&result.id) {
                    result.format = CallFormat::Text;
                }
            }
            MessagePart::Text(_) | MessagePart::Media(_) | MessagePart::Native(_) | MessagePart::Reasoning { .. } => {}
        }
    }

    /// An id that the model's provider accepts: the same for a call and its result.
    fn accepted_id(&self, id: String) -> String {
        let chars_max = self.provider.0.capabilities().call_id_chars_max;
        let is_accepted = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'-');
        if !id.is_empty() && id.len() <= chars_max && id.bytes().all(is_accepted) {
            return id;
        }
        short_id(&id, "", 0)
    }
}
