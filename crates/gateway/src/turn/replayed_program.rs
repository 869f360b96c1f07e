//! Programs of a history that do not continue: what the model reads of them, and what later programs may reuse.

use dacapo_replay::{Answer, CompletedCall, Effect, Journal, MadeCall, RecordedOutcome, StoredValues};
use dacapo_wire::{CallDigests, ProgramBlock, SentCall, SentOutcome};
use serde_json::{Value, json};

use super::history_replay::HistoryReplay;
use super::program_run::{ProgramRun, ReplayTools, abandoned, note_attachments, show_answer};
use crate::observe::ProgramEnd;

/// A program of the history that does not continue.
pub(super) struct ReplayedProgram {
    /// The result as the model reads it.
    pub shown: Value,
    /// Size of all answers that it got in this request.
    pub answer_bytes: usize,
    /// What a later program may reuse.
    pub record: Vec<CompletedCall>,
}

/// How much of the answers of an abandoned program the model reads.
const ANSWER_BYTES_SHOWN_MAX: usize = 24 << 10;

impl HistoryReplay<'_> {
    /// The record after a program of the history. One that failed leaves all that it did, however far it gets when it is
    /// run again; one that succeeded has used up what it was given.
    pub(super) fn record_after(
        &self,
        block: &ProgramBlock,
        end: ProgramEnd,
        given: Vec<CompletedCall>,
        unused: Option<Vec<CompletedCall>>,
    ) -> Vec<CompletedCall> {
        match end {
            ProgramEnd::Failed => self.record_of_abandoned(block, &block.sent_calls(), given, |_| true),
            ProgramEnd::Success => unused.unwrap_or(given),
        }
    }

    /// The result as the history holds it. The program is run again only to know what it has used of the record.
    pub(super) fn recorded_result(
        &self,
        block: &ProgramBlock,
        tools: &ReplayTools,
        result: &Value,
        journal: Option<Journal>,
        given: Vec<CompletedCall>,
        stored: &mut StoredValues,
    ) -> ReplayedProgram {
        let end = if result["status"] == "error" { ProgramEnd::Failed } else { ProgramEnd::Success };
        let is_storing = block.state.code.contains("store");
        let journal = journal.filter(|_| end == ProgramEnd::Success && !given.is_empty() || is_storing);
        let request = |journal| self.request(tools, block.state.waiting(), &given, stored).with_journal(journal);
        let run = journal.and_then(|journal| self.run(&request(journal)).ok());
        let unused = match run {
            Some(ProgramRun::Finished { record, end: of_run, stored: kept, .. }) => {
                *stored = kept;
                (of_run == ProgramEnd::Success && end == ProgramEnd::Success).then_some(record)
            }
            _ => None,
        };
        let record = self.record_after(block, end, given, unused);
        ReplayedProgram { shown: result.clone(), answer_bytes: 0, record }
    }

    /// A program that will never finish. The model reads what it has done, with the answers.
    pub(super) fn abandoned(&self, block: &ProgramBlock, given: Vec<CompletedCall>, reason: &str) -> ReplayedProgram {
        let mut shown = abandoned(reason);
        let (mut completed, mut unfinished) = (Vec::new(), Vec::new());
        let mut bytes_left = ANSWER_BYTES_SHOWN_MAX;
        let sent_calls = block.sent_calls();
        for sent in &sent_calls {
            let args = sent.args().unwrap_or_default().into_owned();
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
        let record = self.record_of_abandoned(block, &sent_calls, given, |_| true);
        ReplayedProgram { shown, answer_bytes: 0, record }
    }

    /// The writing calls among those that a program made before the round that it waits for now.
    pub(super) fn writes_before_next_round(&self, block: &ProgramBlock) -> CallDigests {
        let sent = block.sent_calls_of_journal();
        // Only they are digested, and most calls only read.
        let writes = |sent: &SentCall<'_>| self.catalog().effect_of(sent.tool()) == Effect::Write;
        CallDigests::of(&self.record_of_abandoned(block, &sent, Vec::new(), writes), self.catalog())
    }

    /// What a program leaves that did not succeed: what it was given, and those of the calls it has sent that are recorded.
    fn record_of_abandoned(
        &self,
        block: &ProgramBlock,
        sent_calls: &[SentCall<'_>],
        mut given: Vec<CompletedCall>,
        is_recorded: impl Fn(&SentCall<'_>) -> bool,
    ) -> Vec<CompletedCall> {
        for sent in sent_calls.iter().filter(|sent| is_recorded(sent)) {
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
        given.extend(self.cut_calls(block, sent_calls));
        given
    }

    /// Calls of a program in rounds that the client has cut out of the history. Nothing is known of their time; at the end
    /// of a record they make the reads before them stale.
    fn cut_calls(&self, block: &ProgramBlock, sent_calls: &[SentCall<'_>]) -> Vec<CompletedCall> {
        let Some(last) = block.rounds.last().filter(|_| block.is_cut()) else { return Vec::new() };
        let succeeded = |sent: &&SentCall<'_>| sent.answer().is_some_and(|answer| self.client.has_succeeded(answer));
        let recorded = |sent: Vec<&SentCall<'_>>| -> Vec<CompletedCall> {
            sent.iter().map(|sent| sent.recorded(RecordedOutcome::AnswerLost)).collect()
        };
        let (before, of_last): (Vec<_>, Vec<_>) = sent_calls.iter().partition(|sent| sent.round < last.number);
        let before = before.into_iter().filter(succeeded).collect();
        last.before.missing_before(&recorded(before), &recorded(of_last))
    }

    /// Says in the terms of the conversation why a replayed program diverged, and how the model sees images that it did not
    /// return.
    pub(super) fn explained(&self, mut shown: Value, block: &ProgramBlock) -> Value {
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
}
