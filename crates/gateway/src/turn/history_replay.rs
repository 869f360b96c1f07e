//! Replaying the programs of a history, so that the model is shown their results.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dacapo_replay::{
    Answer, Call, Catalog, CompletedCall, HandedOutCall, Journal, Limits, MadeCall, Program, RecordedOutcome,
    SearchAnswer, SearchResults, ShouldContinue, StepError, StepRequest, StepStart, Stepper, StoredValues, Toolbox,
    handles_in,
};
use dacapo_wire::{
    CallDigests, CallReply, CallResult, ClientSide, Conversation, ConversationItem, EntryAuthor, HistoryGap, Intent,
    ModelHistory, ModelMessage, ModelTools, ProgramBlock, RoundHeader, SearchQuery, SentCall, SentOutcome, StoredId,
};
use serde_json::{Value, json};

use super::program_run::{
    ProgramRun, abandoned, functions_with_shapes, note_attachments, note_attachments_in, show_answer, show_shapes,
};
use crate::embeddings::Embeddings;
use crate::observe::ProgramEnd;
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
/// How much of the answers of an abandoned program the model reads.
const ANSWER_BYTES_SHOWN_MAX: usize = 24 << 10;
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
                        history.push_calls_without_program(calls.clone());
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
                let shown = match self.run_with(&tools, state.program(at, code), &journal, &given, &stored) {
                    Ok(ProgramRun::Finished { mut shown, record, stored: kept, shapes, end }) => {
                        (given, stored) = (record, kept);
                        note_attachments_in(&mut shown, journal.entries());
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
            (None, Ok(journal)) => match (self.run_with(&tools, state.waiting(), &journal, &given, &stored), position) {
                (Ok(ProgramRun::Paused { calls, stored: kept }), _) => {
                    if let Some(reason) = self.stop_reason(block, position, &tools, &calls) {
                        stored = kept;
                        self.abandoned(block, given, reason)
                    } else {
                        let before = CallDigests::of(&self.record_of_abandoned(block, Vec::new()), self.catalog());
                        let (number, answered) = (block.next_round(), journal.fingerprint());
                        let round = RoundHeader { before, ..RoundHeader::new(number, answered) };
                        let request = self.request(&tools, state.waiting(), &given, &stored).with_journal(journal);
                        return Ok(HistoryEnd::Waiting { round, calls, request: Box::new(request) });
                    }
                }
                (Ok(ProgramRun::Finished { shown, end, record, stored: kept, shapes }), _) => {
                    stored = kept;
                    let mut shown = self.explained(shown, block);
                    show_shapes(&mut shown, &shapes, end, &mut shown_shapes);
                    let record = self.record_after(block, end, given, Some(record));
                    Replayed { shown, answer_bytes: journal.bytes(), record }
                }
                (Err(error), Position::Last) => return Err(error),
                (Err(_), Position::Earlier) => self.abandoned(block, given, TOO_SLOW),
            },
        };
        let Replayed { shown, answer_bytes, mut record } = replayed;
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

    /// The record after a program of the history. One that failed leaves all that it did, however far it gets when it is
    /// run again; one that succeeded has used up what it was given.
    fn record_after(
        &self,
        block: &ProgramBlock,
        end: ProgramEnd,
        given: Vec<CompletedCall>,
        unused: Option<Vec<CompletedCall>>,
    ) -> Vec<CompletedCall> {
        match end {
            ProgramEnd::Failed => self.record_of_abandoned(block, given),
            ProgramEnd::Success => unused.unwrap_or(given),
        }
    }

    /// The result as the history holds it. The program is run again only to know what it has used of the record.
    fn recorded_result(
        &self,
        block: &ProgramBlock,
        tools: &ReplayTools,
        result: &Value,
        journal: Option<Journal>,
        given: Vec<CompletedCall>,
        stored: &mut StoredValues,
    ) -> Replayed {
        let end = if result["status"] == "error" { ProgramEnd::Failed } else { ProgramEnd::Success };
        let is_storing = block.state.code.contains("store");
        let journal = journal.filter(|_| end == ProgramEnd::Success && !given.is_empty() || is_storing);
        let run =
            journal.and_then(|journal| self.run_with(tools, block.state.waiting(), &journal, &given, stored).ok());
        let unused = match run {
            Some(ProgramRun::Finished { record, end: of_run, stored: kept, .. }) => {
                *stored = kept;
                (of_run == ProgramEnd::Success && end == ProgramEnd::Success).then_some(record)
            }
            _ => None,
        };
        let record = self.record_after(block, end, given, unused);
        Replayed { shown: result.clone(), answer_bytes: 0, record }
    }

    /// A program that will never finish. The model reads what it has done, with the answers.
    fn abandoned(&self, block: &ProgramBlock, given: Vec<CompletedCall>, reason: &str) -> Replayed {
        let mut shown = abandoned(reason);
        let (mut completed, mut unfinished) = (Vec::new(), Vec::new());
        let mut bytes_left = ANSWER_BYTES_SHOWN_MAX;
        for sent in block.sent_calls() {
            let args = sent.args().unwrap_or(Value::Null);
            let mut call = json!(MadeCall::new(sent.index(), sent.tool(), args));
            match sent.outcome {
                SentOutcome::Unanswered => unfinished.push(call),
                SentOutcome::Replaced => {
                    call["note"] = json!("its answer is no longer in the conversation");
                    completed.push(call);
                }
                SentOutcome::Answered(answer) => {
                    show_answer(&mut call, answer, &mut bytes_left);
                    completed.push(call);
                }
            }
        }
        shown["error"]["completed"] = Value::Array(completed);
        if !unfinished.is_empty() {
            shown["error"]["unfinished"] = Value::Array(unfinished);
        }
        let record = self.record_of_abandoned(block, given);
        Replayed { shown, answer_bytes: 0, record }
    }

    /// What a program leaves that did not succeed: what it was given, and all that it has sent.
    fn record_of_abandoned(&self, block: &ProgramBlock, mut given: Vec<CompletedCall>) -> Vec<CompletedCall> {
        for sent in block.sent_calls() {
            let outcome = match sent.outcome {
                SentOutcome::Answered(answer) => match answer {
                    // Where the client's wire has no mark for failures, the gateway's own calls have one.
                    Answer::Ok(ok) if sent.is_owned() || self.client.has_succeeded(answer) => {
                        RecordedOutcome::Ok(ok.clone())
                    }
                    _ => continue,
                },
                SentOutcome::Replaced => RecordedOutcome::AnswerLost,
                SentOutcome::Unanswered => RecordedOutcome::Unknown,
            };
            given.push(sent.recorded(outcome));
        }
        given.extend(self.cut_calls(block));
        given
    }

    /// Calls of a program in rounds that the client has cut out of the history. Nothing is known of their time; at the end
    /// of a record they make the reads before them stale.
    fn cut_calls(&self, block: &ProgramBlock) -> Vec<CompletedCall> {
        let Some(last) = block.rounds.last().filter(|_| block.is_cut()) else { return Vec::new() };
        let succeeded = |sent: &SentCall<'_>| sent.answer().is_some_and(|answer| self.client.has_succeeded(answer));
        let recorded = |sent: Vec<SentCall<'_>>| -> Vec<CompletedCall> {
            sent.iter().map(|sent| sent.recorded(RecordedOutcome::AnswerLost)).collect()
        };
        let (before, of_last): (Vec<_>, Vec<_>) =
            block.sent_calls().into_iter().partition(|sent| sent.round < last.number);
        let before = before.into_iter().filter(succeeded).collect();
        last.before.missing_before(&recorded(before), &recorded(of_last))
    }

    /// Says in the terms of the conversation why a replayed program diverged, and how the model sees images that it did not
    /// return.
    fn explained(&self, mut shown: Value, block: &ProgramBlock) -> Value {
        if shown["error"]["kind"] == "diverged" {
            let reason = if block.state.tools == self.tools_digest {
                "an answer in the conversation was changed after the program had gone on"
            } else {
                "the tools were changed while the program waited"
            };
            shown["error"]["message"] =
                json!(format!("{reason}, so that its calls are not those that were answered; write a new program"));
        }
        if block.has_attachments() {
            note_attachments(&mut shown);
        }
        shown
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

    fn catalog(&self) -> &Catalog {
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

    /// The tools for a program of the history: those of this request, and those that are gone since it was written.
    fn tools_of(&self, block: &ProgramBlock) -> ReplayTools {
        let toolbox = self.model_tools.toolbox();
        let catalog = toolbox.catalog();
        let withdrawn: Vec<&str> = block.tool_names().into_iter().filter(|name| catalog.find(name).is_none()).collect();
        let extended = if withdrawn.is_empty() { None } else { toolbox.with_withdrawn(withdrawn.iter().copied()).ok() };
        let is_changed = extended.is_some() || block.state.tools != self.tools_digest;
        ReplayTools {
            toolbox: extended.map_or_else(|| Arc::clone(toolbox), Arc::new),
            withdrawn: withdrawn.into_iter().map(str::to_owned).collect(),
            handed_out: if is_changed { block.handed_out() } else { Vec::new() },
        }
    }

    /// The request for the first step of a program that the model has just written.
    pub(super) fn first_request(
        &self,
        program: Program,
        record: &[CompletedCall],
        stored: &StoredValues,
    ) -> StepRequest {
        self.trace.program(&program, record, stored);
        let toolbox = Arc::clone(self.model_tools.toolbox());
        let tools = ReplayTools { toolbox, withdrawn: Vec::new(), handed_out: Vec::new() };
        self.request(&tools, program, record, stored)
    }

    /// Whether the gateway executes calls of the tool itself.
    fn owns(&self, tool: &str) -> bool {
        self.catalog().find(tool).is_some_and(|index| index.0 as usize >= self.owned_from)
    }

    /// The request for the first step of a program of the history.
    pub(crate) fn request_of(
        &self,
        block: &ProgramBlock,
        program: Program,
        record: &[CompletedCall],
        stored: &StoredValues,
    ) -> StepRequest {
        self.request(&self.tools_of(block), program, record, stored)
    }

    fn request(
        &self,
        tools: &ReplayTools,
        program: Program,
        record: &[CompletedCall],
        stored: &StoredValues,
    ) -> StepRequest {
        let mut request = StepRequest::new(program, Arc::clone(&tools.toolbox));
        request.handed_out.clone_from(&tools.handed_out);
        request.stored = stored.clone();
        request.with_reuse(record.to_vec()).with_limits(self.limits.clone())
    }

    fn run_with(
        &self,
        tools: &ReplayTools,
        program: Program,
        journal: &Journal,
        record: &[CompletedCall],
        stored: &StoredValues,
    ) -> Result<ProgramRun, StepError> {
        self.trace.program(&program, record, stored);
        self.step(&self.request(tools, program, record, stored).with_journal(journal.clone()))
    }

    /// Runs a program as far as its journal goes.
    pub(super) fn step(&self, request: &StepRequest) -> Result<ProgramRun, StepError> {
        // A history may hold many programs, each too short to be interrupted.
        if !(self.should_continue)() {
            return Err(StepError::Interrupted);
        }
        let started = Instant::now();
        let (step, start) = self.stepper.step_from(request, self.should_continue)?;
        self.trace.step(start, started.elapsed(), step.usage.fuel);
        Ok(ProgramRun::from(step))
    }
}

/// The tools that a program of the history is run with.
struct ReplayTools {
    toolbox: Arc<Toolbox>,
    /// Names of those that the client does not have any more.
    withdrawn: Vec<String>,
    /// What the program was handed out, if its tools have changed.
    handed_out: Vec<HandedOutCall>,
}

impl ReplayTools {
    fn has_withdrawn(&self, calls: &[Call]) -> bool {
        calls.iter().any(|call| self.withdrawn.contains(&call.tool))
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

/// A program of the history that does not continue.
struct Replayed {
    shown: Value,
    answer_bytes: usize,
    /// What a later program may reuse.
    record: Vec<CompletedCall>,
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
