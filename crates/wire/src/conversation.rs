//! A client's history, read into one form for all wires.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dacapo_replay::{Answer, ArgsDigest, CallIndex, HandedOutCall, Journal, JournalEntry};
use serde_json::{Value, json};

use crate::call_round::{CallRound, ExpectedCall, IssuedCall, SentCall, SentOutcome};
use crate::ids::{CarriedRound, RunId};
use crate::model_message::ModelMessage;
use crate::placeholder;
use crate::prompt::SEARCH;
use crate::remarks;
use crate::seal::PackedState;
use crate::state::RunState;
use crate::unread_entries::UnreadEntries;

/// A client's history. Entries that are not part of a program stay in the format of the client's wire.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conversation {
    /// Entries before all items, which stay as they came.
    pub unread: Option<UnreadEntries>,
    /// In the order of the history.
    pub items: Vec<ConversationItem>,
    /// The client's answers to questions whether calls may be made, by the names of the questions.
    pub approvals: BTreeMap<String, bool>,
    /// Names of the lists of servers' tools that the client has.
    pub tool_lists: BTreeSet<String>,
    /// Images and files in answers to calls that the gateway executed, by their handles, in blocks of the client's wire.
    pub executed_attachments: BTreeMap<String, Value>,
}

/// Bytes of the answers in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerBytes {
    /// Of those that the program which continues now gets for the first time.
    pub new: usize,
    /// Of all.
    pub all: usize,
}

/// One part of a history.
#[derive(Debug, Clone, PartialEq)]
pub enum ConversationItem {
    /// An entry that is not part of a program. It is forwarded as it came.
    Entry(Value),
    /// A program, with all entries that tell of it.
    Program(Box<ProgramBlock>),
    /// Calls that the model reads as ordinary ones, with a line that says why.
    LostCalls(LostCalls),
    /// A message of the model that only searches for tools. The gateway answered it, and answers it again.
    Search(ModelMessage),
}

/// A program of the history, with its rounds of calls and answers.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramBlock {
    /// Identifies the run.
    pub run: RunId,
    /// The id by which an explicit client knows the program. For a plain client it is the id of the run.
    pub id: String,
    /// All that the program is run from, except its answers.
    pub state: RunState,
    /// The same as the ids of its calls carry it, if they do.
    pub packed: Option<Arc<PackedState>>,
    /// Its calls that the client executed, and their answers.
    pub rounds: Vec<CallRound>,
    /// Tool calls of the same model message that are not the program's. The client executed them.
    pub direct: Vec<WireCall>,
    /// The result as the model was shown it, if the history holds it.
    pub result: Option<Value>,
    /// Whether it may go on.
    pub status: BlockStatus,
    /// Entries that the client sent together with its answers. The model reads them after the result.
    pub remarks: Vec<Value>,
    /// Messages of the user that an agent appended to answers. They end the program; the model reads them last.
    pub words: Vec<Value>,
    /// Answers to calls that the gateway executed itself after the last round.
    pub owned_after: Vec<JournalEntry>,
    /// Those of earlier programs of the same turn, by the number of their message, if a store had to keep them.
    pub stored_earlier: BTreeMap<usize, Vec<JournalEntry>>,
}

/// Whether the client has seen the end of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockStatus {
    /// It waits for answers, or has just got the last of them.
    Open,
    /// Its result, or something after it, is in the history.
    Closed,
}

/// A tool call and its answer, both as they came on the wire.
#[derive(Debug, Clone, PartialEq)]
pub struct WireCall {
    /// The call.
    pub call: Value,
    /// `None` if the history has none.
    pub answer: Option<Value>,
}

/// Calls of a program whose state did not come back.
#[derive(Debug, Clone, PartialEq)]
pub struct LostCalls {
    /// The assistant message.
    pub message: Value,
    /// The calls in it.
    pub calls: Vec<WireCall>,
    /// What their round carries, if it can be read nevertheless.
    pub(crate) carried: Option<CarriedRound>,
}

impl LostCalls {
    /// Calls of which nothing is known but what the client sent.
    pub fn new(message: Value, calls: Vec<WireCall>) -> LostCalls {
        LostCalls { message, calls, carried: None }
    }
}

impl Conversation {
    /// Reads all of the history.
    pub(crate) fn read_all(&mut self) -> serde_json::Result<()> {
        if let Some(unread) = &self.unread {
            let entries = unread.parse()?.into_iter().map(ConversationItem::Entry);
            self.items.splice(0..0, entries);
            self.unread = None;
        }
        Ok(())
    }

    /// The program that continues with this request: the last item, if the client has not seen its end.
    pub fn live(&self) -> Option<&ProgramBlock> {
        match self.items.last() {
            Some(ConversationItem::Program(block)) if !block.is_closed() => Some(block),
            _ => None,
        }
    }

    /// How large the answers are that programs got.
    pub fn answer_bytes(&self) -> AnswerBytes {
        let bytes = |round: &CallRound| {
            let answers = round.calls.iter().filter_map(|call| call.answer.as_ref());
            answers.map(|(_, answer)| answer.size()).sum::<usize>()
        };
        let rounds = self.items.iter().filter_map(|item| match item {
            ConversationItem::Program(block) => Some(&block.rounds),
            _ => None,
        });
        AnswerBytes {
            new: self.live().and_then(|block| block.rounds.last()).map_or(0, bytes),
            all: rounds.flatten().map(bytes).sum(),
        }
    }

    /// The tools that its programs mention or have called.
    pub fn tool_names(&self) -> impl Iterator<Item = &str> {
        let blocks = self.items.iter().filter_map(|item| match item {
            ConversationItem::Program(block) => Some(block),
            _ => None,
        });
        blocks.flat_map(|block| block.tool_names())
    }

    /// Whether replaying it may repeat searches: of the model, in messages that hold nothing else or that led to a program, or
    /// of programs.
    pub fn has_searches(&self) -> bool {
        self.items.iter().any(|item| match item {
            ConversationItem::Search(_) => true,
            ConversationItem::Program(block) => {
                let calls = block.state.model_messages.iter().map(|message| message.calls.len()).sum::<usize>();
                calls > 1 || may_search(&block.state.code)
            }
            ConversationItem::Entry(_) | ConversationItem::LostCalls(_) => false,
        })
    }

    /// Whether the client says of an image how closely it is looked at.
    pub(crate) fn has_image_detail(&self) -> bool {
        let is_detailed = |block: &Value| {
            let detail = block.pointer("/image_url/detail").or_else(|| block.get("detail"));
            detail.and_then(Value::as_str).is_some_and(|detail| detail != "auto")
        };
        self.items.iter().any(|item| match item {
            ConversationItem::Entry(entry) => {
                let content = entry.get("content").or_else(|| entry.get("output")).and_then(Value::as_array);
                content.is_some_and(|blocks| blocks.iter().any(is_detailed))
            }
            ConversationItem::Program(block) => {
                let calls = block.rounds.iter().flat_map(|round| &round.calls);
                calls.flat_map(|call| &call.attachments).any(|attachment| is_detailed(&attachment.block))
            }
            ConversationItem::LostCalls(_) | ConversationItem::Search(_) => false,
        })
    }

    /// Like [`live`](Self::live), to add what the gateway has executed for it.
    pub fn live_mut(&mut self) -> Option<&mut ProgramBlock> {
        match self.items.last_mut() {
            Some(ConversationItem::Program(block)) if !block.is_closed() => Some(block),
            _ => None,
        }
    }

    /// The programs, last one first.
    pub(crate) fn programs_from_end(&mut self) -> impl Iterator<Item = &mut Box<ProgramBlock>> {
        self.items.iter_mut().rev().filter_map(|item| match item {
            ConversationItem::Program(block) => Some(block),
            _ => None,
        })
    }
}

/// Whether a program may call `search`, which looks through all tools.
pub fn may_search(code: &str) -> bool {
    code.contains(SEARCH)
}

/// Why a program cannot be run again: the client changed the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryGap {
    /// A round is missing.
    Trimmed,
    /// An answer is not the one that the program was given before.
    Edited,
    /// An answer that only the store had is not there any more.
    NotStored,
}

impl ProgramBlock {
    /// A program without calls.
    pub(crate) fn new(id: &str, state: RunState) -> ProgramBlock {
        ProgramBlock {
            run: state.run(),
            id: id.to_owned(),
            state,
            packed: None,
            rounds: Vec::new(),
            direct: Vec::new(),
            result: None,
            status: BlockStatus::Open,
            remarks: Vec::new(),
            words: Vec::new(),
            owned_after: Vec::new(),
            stored_earlier: BTreeMap::new(),
        }
    }

    /// Whether the client has seen the end of the program.
    pub fn is_closed(&self) -> bool {
        self.status == BlockStatus::Closed
    }

    /// Whether the user wrote something that an agent appended to an answer. The program makes no further call.
    pub fn is_interrupted(&self) -> bool {
        let direct = self.direct.iter().filter_map(|call| call.answer.as_ref());
        !self.words.is_empty() || direct.into_iter().any(has_user_words)
    }

    /// Adds what an agent appended to answers, once for each text.
    pub(crate) fn add_appended(&mut self, appended: impl IntoIterator<Item = String>) {
        for text in appended {
            let list = if remarks::are_user_words(&text) { &mut self.words } else { &mut self.remarks };
            let entry = json!({"role": "user", "content": text});
            if !list.contains(&entry) {
                list.push(entry);
            }
        }
    }

    /// The answers, in the order in which the program was given them.
    pub fn journal(&self) -> Result<Journal, HistoryGap> {
        let mut journal = self.journal_of_rounds()?;
        self.owned_after.iter().for_each(|entry| journal.push(entry.clone()));
        Ok(journal)
    }

    /// The answers up to the last round, without those to calls that the gateway executed after it.
    pub fn journal_of_rounds(&self) -> Result<Journal, HistoryGap> {
        let mut journal = Journal::default();
        for ((round, answers), number) in self.rounds.iter().zip(self.given_answers()).zip(0..) {
            if round.number != number {
                return Err(HistoryGap::Trimmed);
            }
            for entry in round.owned.entries().ok_or(HistoryGap::NotStored)? {
                journal.push(entry.clone());
            }
            if round.answered.is_some_and(|before| before != journal.fingerprint()) {
                return Err(HistoryGap::Edited);
            }
            for (call, answer) in answers {
                journal.push(call.entry(answer.clone()));
            }
        }
        Ok(journal)
    }

    /// The answers that the program was given after each of its rounds. A call that was issued once more had no answer
    /// before: what a client has put into the earlier round since came after the later one.
    fn given_answers(&self) -> Vec<Vec<(&IssuedCall, &Answer)>> {
        let mut issued_last = BTreeMap::new();
        for (at, round) in self.rounds.iter().enumerate() {
            issued_last.extend(round.calls.iter().map(|call| (call.expected.index(), at)));
        }
        let mut given: Vec<Vec<(&IssuedCall, &Answer)>> = vec![Vec::new(); self.rounds.len()];
        let mut late = Vec::new();
        let mut answered = BTreeSet::new();
        for (at, round) in self.rounds.iter().enumerate() {
            for (call, answer) in round.answers() {
                let index = call.expected.index();
                let last = issued_last[&index];
                if last > at {
                    late.push((last, call, answer));
                } else if answered.insert(index) {
                    given[at].push((call, answer));
                }
            }
        }
        for (at, call, answer) in late {
            if answered.insert(call.expected.index()) {
                given[at].push((call, answer));
            }
        }
        given
    }

    /// Whether rounds are missing before the last one.
    pub fn is_cut(&self) -> bool {
        self.rounds.iter().zip(0..).any(|(round, number)| round.number != number)
    }

    /// Puts answers back that the client has replaced, from texts of [`CallRound::answers_text`] by number of their round.
    /// Nothing changes if they are not what the program was given.
    pub fn restore_answers(&mut self, texts: &BTreeMap<u32, String>) {
        let mut replaced = Vec::new();
        for (at, round) in self.rounds.iter_mut().enumerate() {
            let before = texts.get(&round.number).map(|text| round.restore_answers(text));
            replaced.extend(before.into_iter().flatten().map(|(call, answer)| (at, call, answer)));
        }
        if self.journal().is_err() {
            // In reverse, because a text may have two answers for one call.
            for (round, call, answer) in replaced.into_iter().rev() {
                self.rounds[round].calls[call].answer = answer;
            }
        }
    }

    /// The answers that the gateway had for an earlier program of the turn; `None` if they are not stored any more.
    pub fn earlier_journal(&self, message: usize) -> Option<Journal> {
        let Some((_, carried)) = self.state.earlier_answers.iter().find(|(at, _)| *at == message) else {
            return Some(Journal::default());
        };
        let stored = || self.stored_earlier.get(&message).map(Vec::as_slice);
        Some(carried.entries().or_else(stored)?.iter().cloned().collect())
    }

    /// All calls that were sent, in the order of their answers, whether or not the program can be run again.
    pub fn sent_calls(&self) -> Vec<SentCall<'_>> {
        // A round's fingerprint tells whether the answers before it are still what they were.
        let given = self.given_answers();
        let mut journal = Journal::default();
        let mut replaced_before = 0;
        for (at, (round, answers)) in self.rounds.iter().zip(&given).enumerate() {
            round.owned.entries().unwrap_or_default().iter().for_each(|entry| journal.push(entry.clone()));
            if round.answered.is_some_and(|before| before != journal.fingerprint()) {
                replaced_before = at;
            }
            for (call, answer) in answers {
                journal.push(call.entry((*answer).clone()));
            }
        }
        self.sent_calls_of(given, replaced_before)
    }

    /// The same for a program whose [journal](Self::journal) has been made, so that no answer can have been replaced. Large
    /// answers are not hashed once more.
    pub fn sent_calls_of_journal(&self) -> Vec<SentCall<'_>> {
        self.sent_calls_of(self.given_answers(), 0)
    }

    /// `given` are the answers by round; those before the round at `replaced_before` are not what they were.
    fn sent_calls_of<'a>(
        &'a self,
        given: Vec<Vec<(&'a IssuedCall, &'a Answer)>>,
        replaced_before: usize,
    ) -> Vec<SentCall<'a>> {
        let answered: BTreeSet<CallIndex> = given.iter().flatten().map(|(call, _)| call.expected.index()).collect();
        let mut unanswered = BTreeSet::new();
        let mut sent = Vec::new();
        for (at, (round, answers)) in self.rounds.iter().zip(given).enumerate() {
            sent.extend(
                round.owned.entries().unwrap_or_default().iter().map(|entry| SentCall::executed(entry, round.number)),
            );
            sent.extend(answers.into_iter().map(|(call, answer)| {
                let is_replaced = at < replaced_before || placeholder::is_placeholder(answer);
                let outcome = if is_replaced { SentOutcome::Replaced } else { SentOutcome::Answered(answer) };
                SentCall::of_client(call, round.number, outcome)
            }));
            for call in &round.calls {
                let index = call.expected.index();
                if !answered.contains(&index) && unanswered.insert(index) {
                    sent.push(SentCall::of_client(call, round.number, SentOutcome::Unanswered));
                }
            }
        }
        sent.extend(self.owned_after.iter().map(|entry| SentCall::executed(entry, self.next_round())));
        sent
    }

    /// All answers to calls that the gateway executed itself.
    fn owned(&self) -> impl Iterator<Item = &JournalEntry> {
        let of_rounds = self.rounds.iter().flat_map(|round| round.owned.entries().unwrap_or_default());
        of_rounds.chain(&self.owned_after)
    }

    /// All calls that were sent, for a program whose tools have changed.
    pub fn handed_out(&self) -> Vec<HandedOutCall> {
        let executed = |entry: &JournalEntry| {
            Some(HandedOutCall { call: entry.call, tool: entry.tool.clone(), args: entry.args_digest()? })
        };
        let calls = self.rounds.iter().flat_map(|round| &round.calls);
        let handed_out = calls.map(|call| {
            let args = match &call.expected {
                ExpectedCall::Digest(expected) => expected.args,
                ExpectedCall::Args(_, args) => ArgsDigest::of_args(args),
            };
            HandedOutCall { call: call.expected.index(), tool: call.tool.clone(), args }
        });
        handed_out.chain(self.owned().filter_map(executed)).collect()
    }

    /// Names of the tools that the program was written for, as far as it mentions or has called them.
    pub fn tool_names(&self) -> BTreeSet<&str> {
        let called = self.rounds.iter().flat_map(|round| &round.calls).map(|call| call.tool.as_str());
        let executed = self.owned().map(|entry| entry.tool.as_str());
        self.state.mentioned.iter().map(String::as_str).chain(called).chain(executed).collect()
    }

    /// Whether answers have images or files.
    pub fn has_attachments(&self) -> bool {
        self.rounds.iter().flat_map(|round| &round.calls).any(|call| !call.attachments.is_empty())
            || self.owned().any(|entry| !entry.answer.handles().is_empty())
    }

    /// How many calls of the client have an answer in the history.
    pub fn answered_count(&self) -> usize {
        self.rounds.iter().flat_map(|round| &round.calls).filter(|call| call.answer.is_some()).count()
    }

    /// The number of the next round. A round without any answer is issued again under the same number.
    pub fn next_round(&self) -> u32 {
        self.rounds.last().map_or(0, |round| {
            let is_answered = round.calls.iter().any(|call| call.answer.is_some());
            round.number + u32::from(is_answered)
        })
    }
}

/// Whether an agent appended words of the user to the result of a tool, on any wire.
fn has_user_words(result: &Value) -> bool {
    let content = result.get("content").or_else(|| result.get("output"));
    let last = content.and_then(Value::as_array).and_then(|parts| parts.last()).and_then(|part| part.get("text"));
    let text = last.or(content).and_then(Value::as_str).unwrap_or_default();
    remarks::split_reminders(text).1.is_some_and(|reminders| remarks::are_user_words(&reminders))
}
