//! The history as the model sees it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::conversation::{Given, Lost};
use crate::ids::short_id;
use crate::message::{Message, Part, Role};
use crate::saying::Saying;
use crate::wire::Wire;

/// Entries of a history for the model, in the words of its wire. The same items give the same bytes, so that
/// providers' prompt caches keep hitting.
#[derive(Debug, Clone)]
pub struct Transcript {
    client: Wire,
    upstream: Wire,
    entries: Vec<Value>,
    /// Calls written so far.
    calls: usize,
    /// Ids of calls that took text.
    custom: BTreeSet<String>,
    /// What the model said last, and where it is written.
    last: Option<(usize, Message)>,
}

/// What stands for an answer that never came.
pub(crate) const UNANSWERED: &str = "(no answer came back)";
const LOST: &str = "(These calls were made by a program whose state was lost on its way back, so it did not go on.)";

/// No answer has more; whoever makes one up gets it in pieces.
const PARTS_MAX: usize = 128;

impl Transcript {
    pub(crate) fn new(client: Wire, upstream: Wire) -> Transcript {
        Transcript { client, upstream, entries: Vec::new(), calls: 0, last: None, custom: BTreeSet::new() }
    }

    pub fn entries(&self) -> &[Value] {
        &self.entries
    }

    pub(crate) fn into_entries(self) -> Vec<Value> {
        self.entries
    }

    /// An entry that is none of ours.
    pub fn message(&mut self, entry: Value) {
        if self.client == self.upstream {
            self.entries.push(entry);
            return;
        }
        for mut message in (self.client.dialect().read)(&entry) {
            message.parts.iter_mut().for_each(|part| self.fit(part));
            // On this wire an answer is many entries, on others one: calls made together stay together.
            if self.client == Wire::Responses && message.role == Role::Assistant {
                self.go_on(message);
            } else {
                self.messages(&[message]);
            }
        }
    }

    /// More of what the model said, if it was the last to speak.
    fn go_on(&mut self, message: Message) {
        let last = self.last.take().filter(|(_, said)| said.parts.len() < PARTS_MAX);
        let (at, mut said) =
            last.unwrap_or_else(|| (self.entries.len(), Message { role: Role::Assistant, parts: Vec::new() }));
        said.parts.extend(message.parts);
        self.entries.truncate(at);
        self.entries.extend((self.upstream.dialect().write)(&said));
        self.last = Some((at, said));
    }

    pub(crate) fn messages(&mut self, messages: &[Message]) {
        self.last = None;
        for message in messages {
            self.entries.extend((self.upstream.dialect().write)(message));
        }
    }

    /// A message of the model with the results of its calls, and the calls beside them that the client executed.
    pub fn saying(&mut self, saying: &Saying, results: &[String], direct: &[Given]) {
        self.last = None;
        let ids = saying.short_ids(self.calls);
        self.calls += ids.len();
        let dialect = self.upstream.dialect();
        if self.client == self.upstream {
            self.entries.extend((dialect.saying)(saying, &ids, results, direct));
            return;
        }
        let translated: Vec<Given> = direct.iter().map(|given| self.translated(given)).collect();
        self.entries.extend((dialect.saying)(saying, &ids, results, &translated));
    }

    /// Calls that were a program's, as ordinary ones, with a line that says so.
    pub fn lost(&mut self, lost: &Lost) {
        self.ordinary(lost, Some(LOST));
    }

    /// The same, for a request without code mode.
    pub(crate) fn off(&mut self, lost: &Lost) {
        self.ordinary(lost, None);
    }

    fn ordinary(&mut self, lost: &Lost, note: Option<&str>) {
        let client = self.client.dialect();
        let ids: Vec<String> = lost
            .calls
            .iter()
            .zip(self.calls..)
            .map(|(given, position)| {
                let (call, _) = (client.read_given)(given);
                short_id(&call.name, &call.arguments, position)
            })
            .collect();
        self.calls += ids.len();
        for entry in (client.ordinary)(&lost.message, &lost.calls, &ids, note) {
            self.message(entry);
        }
    }

    /// A call and its answer in the words of the model's wire.
    fn translated(&self, given: &Given) -> Given {
        let (mut call, mut answer) = (self.client.dialect().read_given)(given);
        call.id = self.fitting(std::mem::take(&mut call.id));
        if let Some(answer) = &mut answer {
            answer.id = self.fitting(std::mem::take(&mut answer.id));
            answer.is_custom |= call.is_custom;
        }
        (self.upstream.dialect().write_given)(&call, answer.as_ref())
    }

    /// Ids that the provider takes, and answers of the kind that their calls are.
    fn fit(&mut self, part: &mut Part) {
        match part {
            Part::Call(call) => {
                call.id = self.fitting(std::mem::take(&mut call.id));
                if call.is_custom {
                    self.custom.insert(call.id.clone());
                }
            }
            Part::Answer(answer) => {
                answer.id = self.fitting(std::mem::take(&mut answer.id));
                answer.is_custom |= self.custom.contains(&answer.id);
            }
            Part::Text(_) | Part::Media(_) | Part::Reasoning { .. } => {}
        }
    }

    /// An id that the model's provider takes: the same for a call and its answer.
    fn fitting(&self, id: String) -> String {
        let chars_max = match self.upstream {
            Wire::Chat => 40,
            Wire::Responses | Wire::Messages => 64,
        };
        let is_taken = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'-');
        if !id.is_empty() && id.len() <= chars_max && id.bytes().all(is_taken) {
            return id;
        }
        short_id(&id, "", 0)
    }
}
