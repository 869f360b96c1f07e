//! The functions that the guest imports: all that it can reach outside its memory.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde::Serialize;
use serde_json::Value;
use wasmtime::{Caller, Linker, Memory, ResourceLimiter, Trap};

use crate::builtins::{self, Collation};
use crate::names::Names;
use crate::vm::{FUEL_PER_CHECK, JsPosition};

/// The host's side of a program: takes its calls and its logs.
pub trait Host: Send + 'static {
    /// The program calls a tool. Issued calls are numbered from zero, in this order. Work that grows faster than the
    /// arguments is to be paid for from the meter, before it is done.
    fn call(&mut self, tool: u32, args: CallArguments<'_>, freshness: Freshness, meter: &mut FuelMeter)
    -> CallDecision;
    /// The program logs a line; `Break` ends it with [`Stop::ByHost`](crate::Stop::ByHost).
    fn log(&mut self, level: LogLevel, text: &str) -> ControlFlow<()>;
    /// What a name means that the program reads from an object with tools.
    fn meaning(&self, _: NamePlace<'_>, name: &str, _: &mut FuelMeter) -> Result<NameMeaning, OutOfFuel> {
        Ok(NameMeaning::Nothing(format!("{name} is not defined")))
    }
    /// What the program writes to call the tool.
    fn expression(&self, tool: u32) -> String {
        format!("tool {tool}")
    }
    /// All tools as JSON: `[{"name": …, "description": …}]`.
    fn all_tools(&self) -> String {
        "[]".to_owned()
    }
    /// The program keeps a value, as JSON, for later programs, or removes one. `Break` ends it with
    /// [`Stop::ByHost`](crate::Stop::ByHost).
    fn store(&mut self, _name: &str, _json: Option<&str>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    /// A value that this or an earlier program has kept, as JSON.
    fn load(&self, _name: &str) -> Option<&str> {
        None
    }
    /// The names of the tools; the same ones as long as the program runs.
    fn names(&self) -> Option<&Names> {
        None
    }
}

/// A host for programs that only compute: there are no tools, and what they log is dropped.
impl Host for () {
    fn call(&mut self, _: u32, _: CallArguments<'_>, _: Freshness, _: &mut FuelMeter) -> CallDecision {
        CallDecision::Stop
    }

    fn log(&mut self, _: LogLevel, _: &str) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// An object whose properties are tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamePlace<'a> {
    /// `tools`
    Tools,
    /// A namespace, counted from 1 in the order of [`Names::namespace`].
    Namespace(u32),
    /// What the program wrote before the name, where it is neither `tools` nor a namespace: `a.b` of `a.b.c`.
    Path(&'a str),
    /// A module, from which the program imports.
    Module(&'a str),
}

/// What a name means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameMeaning {
    /// The function of a tool, which has the name `member` in its namespace, or in `tools` (0).
    Function {
        /// The tool's number.
        tool: u32,
        /// See [`NamePlace::Namespace`].
        namespace: u32,
        /// Its name there.
        member: String,
    },
    /// A namespace.
    Namespace(u32),
    /// The beginning of names of tools. `tools` itself if it is empty.
    Path(String),
    /// A global function that is no tool, by its name in prelude.js.
    Global(&'static str),
    /// Nothing: reading it throws a `ReferenceError` with this message.
    Nothing(String),
}

impl NameMeaning {
    /// See `names_get` in names.h.
    fn to_bytes(&self) -> Vec<u8> {
        let (meaning, number, namespace, text): (u32, u32, u32, &str) = match self {
            NameMeaning::Function { tool, namespace, member } => (0, *tool, *namespace, member),
            NameMeaning::Namespace(number) => (1, *number, 0, ""),
            NameMeaning::Path(path) => (2, 0, 0, path),
            NameMeaning::Global(name) => (3, 0, 0, name),
            NameMeaning::Nothing(message) => (4, 0, 0, message),
        };
        let header = [meaning, number, namespace].map(u32::to_le_bytes).concat();
        [header.as_slice(), text.as_bytes()].concat()
    }
}

/// The arguments of a call, as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallArguments<'a> {
    /// One argument.
    One(&'a str),
    /// An array of arguments that the program wrote one by one, or of one that is no object.
    Positional(&'a str),
}

/// The fuel of a program, for work that the host does on its behalf.
#[derive(Debug)]
pub struct FuelMeter {
    left: u64,
    /// Fuel that has been taken for the question itself. Work is free until it is used up.
    prepaid: u64,
}

/// The program has less fuel than the work costs. The work must not be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfFuel;

impl FuelMeter {
    /// Fuel that can still be charged.
    pub fn available(&self) -> u64 {
        self.left.saturating_add(self.prepaid)
    }

    /// Takes fuel; where too little is left it takes all.
    pub fn charge(&mut self, cost: u64) -> Result<(), OutOfFuel> {
        let beyond = cost.saturating_sub(self.prepaid);
        self.prepaid = self.prepaid.saturating_sub(cost);
        let left = self.left.checked_sub(beyond);
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or(OutOfFuel)
    }
}

/// Whether an earlier execution of the same call may answer it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// It may.
    MayReuse,
    /// The program asks for a new execution: `f(args, {fresh: true})`.
    Fresh,
}

/// What the host does about a call.
#[derive(Debug)]
pub enum CallDecision {
    /// It gets the next number and stays open until it is settled.
    Issued,
    /// It gets no number: the program catches a `TypeError`.
    Refused(Refusal),
    /// The program ends with [`Stop::ByHost`](crate::Stop::ByHost).
    Stop,
    /// The program ends with [`Stop::OutOfFuel`](crate::Stop::OutOfFuel).
    OutOfFuel,
}

/// Why a call was refused: the fields of a `TypeError`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// What is wrong.
    pub message: String,
    /// The tool that was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What is wrong with its arguments: `path`, `expected` and `found` of each violation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violations: Option<Value>,
}

/// The function of `console` that wrote a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// `console.debug`
    Debug,
    /// `console.log`
    Log,
    /// `console.info`
    Info,
    /// `console.warn`
    Warn,
    /// `console.error`
    Error,
}

/// The host's side of one program.
pub(crate) struct HostState<H> {
    /// There is none between two programs.
    pub host: Option<H>,
    pub memory: Option<Memory>,
    pub memory_bytes_max: usize,
    pub memory_refused: bool,
    pub stopped_by_host: bool,
    pub places: Vec<JsPosition>,
    pub result: Option<String>,
    pub error: Option<String>,
    pub unhandled: Vec<String>,
    /// What was left when the caller's [`ShouldContinue`](crate::ShouldContinue) was last called for work of the host.
    pub fuel_at_check: u64,
    reply: Vec<u8>,
    collation: Collation,
}

const HAS_HOST: &str = "a program that runs has a host";

impl<H> HostState<H> {
    pub(crate) fn new(host: H, memory_bytes_max: usize, fuel: u64) -> HostState<H> {
        HostState { host: Some(host), ..HostState::between_programs(memory_bytes_max, fuel) }
    }

    pub(crate) fn between_programs(memory_bytes_max: usize, fuel: u64) -> HostState<H> {
        HostState {
            host: None,
            memory: None,
            memory_bytes_max,
            memory_refused: false,
            stopped_by_host: false,
            places: Vec::new(),
            result: None,
            error: None,
            unhandled: Vec::new(),
            fuel_at_check: fuel,
            reply: Vec::new(),
            collation: Collation::default(),
        }
    }

    /// Rejections that nobody handled, and what else was reported and is still here.
    pub(crate) fn reported_bytes(&self) -> usize {
        let reports = self.unhandled.iter().chain(&self.result).chain(&self.error);
        reports.map(String::len).sum::<usize>() + self.reply.len()
    }

    pub(crate) fn host(&self) -> &H {
        self.host.as_ref().expect(HAS_HOST)
    }

    pub(crate) fn host_mut(&mut self) -> &mut H {
        self.host.as_mut().expect(HAS_HOST)
    }

    /// Whether a few milliseconds of work have passed since the last check. If so, it is to be made now.
    pub(crate) fn is_check_due(&mut self, fuel_left: u64) -> bool {
        let is_due = self.fuel_at_check.saturating_sub(fuel_left) >= FUEL_PER_CHECK;
        if is_due {
            self.fuel_at_check = fuel_left;
        }
        is_due
    }

    /// Keeps a reply until the guest has allocated memory for it and reads it. Returns its length.
    fn reply_with(&mut self, reply: impl Into<Vec<u8>>) -> i32 {
        self.reply = reply.into();
        i32::try_from(self.reply.len()).expect("replies are messages, names and parts of the guest's own text")
    }
}

impl<H: Send> ResourceLimiter for HostState<H> {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let granted = desired <= self.memory_bytes_max;
        self.memory_refused |= !granted;
        Ok(granted)
    }

    fn table_growing(&mut self, current: usize, _: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        // The guest's one table has its final size from the start.
        Ok(current == 0)
    }
}

// Fuel for work that the host does for the guest, so that it is bounded like the guest's own.
const FUEL_PER_QUESTION: u64 = 2_000;
const FUEL_PER_BYTE: u64 = 20;

/// Set in the number of a tool whose call asks for a new execution, or whose arguments were written one by one. Tools are
/// numbered in 16 bits.
const FRESH: u32 = 1 << 31;
const POSITIONAL: u32 = 1 << 30;

const REPORT_RESULT: u32 = 0;
const REPORT_ERROR: u32 = 1;

pub(crate) fn define<H: Host>(linker: &mut Linker<HostState<H>>) -> wasmtime::Result<()> {
    linker.func_wrap_async(
        "host",
        "call",
        |mut caller: Caller<'_, HostState<H>>, (tool, at, length): (u32, u32, u32)| {
            Box::new(async move {
                let freshness = if tool & FRESH == 0 { Freshness::MayReuse } else { Freshness::Fresh };
                let mut meter = charge(&mut caller, FUEL_PER_BYTE * u64::from(length)).await?;
                let (bytes, state) = split(&mut caller)?;
                let json = text(bytes, at, length)?;
                let args =
                    if tool & POSITIONAL == 0 { CallArguments::One(&json) } else { CallArguments::Positional(&json) };
                let decision = state.host_mut().call(tool & !(FRESH | POSITIONAL), args, freshness, &mut meter);
                settle(&mut caller, &meter)?;
                let state = caller.data_mut();
                match decision {
                    CallDecision::Issued => Ok(0),
                    CallDecision::Refused(refusal) => {
                        let json = serde_json::to_vec(&refusal).map_err(wasmtime::Error::new)?;
                        Ok(-state.reply_with(json) - 1)
                    }
                    CallDecision::Stop => Err(stop(state)),
                    CallDecision::OutOfFuel => Err(Trap::OutOfFuel.into()),
                }
            })
        },
    )?;
    linker.func_wrap("host", "log", |mut caller: Caller<'_, HostState<H>>, level: u32, at: u32, length: u32| {
        let (bytes, state) = split(&mut caller)?;
        let level = match level {
            0 => LogLevel::Debug,
            1 => LogLevel::Log,
            2 => LogLevel::Info,
            3 => LogLevel::Warn,
            _ => LogLevel::Error,
        };
        match state.host_mut().log(level, &text(bytes, at, length)?) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(stop(state)),
        }
    })?;
    linker.func_wrap("host", "report", |mut caller: Caller<'_, HostState<H>>, kind: u32, at: u32, length: u32| {
        let (bytes, state) = split(&mut caller)?;
        let report = text(bytes, at, length)?.into_owned();
        match kind {
            REPORT_RESULT => state.result = Some(report),
            REPORT_ERROR => state.error = Some(report),
            _ => state.unhandled.push(report),
        }
        Ok(())
    })?;
    linker.func_wrap("host", "frame", |mut caller: Caller<'_, HostState<H>>, line: i32, column: i32| {
        if let (Ok(line), Ok(column)) = (u32::try_from(line), u32::try_from(column)) {
            caller.data_mut().places.push(JsPosition { line, column });
        }
    })?;
    linker.func_wrap_async(
        "host",
        "ask",
        |mut caller: Caller<'_, HostState<H>>, (question, at, length): (u32, u32, u32)| {
            Box::new(async move { answer_question(&mut caller, question, at, length).await })
        },
    )?;
    linker.func_wrap_async(
        "host",
        "listed",
        |mut caller: Caller<'_, HostState<H>>, (list, at, length): (u32, u32, u32)| {
            Box::new(async move {
                charge(&mut caller, FUEL_PER_BYTE * u64::from(length)).await?;
                let (bytes, state) = split(&mut caller)?;
                // What is not UTF-8 is half of a surrogate pair, which no name has.
                let name = std::str::from_utf8(slice(bytes, at, length)?).ok();
                let listed = name.and_then(|name| state.host().names()?.listed(list, name));
                Ok(listed.map_or(-1, |listed| state.reply_with(listed)))
            })
        },
    )?;
    linker.func_wrap("host", "read", |mut caller: Caller<'_, HostState<H>>, into: u32| {
        let (bytes, state) = split(&mut caller)?;
        let reply = std::mem::take(&mut state.reply);
        let start = into as usize;
        bytes.get_mut(start..start + reply.len()).ok_or_else(misused)?.copy_from_slice(&reply);
        Ok(())
    })?;
    linker.func_wrap_async(
        "host",
        "compare",
        |mut caller: Caller<'_, HostState<H>>, (a, a_length, b, b_length, options): (u32, u32, u32, u32, u32)| {
            Box::new(async move {
                let effort =
                    |text: &[u8]| FUEL_PER_BYTE * text.len() as u64 + builtins::collation_effort(text, options);
                let cost =
                    effort(guest_bytes(&mut caller, a, a_length)?) + effort(guest_bytes(&mut caller, b, b_length)?);
                charge(&mut caller, cost).await?;
                let (bytes, state) = split(&mut caller)?;
                let order = state.collation.compare(slice(bytes, a, a_length)?, slice(bytes, b, b_length)?, options);
                Ok(order as i32)
            })
        },
    )?;
    Ok(())
}

fn all_listed(host: &impl Host, list: u32) -> &[u8] {
    host.names().map_or(&[0; 4], |names| names.all_listed(list))
}

/// The length of the reply, or -1 if there is none.
async fn answer_question<H: Host>(
    caller: &mut Caller<'_, HostState<H>>,
    question: u32,
    at: u32,
    length: u32,
) -> wasmtime::Result<i32> {
    let effort = builtins::url_effort(guest_bytes(caller, at, length)?);
    let mut meter = charge(caller, FUEL_PER_BYTE * u64::from(length) + effort).await?;
    if question == builtins::NAMES {
        let list = guest_bytes(caller, at, length)?.first_chunk().ok_or_else(misused)?;
        let list = u32::from_le_bytes(*list);
        charge(caller, all_listed(caller.data().host(), list).len() as u64).await?;
        let names = all_listed(caller.data().host(), list).to_vec();
        return Ok(caller.data_mut().reply_with(names));
    }
    let (bytes, state) = split(caller)?;
    let answer = match question {
        builtins::MEANING => {
            let (header, texts) = slice(bytes, at, length)?.split_first_chunk::<12>().ok_or_else(misused)?;
            let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            let (place, name) = texts.split_at_checked(number(8) as usize).ok_or_else(misused)?;
            let (place, name) = (String::from_utf8_lossy(place), String::from_utf8_lossy(name));
            let place = match number(0) {
                0 => NamePlace::Tools,
                1 => NamePlace::Namespace(number(4)),
                2 => NamePlace::Path(&place),
                _ => NamePlace::Module(&place),
            };
            let meaning = state.host().meaning(place, &name, &mut meter);
            settle(caller, &meter)?;
            Some(meaning.map_err(|OutOfFuel| Trap::OutOfFuel)?.to_bytes())
        }
        builtins::EXPRESSION => {
            let tool = slice(bytes, at, length)?.first_chunk().ok_or_else(misused)?;
            Some(state.host().expression(u32::from_le_bytes(*tool)).into_bytes())
        }
        builtins::STORE => {
            let (length_of_name, texts) = slice(bytes, at, length)?.split_first_chunk().ok_or_else(misused)?;
            let length_of_name = u32::from_le_bytes(*length_of_name) as usize;
            let (name, json) = texts.split_at_checked(length_of_name).ok_or_else(misused)?;
            let (name, json) = (String::from_utf8_lossy(name), String::from_utf8_lossy(json));
            if state.host_mut().store(&name, Some(&*json).filter(|json| !json.is_empty())).is_break() {
                return Err(stop(state));
            }
            None
        }
        builtins::LOAD => {
            let found = state.host().load(&text(bytes, at, length)?).map(|json| json.as_bytes().to_vec());
            charge(caller, FUEL_PER_BYTE * found.as_ref().map_or(0, Vec::len) as u64).await?;
            found
        }
        builtins::ALL_TOOLS => {
            let tools = state.host().all_tools();
            charge(caller, FUEL_PER_BYTE * tools.len() as u64).await?;
            Some(tools.into_bytes())
        }
        _ => builtins::answer(question, &text(bytes, at, length)?).map(String::into_bytes),
    };
    Ok(match answer {
        Some(answer) => caller.data_mut().reply_with(answer),
        None => -1,
    })
}

/// Takes the fuel before the work is done, so that a program without fuel causes no work. What is left can be charged
/// for work whose size only the host knows.
async fn charge<H: Send>(caller: &mut Caller<'_, HostState<H>>, cost: u64) -> wasmtime::Result<FuelMeter> {
    let prepaid = FUEL_PER_QUESTION + cost;
    let left = caller.get_fuel()?.checked_sub(prepaid);
    caller.set_fuel(left.unwrap_or(0))?;
    let left = left.ok_or(Trap::OutOfFuel)?;
    // `set_fuel` starts the interval anew after which the guest yields, so a program that keeps its host busy would
    // never be interrupted.
    if caller.data_mut().is_check_due(left) {
        YieldOnce(false).await;
    }
    Ok(FuelMeter { left, prepaid })
}

/// Takes the fuel that the host has charged.
fn settle<H>(caller: &mut Caller<'_, HostState<H>>, meter: &FuelMeter) -> wasmtime::Result<()> {
    if caller.get_fuel()? == meter.left { Ok(()) } else { caller.set_fuel(meter.left) }
}

/// Lets the caller of the guest look whether to go on.
struct YieldOnce(bool);

impl Future for YieldOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

fn guest_bytes<'a, H>(caller: &'a mut Caller<'_, HostState<H>>, at: u32, length: u32) -> wasmtime::Result<&'a [u8]> {
    let (bytes, _) = split(caller)?;
    slice(bytes, at, length)
}

/// The guest's memory and the host's state, side by side.
fn split<'a, H>(caller: &'a mut Caller<'_, HostState<H>>) -> wasmtime::Result<(&'a mut [u8], &'a mut HostState<H>)> {
    let memory = caller.data().memory.ok_or_else(misused)?;
    Ok(memory.data_and_store_mut(caller))
}

fn slice(bytes: &[u8], at: u32, length: u32) -> wasmtime::Result<&[u8]> {
    let start = at as usize;
    bytes.get(start..start + length as usize).ok_or_else(misused)
}

/// A string of JavaScript may hold half of a surrogate pair, which UTF-8 cannot.
fn text(bytes: &[u8], at: u32, length: u32) -> wasmtime::Result<Cow<'_, str>> {
    slice(bytes, at, length).map(String::from_utf8_lossy)
}

fn misused() -> wasmtime::Error {
    wasmtime::Error::msg("the guest broke the protocol with its host")
}

fn stop<H>(state: &mut HostState<H>) -> wasmtime::Error {
    state.stopped_by_host = true;
    wasmtime::Error::msg("stopped by the host")
}
