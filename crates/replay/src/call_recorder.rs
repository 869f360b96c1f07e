//! The host's side of a running program: numbers its calls, checks their arguments, keeps its logs.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use dacapo_catalog::{Effect, InvalidArguments, ObservedShape, OutOfBudget, ToolIndex, WorkBudget};
use dacapo_sandbox::{
    CallArguments, CallDecision, Freshness, FuelMeter, Host, LogLevel, NameMeaning, NamePlace, Names, OutOfFuel,
    Refusal,
};
use serde_json::{Value, json};

use crate::canonical::canonical;
use crate::journal::{Answer, ArgsDigest, CallIndex};
use crate::json_text::JsonText;
use crate::limits::{Limit, Limits};
use crate::lookup::Lookup;
use crate::record::{CompletedCall, RecordedOutcome};
use crate::request::{HandedOutCall, StepRequest};
use crate::step::{ErrorKind, LogLine, MadeCall, ToolShape};
use crate::stored::StoredValues;
use crate::toolbox::Toolbox;

/// Who answers a call.
#[derive(Debug)]
pub(crate) enum Callee {
    Tool(ToolIndex),
    /// The host itself, from the toolbox.
    Lookup(Lookup),
}

/// A call that the program issued.
#[derive(Debug)]
pub(crate) struct Issued {
    pub callee: Callee,
    /// JSON, kept as text: as a tree it would take many times the memory.
    args: String,
    /// The arguments in the form in which they are compared.
    pub canonical: String,
    /// How many journal answers had settled when it was issued.
    pub epoch: usize,
    /// Position of the recorded call that answers it.
    record: Option<usize>,
    /// Whether the recorded call has an answer for it.
    is_reused: bool,
}

impl Issued {
    /// Whether the record answers it with a value.
    pub(crate) fn is_reused(&self) -> bool {
        self.is_reused
    }

    pub(crate) fn args(&self) -> Value {
        serde_json::from_str(&self.args).expect("it was read when the call was issued")
    }
}

/// Everything that the host knows about one running program.
#[derive(Debug)]
pub(crate) struct CallRecorder {
    /// All calls, in issue order.
    pub calls: Vec<Issued>,
    /// Calls that wait for the journal.
    open: BTreeSet<CallIndex>,
    pub logs: Vec<LogLine>,
    /// The limit that the program was stopped for.
    pub exceeded: Option<Limit>,
    /// Journal answers settled so far.
    pub epoch: usize,
    /// Calls that the record or the toolbox answers, to be settled when the job queue is empty.
    pub at_hand: VecDeque<CallIndex>,
    records: Vec<CompletedCall>,
    /// Calls that were handed out when the tools were others.
    handed_out: BTreeMap<CallIndex, HandedOutCall>,
    /// Positions of recorded calls that no call has used.
    unused: BTreeSet<usize>,
    /// Whether the program has sent a call that may change something. Answers of recorded reads may be stale then.
    has_written: bool,
    log_bytes: u64,
    /// Arguments of all calls, in both forms.
    held_bytes: usize,
    /// Of the record, and of calls that were handed out.
    given_bytes: usize,
    suggestions_left: Cell<u32>,
    /// Of the answers of tools without an output schema.
    shapes: BTreeMap<ToolIndex, Observation>,
    /// What the program was given, and what is kept now.
    given_stored: StoredValues,
    stored: StoredValues,
    toolbox: Arc<Toolbox>,
    limits: Limits,
}

/// What was seen of the answers of one tool.
#[derive(Debug, Default)]
struct Observation {
    shape: ObservedShape,
    answers: u32,
}

/// Answers of one tool that its shape is made from.
const OBSERVED_ANSWERS_MAX: u32 = 4;
/// Characters of a shape that a model reads.
const SHAPE_CHARS_MAX: usize = 400;

/// Fuel for a step of checking a value against a schema, and for comparing a name with that of a tool.
pub(crate) const FUEL_PER_CHECK_STEP: u64 = 200;
const FUEL_PER_COMPARED_NAME: u64 = 4_000;
/// Fuel for looking whether a name that a program reads is that of a tool, for each tool.
const FUEL_PER_READ_NAME: u64 = 50;

/// After this many hints a program is not helped by more.
const SUGGESTIONS_MAX: u32 = 20;

/// Bytes that a log line counts for besides its text.
const LOG_LINE_BYTES: u64 = 16;

impl CallRecorder {
    pub(crate) fn new(request: &StepRequest) -> CallRecorder {
        let StepRequest { toolbox, limits, reuse: records, stored, handed_out, .. } = request;
        CallRecorder {
            calls: Vec::new(),
            open: BTreeSet::new(),
            logs: Vec::new(),
            exceeded: None,
            epoch: 0,
            at_hand: VecDeque::new(),
            unused: (0..records.len()).collect(),
            records: records.clone(),
            has_written: false,
            log_bytes: 0,
            held_bytes: 0,
            given_bytes: records.iter().map(CompletedCall::bytes).sum::<usize>() + size_of_val(&handed_out[..]),
            suggestions_left: Cell::new(SUGGESTIONS_MAX),
            shapes: BTreeMap::new(),
            given_stored: stored.clone(),
            stored: stored.clone(),
            handed_out: handed_out.iter().map(|handed_out| (handed_out.call, handed_out.clone())).collect(),
            toolbox: Arc::clone(toolbox),
            limits: *limits,
        }
    }

    /// What is kept for later programs. A program that exceeded a limit keeps nothing.
    pub(crate) fn stored(&self, kind: Option<&ErrorKind>) -> StoredValues {
        let kept = match kind {
            Some(ErrorKind::Limit { .. } | ErrorKind::Internal | ErrorKind::Diverged { .. }) => &self.given_stored,
            _ => &self.stored,
        };
        kept.clone()
    }

    /// Whether the shape of an answer of this tool is worth looking at.
    pub(crate) fn is_observed(&self, tool: ToolIndex) -> bool {
        let has_schema = self.toolbox.catalog().tools()[tool.0 as usize].output_schema.is_some();
        !has_schema && self.shapes.get(&tool).is_none_or(|seen| seen.answers < OBSERVED_ANSWERS_MAX)
    }

    pub(crate) fn observe(&mut self, tool: ToolIndex, json: &str) {
        let Some(shape) = ObservedShape::of_json(json) else { return };
        let seen = self.shapes.entry(tool).or_default();
        seen.answers += 1;
        seen.shape.merge(shape);
    }

    /// In the order of the tool list.
    pub(crate) fn shapes(&self) -> Vec<ToolShape> {
        let seen = self.shapes.iter().filter(|(_, seen)| seen.shape.is_structured());
        let shape = |(tool, seen): (&ToolIndex, &Observation)| ToolShape {
            function: self.toolbox.expression(tool.0),
            shape: seen.shape.to_text(SHAPE_CHARS_MAX),
        };
        seen.map(shape).collect()
    }

    pub(crate) fn toolbox(&self) -> &Toolbox {
        &self.toolbox
    }

    /// Calls that wait for the journal, in issue order.
    pub(crate) fn open(&self) -> impl Iterator<Item = (CallIndex, &Issued)> {
        self.open.iter().map(|call| (*call, &self.calls[call.0 as usize]))
    }

    pub(crate) fn get(&self, call: CallIndex) -> Option<&Issued> {
        self.calls.get(call.0 as usize)
    }

    pub(crate) fn is_open(&self, call: CallIndex) -> bool {
        self.open.contains(&call)
    }

    /// Its answer is about to be settled.
    pub(crate) fn close(&mut self, call: CallIndex) {
        self.open.remove(&call);
    }

    pub(crate) fn numbered(&self) -> impl Iterator<Item = (CallIndex, &Issued)> {
        self.calls.iter().enumerate().map(|(at, issued)| (CallIndex(at as u32), issued))
    }

    pub(crate) fn made(&self, call: CallIndex, issued: &Issued) -> MadeCall {
        MadeCall::new(call, self.name(issued), issued.args())
    }

    pub(crate) fn name(&self, issued: &Issued) -> &str {
        match &issued.callee {
            Callee::Tool(tool) => self.toolbox.catalog().qualified_name(*tool),
            Callee::Lookup(lookup) => lookup.name(),
        }
    }

    /// Memory that the program takes outside of its own: what it logged, and the arguments of its calls.
    pub(crate) fn held_bytes(&self) -> usize {
        let given = self.given_bytes + self.given_stored.bytes();
        self.held_bytes + self.log_bytes as usize + self.stored.bytes() + given
    }

    fn stop(&mut self, limit: Limit) {
        self.exceeded = Some(limit);
    }

    /// The answer to a call that is [`at_hand`](Self::at_hand).
    pub(crate) fn answer(&self, call: CallIndex) -> Answer {
        let issued = &self.calls[call.0 as usize];
        match (&issued.callee, issued.record) {
            (Callee::Tool(_), record) => {
                let record = record.expect("a tool's answer is at hand only in the record");
                self.records[record].answer(self.name(issued))
            }
            (Callee::Lookup(lookup), _) => match lookup.answer(&self.toolbox) {
                Ok(found) => Answer::Ok(found),
                Err(name) => {
                    let advice = if self.may_suggest() { self.toolbox.advice(name) } else { String::new() };
                    Answer::Error { message: format!("no tool has the name {name:?}{advice}"), data: None }
                }
            },
        }
    }

    /// The record for a later program: what this one was given, oldest first, then the calls that it completed, in the
    /// order of their answers. Calls that were sent and have no answer are not part of it: only the caller knows which
    /// calls it sent.
    pub(crate) fn record(&self, answers: &[(CallIndex, &Answer)]) -> Vec<CompletedCall> {
        let completed = answers.iter().filter_map(|(call, answer)| {
            let issued = self.get(*call)?;
            let Answer::Ok(ok) = answer else { return None };
            let (tool, args) = (self.name(issued).to_owned(), issued.canonical.clone());
            Some(CompletedCall::canonical(tool, args, RecordedOutcome::Ok(ok.clone())))
        });
        self.records.iter().cloned().chain(completed).collect()
    }

    /// What the program was given and has not used.
    pub(crate) fn unused_record(&self) -> Vec<CompletedCall> {
        self.unused.iter().map(|position| self.records[*position].clone()).collect()
    }

    /// The recorded call that answers a call of this tool, if there is one, and whether with a value.
    ///
    /// A recorded write answers, or says why it cannot: it is not executed again. A recorded read answers only if nothing
    /// was changed since. Each value is used once.
    fn take_record(&mut self, tool: ToolIndex, canonical: &str) -> Option<(usize, bool)> {
        let catalog = self.toolbox.catalog();
        let name = catalog.qualified_name(tool);
        let effect = catalog.tools()[tool.0 as usize].effect();
        let same = |position: &usize| self.records[*position].is_of(name, canonical);
        let position = self.unused.iter().copied().find(same)?;
        match (&self.records[position].outcome, effect) {
            (RecordedOutcome::Ok(_), Effect::Read) if self.is_stale(position) => None,
            (RecordedOutcome::Ok(_), _) => {
                self.unused.remove(&position);
                Some((position, true))
            }
            (RecordedOutcome::AnswerLost | RecordedOutcome::Unknown, Effect::Write) => Some((position, false)),
            (RecordedOutcome::AnswerLost | RecordedOutcome::Unknown, Effect::Read | Effect::Idempotent) => None,
        }
    }

    /// Whether something may have changed since the recorded call at `position` was answered.
    fn is_stale(&self, position: usize) -> bool {
        let catalog = self.toolbox.catalog();
        let effect = |record: &CompletedCall| record.tool().map_or(Effect::Write, |tool| catalog.effect_of(tool));
        self.has_written || self.records[position + 1..].iter().any(|record| effect(record) != Effect::Read)
    }

    fn may_suggest(&self) -> bool {
        let left = self.suggestions_left.get();
        self.suggestions_left.set(left.saturating_sub(1));
        left > 0
    }

    /// Who answers function number `tool`, or why it does not take these arguments.
    fn callee(
        &self,
        tool: u32,
        args: &Value,
        args_bytes: usize,
        meter: &mut FuelMeter,
    ) -> Result<Result<Callee, Refusal>, OutOfFuel> {
        if let Some(function) = self.toolbox.lookup_function(tool) {
            meter.charge(Lookup::fuel(&self.toolbox, args_bytes))?;
            let refusal = |message| Refusal { message, ..Refusal::default() };
            return Ok(Lookup::read(function, args).map(Callee::Lookup).map_err(refusal));
        }
        let tool = ToolIndex(tool);
        if self.toolbox.is_withdrawn(tool) && !self.was_handed_out(tool, args) {
            return Ok(Err(self.withdrawn(tool)));
        }
        let mut budget = WorkBudget::new(meter.available() / FUEL_PER_CHECK_STEP);
        let checked = self.toolbox.catalog().check_within(tool, args, &mut budget).map_err(|OutOfBudget| OutOfFuel);
        meter.charge(budget.spent() * FUEL_PER_CHECK_STEP)?;
        Ok(match checked? {
            // What was handed out has been checked, perhaps against another schema.
            Err(invalid) if !self.was_handed_out(tool, args) => Err(self.refusal(tool, &invalid)),
            Ok(()) | Err(_) => Ok(Callee::Tool(tool)),
        })
    }

    /// The same for arguments that the program wrote one by one, with the object that they make.
    fn placed(
        &mut self,
        tool: u32,
        values: &Value,
        meter: &mut FuelMeter,
    ) -> Result<Result<(Callee, Option<Value>), Refusal>, OutOfFuel> {
        let tool = ToolIndex(tool);
        if self.toolbox.is_withdrawn(tool) {
            return Ok(Err(self.withdrawn(tool)));
        }
        let values = values.as_array().map_or(&[][..], Vec::as_slice);
        let mut budget = WorkBudget::new(meter.available() / FUEL_PER_CHECK_STEP);
        let placed = self.toolbox.catalog().place_within(tool, values, &mut budget).map_err(|OutOfBudget| OutOfFuel);
        meter.charge(budget.spent() * FUEL_PER_CHECK_STEP)?;
        let placed = match placed? {
            Ok(placed) => placed,
            Err(invalid) => return Ok(Err(self.refusal(tool, &invalid))),
        };
        if placed.ignored > 0 {
            let function = self.toolbox.expression(tool.0);
            let text = format!("{function} takes one object; what was passed after it was not sent");
            self.log_bytes += text.len() as u64;
            self.logs.push(LogLine { level: LogLevel::Warn, text });
        }
        Ok(Ok((Callee::Tool(tool), Some(placed.args))))
    }

    fn withdrawn(&self, tool: ToolIndex) -> Refusal {
        let name = self.toolbox.catalog().qualified_name(tool);
        let message = format!("{name} cannot be called any more: the client has taken this tool away since");
        Refusal { message, tool: Some(name.to_owned()), violations: None }
    }

    fn refusal(&self, tool: ToolIndex, invalid: &InvalidArguments) -> Refusal {
        let tool = Some(self.toolbox.catalog().qualified_name(tool).to_owned());
        Refusal { message: invalid.to_string(), tool, violations: Some(json!(invalid.violations)) }
    }

    /// Whether the next call is one that an earlier step handed out, when the tools were others.
    fn was_handed_out(&self, tool: ToolIndex, args: &Value) -> bool {
        let next = CallIndex(self.calls.len() as u32);
        self.handed_out.get(&next).is_some_and(|known| {
            known.tool == self.toolbox.catalog().qualified_name(tool) && known.args == ArgsDigest::of_args(args)
        })
    }

    fn exceeded_by(&self, args: &str) -> Option<Limit> {
        let over = |limit, value: usize| value as u64 > self.limits.get(limit);
        if over(Limit::Calls, self.calls.len() + 1) {
            Some(Limit::Calls)
        } else if over(Limit::CallsPerRound, self.open.len() + 1) {
            Some(Limit::CallsPerRound)
        } else if over(Limit::ArgsBytes, args.len()) {
            Some(Limit::ArgsBytes)
        } else {
            None
        }
    }
}

impl Host for CallRecorder {
    fn call(
        &mut self,
        tool: u32,
        args: CallArguments<'_>,
        freshness: Freshness,
        meter: &mut FuelMeter,
    ) -> CallDecision {
        let (CallArguments::One(json) | CallArguments::Positional(json)) = args;
        if let Some(limit) = self.exceeded_by(json) {
            self.stop(limit);
            return CallDecision::Stop;
        }
        let value: Value = match serde_json::from_str(json) {
            Ok(value) => value,
            Err(error) => {
                let message = format!("the arguments are not JSON: {error}");
                return CallDecision::Refused(Refusal { message, ..Refusal::default() });
            }
        };
        let checked = match args {
            CallArguments::One(_) => {
                self.callee(tool, &value, json.len(), meter).map(|found| found.map(|it| (it, None)))
            }
            CallArguments::Positional(_) => self.placed(tool, &value, meter),
        };
        let (callee, placed) = match checked {
            Ok(Ok(callee)) => callee,
            Ok(Err(refusal)) => return CallDecision::Refused(refusal),
            Err(OutOfFuel) => return CallDecision::OutOfFuel,
        };
        let value = placed.unwrap_or(value);
        let args = match args {
            CallArguments::One(json) => json.to_owned(),
            CallArguments::Positional(_) => value.to_string(),
        };
        let canonical = canonical(&value);
        self.held_bytes += args.len() + canonical.len();
        if self.held_bytes as u64 > self.limits.get(Limit::MemoryBytes) {
            self.stop(Limit::MemoryBytes);
            return CallDecision::Stop;
        }
        let call = CallIndex(self.calls.len() as u32);
        let found = match (&callee, freshness) {
            (Callee::Tool(tool), Freshness::MayReuse) => self.take_record(*tool, &canonical),
            (Callee::Tool(_), Freshness::Fresh) | (Callee::Lookup(_), _) => None,
        };
        match &callee {
            Callee::Tool(tool) if found.is_none() => {
                self.has_written |= self.toolbox.catalog().tools()[tool.0 as usize].effect() != Effect::Read;
                self.open.insert(call);
            }
            Callee::Tool(_) | Callee::Lookup(_) => self.at_hand.push_back(call),
        }
        let (record, is_reused) = found.map_or((None, false), |(position, is_reused)| (Some(position), is_reused));
        self.calls.push(Issued { callee, args, canonical, epoch: self.epoch, record, is_reused });
        CallDecision::Issued
    }

    fn log(&mut self, level: LogLevel, text: &str) -> ControlFlow<()> {
        self.log_bytes += text.len() as u64 + LOG_LINE_BYTES;
        if self.log_bytes > self.limits.get(Limit::LogBytes) {
            self.stop(Limit::LogBytes);
            return ControlFlow::Break(());
        }
        self.logs.push(LogLine { level, text: text.to_owned() });
        ControlFlow::Continue(())
    }

    fn meaning(&self, place: NamePlace<'_>, name: &str, meter: &mut FuelMeter) -> Result<NameMeaning, OutOfFuel> {
        let tools = self.toolbox.catalog().tools().len() as u64;
        meter.charge(tools * FUEL_PER_READ_NAME)?;
        if let Some(meaning) = self.toolbox.meaning(place, name) {
            return Ok(meaning);
        }
        if !self.may_suggest() {
            return Ok(NameMeaning::Nothing(format!("{name} is not defined")));
        }
        meter.charge(tools * FUEL_PER_COMPARED_NAME)?;
        Ok(NameMeaning::Nothing(self.toolbox.unknown(place, name)))
    }

    fn store(&mut self, name: &str, json: Option<&str>) -> ControlFlow<()> {
        match json.and_then(JsonText::parse) {
            Some(value) => self.stored.insert(name, value),
            None => self.stored.remove(name),
        }
        if self.stored.bytes() as u64 > self.limits.get(Limit::StoredBytes) {
            self.stop(Limit::StoredBytes);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn load(&self, name: &str) -> Option<&str> {
        self.stored.get(name).map(JsonText::as_str)
    }

    fn expression(&self, tool: u32) -> String {
        self.toolbox.expression(tool)
    }

    fn all_tools(&self) -> String {
        Lookup::all_tools(&self.toolbox)
    }

    fn names(&self) -> Option<&Names> {
        Some(self.toolbox.names())
    }
}
