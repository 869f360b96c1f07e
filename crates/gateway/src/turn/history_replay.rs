//! Replaying the programs of a history, so that the model is shown their results.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use dacapo_replay::{
    Call, Catalog, CompletedCall, Limits, Program, SearchAnswer, SearchResults, ShouldContinue, StepError, StepRequest,
    StepStart, Stepper, StoredValues, handles_in,
};
use dacapo_wire::{
    CallReply, CallResult, ClientSide, Conversation, ConversationItem, EntryAuthor, HistoryGap, Intent, ModelHistory,
    ModelMessage, ModelTools, ProgramBlock, RoundHeader, SearchQuery, StoredId,
};
use serde_json::Value;

use super::program_run::{ProgramRun, ReplayTools, abandoned, functions_with_shapes, note_attachments_in, show_shapes};
use super::replayed_program::ReplayedProgram;
use crate::embeddings::Embeddings;
use crate::store::Store;

/// Runs the programs of one turn.
pub(crate) struct HistoryReplay<'a> {
    pub client: ClientSide,
    pub conversation: &'a Conversation,
    pub stepper: &'a Stepper,
    pub model_tools: &'a ModelTools,
    /// Tools from this position in the catalog on are the gateway's own.
    pub owned_from: usize,
    /// A hash of the tool list.
    pub tools_digest: [u8; 8],
    pub client_calls: ClientCalls,
    pub limits: &'a Limits,
    /// Ranks tools for a search, if the gateway has a model for it.
    pub embeddings: Option<(&'a Embeddings, Option<&'a Store>)>,
    pub should_continue: ShouldContinue<'a>,
    pub trace: &'a dyn ReplayTrace,
    /// Handles in results whose images and files the conversation does not have.
    pub missing: RefCell<BTreeSet<String>>,
}

/// Observes a replay. Whoever implements it takes what it needs.
pub(crate) trait ReplayTrace {
    /// An item of the conversation is written; the model's history has this many entries before it.
    fn item(&self, at: usize, entries: usize) {
        _ = (at, entries);
    }

    /// A program is run, with a record of completed calls and values that earlier programs stored.
    fn program(&self, program: &Program, record: &[CompletedCall], stored: &StoredValues) {
        _ = (program, record, stored);
    }

    /// A step was run.
    fn step(&self, start: StepStart, took: Duration, fuel: u64) {
        _ = (start, took, fuel);
    }
}

/// Whether the client takes tool calls (`tool_choice`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientCalls {
    Taken,
    Refused,
}

/// Who continues after a history.
#[derive(Debug)]
pub(crate) enum HistoryEnd {
    Model(Inherited),
    /// The last program waits for these calls.
    Waiting {
        round: RoundHeader,
        calls: Vec<Call>,
        /// The step that it waits at.
        request: Box<StepRequest>,
    },
}

/// What the rest of the turn needs to know of the programs before.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// Set if the last program has just finished, with answers of this request.
    pub finished: Option<FinishedProgram>,
    /// Calls of programs that failed or were abandoned since the model's last answer to the user, oldest first. The next
    /// program does not execute them again.
    pub record: Vec<CompletedCall>,
    /// What the programs before keep for later ones.
    pub stored: StoredValues,
    /// Functions whose shapes of answers the model has read.
    pub shapes: BTreeSet<String>,
}

#[derive(Debug)]
pub(crate) struct FinishedProgram {
    /// The result as the model reads it.
    pub shown: Value,
    /// Size of all answers that the program got.
    pub answer_bytes: usize,
}

/// Stands for any program that loads values.
const LOADS: &str = "load";
const GONE: &str = "cannot be shown, because the conversation does not have it";
const TOO_SLOW: &str = "running it again took too long";
const NOT_STORED: &str = "answers to calls that were executed here are not stored any more";

impl HistoryReplay<'_> {
    /// Writes the conversation into the model's history, and says who continues.
    pub(crate) fn write(&self, history: &mut ModelHistory) -> Result<HistoryEnd, StepError> {
        let mut inherited = Inherited::default();
        let mut lasts = RecordLasts::UntilAnswer;
        let items = &self.conversation.items;
        for (at, item) in items.iter().enumerate() {
            inherited.finished = None;
            self.trace.item(at, history.entry_count());
            match item {
                ConversationItem::Entry(entry) => {
                    if self.is_final_answer(entry, items.get(at + 1)) {
                        match std::mem::replace(&mut lasts, RecordLasts::UntilAnswer) {
                            RecordLasts::UntilAnswer => inherited.record.clear(),
                            RecordLasts::UntilNextAnswer => {}
                        }
                    }
                    history.push_item(at, entry);
                }
                ConversationItem::LostCalls(calls) => {
                    self.client.record_lost_calls(calls, self.catalog(), &mut inherited.record);
                    if self.model_tools.reads_programs() {
                        history.push_lost_calls(calls);
                    } else {
                        history.push_calls_without_program(calls);
                    }
                }
                ConversationItem::Search(message) => {
                    history.push_model_message(message, &self.replies(message, |_| CallResult::default()), &[]);
                }
                ConversationItem::Program(block) => {
                    let is_last = at + 1 == items.len();
                    let position = if is_last && !block.is_closed() { Position::Last } else { Position::Earlier };
                    match self.write_program(block, position, inherited, history)? {
                        HistoryEnd::Model(of_program) => {
                            inherited = of_program;
                            if self.is_interrupted(block, items.get(at + 1)) {
                                lasts = RecordLasts::UntilNextAnswer;
                            }
                        }
                        waiting @ HistoryEnd::Waiting { .. } => return Ok(waiting),
                    }
                }
            }
        }
        Ok(HistoryEnd::Model(inherited))
    }

    /// Whether the model ends its work for the user with this entry. Text before a call or a program is no answer.
    fn is_final_answer(&self, entry: &Value, next: Option<&ConversationItem>) -> bool {
        let is_client = match next {
            None => true,
            Some(ConversationItem::Entry(next)) => self.client.entry_author(next) == EntryAuthor::Client,
            Some(_) => false,
        };
        is_client && self.client.entry_author(entry) == EntryAuthor::ModelText
    }

    /// Whether the user's words ended a program: appended to an answer, or after it.
    fn is_interrupted(&self, block: &ProgramBlock, next: Option<&ConversationItem>) -> bool {
        let is_client = |next: &ConversationItem| match next {
            ConversationItem::Entry(entry) => self.client.entry_author(entry) == EntryAuthor::Client,
            _ => false,
        };
        block.is_interrupted() || !block.is_closed() && next.is_some_and(is_client)
    }

    fn write_program(
        &self,
        block: &ProgramBlock,
        position: Position,
        inherited: Inherited,
        history: &mut ModelHistory,
    ) -> Result<HistoryEnd, StepError> {
        let state = &block.state;
        let Some((waiting, before)) = state.model_messages.split_last() else {
            return Ok(HistoryEnd::Model(Inherited { finished: None, ..inherited }));
        };
        let Inherited { record, mut stored, shapes: mut shown_shapes, .. } = inherited;
        let has_lost_values = state.stored.is_some_and(|id| StoredId::of(&stored, LOADS) != Some(id));
        // A program goes on only with the record that it began with. If calls of it are gone, others would be executed
        // that the journal knows nothing of.
        let mut cut = Vec::new();
        let mut record = record;
        let mut given = match &state.record {
            Some(of_program) if of_program.is(&record) => record.clone(),
            Some(of_program) => {
                cut = of_program.writes.missing_in(&record);
                // It is not known which of the answers are still what they were.
                record.iter_mut().for_each(CompletedCall::forget_answer);
                Vec::new()
            }
            None => Vec::new(),
        };
        let is_orphan = state.record.is_some() && given.is_empty();
        let tools = self.tools_of(block);
        for (at, message) in before.iter().enumerate() {
            let replies = self.replies(message, |code| {
                let Some(journal) = block.earlier_journal(at) else { return self.result(&abandoned(NOT_STORED)) };
                let request = self.request(&tools, state.program(at, code), &given, &stored).with_journal(journal);
                let shown = match self.run(&request) {
                    Ok(ProgramRun::Finished { mut shown, record, stored: kept, shapes, end }) => {
                        (given, stored) = (record, kept);
                        note_attachments_in(&mut shown, request.journal.entries());
                        show_shapes(&mut shown, &shapes, end, &mut shown_shapes);
                        shown
                    }
                    Ok(ProgramRun::Paused { .. }) => abandoned("it now makes calls that it did not make then"),
                    Err(_) => abandoned(TOO_SLOW),
                };
                self.result(&shown)
            });
            history.push_model_message(message, &replies, &[]);
        }
        let replayed = match (&block.result, block.journal()) {
            (Some(result), _) if is_orphan => self.recorded_result(block, &tools, result, None, record, &mut stored),
            (Some(result), journal) => {
                let journal = journal.ok().filter(|_| !has_lost_values);
                self.recorded_result(block, &tools, result, journal, given, &mut stored)
            }
            (None, _) if has_lost_values => self.abandoned(
                block,
                given,
                "values that an earlier program had stored are not in the conversation any more, so that it cannot go on with them",
            ),
            (None, _) if is_orphan => self.abandoned(
                block,
                record,
                "calls of an earlier program that it relied on are not in the conversation any more",
            ),
            (None, Err(gap)) => self.abandoned(block, given, &gap_reason(gap, &state.code)),
            (None, Ok(journal)) => {
                let request = self.request(&tools, state.waiting(), &given, &stored).with_journal(journal);
                match (self.run(&request), position) {
                    (Ok(ProgramRun::Paused { calls, stored: kept }), _) => {
                        if let Some(reason) = self.stop_reason(block, position, &tools, &calls) {
                            stored = kept;
                            self.abandoned(block, given, reason)
                        } else {
                            let before = self.writes_before_next_round(block);
                            let (number, answered) = (block.next_round(), request.journal.fingerprint());
                            let round = RoundHeader { before, ..RoundHeader::new(number, answered) };
                            return Ok(HistoryEnd::Waiting { round, calls, request: Box::new(request) });
                        }
                    }
                    (Ok(ProgramRun::Finished { shown, end, record, stored: kept, shapes }), _) => {
                        stored = kept;
                        let mut shown = self.explained(shown, block);
                        show_shapes(&mut shown, &shapes, end, &mut shown_shapes);
                        let record = self.record_after(block, end, given, Some(record));
                        ReplayedProgram { shown, answer_bytes: request.journal.bytes(), record }
                    }
                    (Err(error), Position::Last) => return Err(error),
                    (Err(_), Position::Earlier) => self.abandoned(block, given, TOO_SLOW),
                }
            }
        };
        let ReplayedProgram { shown, answer_bytes, mut record } = replayed;
        shown_shapes.extend(functions_with_shapes(&shown));
        record.extend(cut);
        let mut replies = self.replies(waiting, |_| CallResult::default());
        if let Some(result) = replies.get_mut(state.at) {
            *result = self.result(&shown);
        }
        history.push_model_message(waiting, &replies, &block.direct);
        for beside in block.remarks.iter().chain(&block.words) {
            history.push_entry(beside.clone());
        }
        let finished = (position == Position::Last).then_some(FinishedProgram { shown, answer_bytes });
        Ok(HistoryEnd::Model(Inherited { finished, record, stored, shapes: shown_shapes }))
    }

    /// Why a program that waits for these calls does not go on; `None` if it does.
    fn stop_reason(
        &self,
        block: &ProgramBlock,
        position: Position,
        tools: &ReplayTools,
        calls: &[Call],
    ) -> Option<&'static str> {
        let is_executed = || self.client_calls == ClientCalls::Taken || calls.iter().any(|call| self.owns(&call.tool));
        if block.is_interrupted() {
            Some("the user wrote something before its next call")
        } else if position == Position::Earlier {
            Some("the conversation went on before all its calls were answered")
        } else if tools.has_withdrawn(calls) {
            Some("the client took a tool away whose answer it waits for")
        } else if is_executed() {
            None
        } else {
            Some("the client takes no more calls")
        }
    }

    /// The results of a message's calls that the gateway answers; `program` gives that of a program.
    pub(super) fn replies(
        &self,
        message: &ModelMessage,
        mut program: impl FnMut(&str) -> CallResult,
    ) -> Vec<CallResult> {
        let code = match message.intent(self.model_tools) {
            Intent::Program { code, .. } => code,
            _ => String::new(),
        };
        let replies = message.replies(self.model_tools, &|query| self.search(query).1.text);
        let replies = replies.into_iter().map(|reply| match reply {
            CallReply::Text(text) => CallResult::from(text),
            CallReply::Program => program(&code),
        });
        replies.collect()
    }

    /// A result as the model gets it: with the images and files whose handles are in it.
    pub(super) fn result(&self, shown: &Value) -> CallResult {
        let mut result = CallResult::from(shown.to_string());
        let handles = handles_in(&result.text);
        if handles.is_empty() {
            return result;
        }
        let blocks = self.client.attachments(self.conversation, &handles);
        let gone = handles.iter().zip(&blocks).filter(|(_, block)| block.is_none()).map(|(handle, _)| *handle);
        let gone: Vec<&str> = gone.collect();
        self.missing.borrow_mut().extend(gone.iter().map(|handle| (*handle).to_owned()));
        let note = (!gone.is_empty()).then(|| format!("\n({}: {GONE})", gone.join(", ")));
        result.blocks = blocks.into_iter().flatten().collect();
        result.text.extend(note);
        result
    }

    pub(super) fn catalog(&self) -> &Catalog {
        self.model_tools.toolbox().catalog()
    }

    /// What a search of the model finds. With embeddings it waits for an upstream, on a thread that may block.
    pub(super) fn search(&self, query: &SearchQuery) -> (SearchResults, SearchAnswer) {
        let rank = |needs: &[&str]| match self.embeddings {
            None => Vec::new(),
            Some((embeddings, store)) => {
                let needs: Vec<String> = needs.iter().map(|need| (*need).to_owned()).collect();
                tokio::runtime::Handle::current().block_on(embeddings.rank(self.catalog(), &needs, store))
            }
        };
        self.model_tools.toolbox().search_with(&query.text, query.limit(), query.tokens_max(), rank)
    }

    /// Whether the gateway executes calls of the tool itself.
    fn owns(&self, tool: &str) -> bool {
        self.catalog().find(tool).is_some_and(|index| index.0 as usize >= self.owned_from)
    }
}

/// When the model's answer to the user ends the record. To a user who interrupts, the model often says what it has done,
/// and is then told to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordLasts {
    UntilAnswer,
    UntilNextAnswer,
}

/// Where a program stands in a history. Only the last one can continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Last,
    Earlier,
}

/// Why a program with this code cannot go on.
fn gap_reason(gap: HistoryGap, code: &str) -> String {
    match gap {
        HistoryGap::Trimmed => {
            let is_storing = if code.contains("store") { "; what it stored is gone" } else { "" };
            format!("answers to its calls are not in the conversation any more{is_storing}")
        }
        HistoryGap::Edited => "an answer to one of its calls was changed in the conversation".to_owned(),
        HistoryGap::NotStored => NOT_STORED.to_owned(),
    }
}
