//! One program in its own memory.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use wasmtime::{Trap, TypedFunc, WasmParams, WasmResults};

use crate::guest_memory::GuestMemory;
use crate::idle_memories::IdleMemories;
use crate::imports::Host;
use crate::names::{Names, ProgramNames};

/// Everything that a program's run depends on besides its code, its tools and their answers.
#[derive(Debug, Clone)]
pub struct VmConfig {
    /// Seeds of `Math.random` and `crypto`.
    pub entropy: [u8; 40],
    /// Where the program's clock starts, in milliseconds since 1970.
    pub started_at_ms: f64,
    /// Instructions that it may execute.
    pub fuel: u64,
    /// Size that its memory may grow to; at most [`MEMORY_BYTES_CAP`](crate::MEMORY_BYTES_CAP).
    pub memory_bytes: usize,
    /// Stack of the engine, which bounds recursion.
    pub stack_bytes: u32,
}

/// What a program waits for when its job queue is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleState {
    /// Calls. If none is open, nothing will ever wake it.
    Pending,
    /// Calls or a timer.
    WaitingForTimer,
    /// Nothing: its promise has a value, see [`Vm::finish`].
    Fulfilled,
    /// Nothing: its promise was rejected, see [`Vm::finish`].
    Rejected,
}

/// Why a program ended while it was running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// Its fuel is used up. The positions are its stack, innermost first.
    OutOfFuel(Vec<JsPosition>),
    /// The host stopped it, see [`CallDecision::Stop`](crate::CallDecision::Stop) and [`Host::log`].
    ByHost(Vec<JsPosition>),
    /// It has no memory left, not even to throw an error.
    OutOfMemory,
    /// It recursed deeper than the host's stack allows.
    StackExhausted,
    /// The caller's [`ShouldContinue`] returned `false`. Says nothing about the program.
    Interrupted,
    /// The guest failed for a reason that is no limit: a defect of this crate.
    Fault(String),
}

/// A position in the JavaScript that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsPosition {
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1, in bytes of UTF-8.
    pub column: u32,
}

/// How an answer's text becomes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    /// The text is JSON.
    Json,
    /// JSON in which some integers are too large for a double: they become `BigInt`s.
    JsonWithBigIntegers,
    /// The text is the value, a string.
    Text,
    /// The call failed; the text is `{"message": …, "tool": …, "data": …}`, the fields of a `ToolError`.
    Error,
}

/// What a finished program returned or threw.
#[derive(Debug)]
pub struct FinalReport {
    /// The result as JSON, or a description of the error as JSON: `name`, `message`, `stack` and more.
    pub outcome: Result<String, String>,
    /// Descriptions of promise rejections that the program did not handle.
    pub unhandled: Vec<String>,
    /// Some allocation failed because the memory limit was reached.
    pub memory_refused: bool,
}

/// Mirrors `Start` in guest.c.
const HEADER_BYTES: usize = 64;

/// Where the guest expects messages of up to [`INBOX_BYTES`].
const INBOX: u32 = include!(concat!(env!("OUT_DIR"), "/inbox.in"));
const INBOX_BYTES: usize = 65536;

/// Where the guest's stack begins.
pub(crate) const STACK_START: usize = include!(concat!(env!("OUT_DIR"), "/stack_start.in"));

/// Fuel that is burnt between two calls of [`ShouldContinue`]: a millisecond or two of work.
pub(crate) const FUEL_PER_CHECK: u64 = 4_000_000;
/// Fuel for finding out where a program was when its own fuel was used up.
const POST_MORTEM_FUEL: u64 = 10_000_000;

/// Called every few milliseconds of a run; the run stops with [`Stop::Interrupted`] once it returns `false`.
pub type ShouldContinue<'a> = &'a dyn Fn() -> bool;

/// One program in its own memory. Between two methods its job queue is empty.
///
/// ```
/// use dacapo_sandbox::{ProgramNames, Sandbox, VmConfig};
/// # let config = VmConfig { entropy: [7; 40], started_at_ms: 0.0, fuel: 1 << 30, memory_bytes: 16 << 20, stack_bytes: 256 << 10 };
/// let sandbox = Sandbox::new(1)?;
/// let mut vm = sandbox.new_vm(&config, ())?;
/// vm.start(&config, &ProgramNames::default(), "(async () => 6 * 7)()", &|| true).unwrap();
/// assert_eq!(vm.finish(&|| true).unwrap().outcome.as_deref(), Ok("42"));
/// # Ok::<(), dacapo_sandbox::SandboxError>(())
/// ```
pub struct Vm<H: 'static> {
    /// Taken when it is dropped.
    memory: Option<GuestMemory<H>>,
    /// Where it goes then.
    idle: Arc<IdleMemories<H>>,
    /// Whether all functions of the guest that were called have returned.
    is_between_runs: bool,
    fuel_max: u64,
}

impl<H> std::fmt::Debug for Vm<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vm").finish_non_exhaustive()
    }
}

impl<H> Drop for Vm<H> {
    /// Its memory is for the next program. Where that is not possible it is given back.
    fn drop(&mut self) {
        if let Some(memory) = self.take_between_runs() {
            self.idle.put(memory);
        }
    }
}

impl<H> Vm<H> {
    pub(crate) fn new(fuel_max: u64, memory: GuestMemory<H>, idle: Arc<IdleMemories<H>>) -> Vm<H> {
        Vm { memory: Some(memory), idle, is_between_runs: true, fuel_max }
    }

    /// Its memory, unless the guest was stopped within a function.
    pub(crate) fn take_between_runs(&mut self) -> Option<GuestMemory<H>> {
        self.memory.take().filter(|_| self.is_between_runs)
    }

    pub(crate) fn fuel_max(&self) -> u64 {
        self.fuel_max
    }

    pub(crate) fn guest(&self) -> &GuestMemory<H> {
        self.memory.as_ref().expect(HAS_MEMORY)
    }

    pub(crate) fn guest_mut(&mut self) -> &mut GuestMemory<H> {
        self.memory.as_mut().expect(HAS_MEMORY)
    }
}

const HAS_MEMORY: &str = "it has its memory until it is dropped";

impl<H: Host> Vm<H> {
    /// Runs `javascript`, whose value must be a promise, until the job queue is empty. To be called once.
    pub fn start(
        &mut self,
        config: &VmConfig,
        names: &ProgramNames,
        javascript: &str,
        should_continue: ShouldContinue<'_>,
    ) -> Result<IdleState, Stop> {
        let replacing = self.host().names().map_or(&[][..], Names::replacing);
        let names_bytes = replacing.len() + names.as_bytes().len();
        let mut message = Vec::with_capacity(HEADER_BYTES + names_bytes + javascript.len() + 1);
        message.extend(config.started_at_ms.to_le_bytes());
        message.extend(config.entropy);
        message.extend(config.stack_bytes.to_le_bytes());
        message.extend((names_bytes as u32).to_le_bytes());
        message.extend((javascript.len() as u32).to_le_bytes());
        message.resize(HEADER_BYTES, 0);
        message.extend_from_slice(replacing);
        message.extend_from_slice(names.as_bytes());
        message.extend_from_slice(javascript.as_bytes());
        message.push(0);
        let at = self.write_message(&message, should_continue)?;
        let start = self.guest().exports.start.clone();
        self.enter(&start, at, should_continue).map(rest)
    }

    /// Answers call number `call`, which must be open, and runs on.
    pub fn settle(
        &mut self,
        call: u32,
        kind: AnswerKind,
        text: &str,
        should_continue: ShouldContinue<'_>,
    ) -> Result<IdleState, Stop> {
        // The engine's JSON parser reads one byte past the end.
        let mut message = Vec::with_capacity(text.len() + 1);
        message.extend_from_slice(text.as_bytes());
        message.push(0);
        let at = self.write_message(&message, should_continue)?;
        let settle = self.guest().exports.settle.clone();
        self.enter(&settle, (call, kind as u32, at, text.len() as u32), should_continue).map(rest)
    }

    /// Moves the clock to the earliest timer and lets it fire; only when [`IdleState::WaitingForTimer`].
    pub fn tick(&mut self, should_continue: ShouldContinue<'_>) -> Result<IdleState, Stop> {
        let tick = self.guest().exports.tick.clone();
        self.enter(&tick, (), should_continue).map(rest)
    }

    /// Takes the result or the error; only when fulfilled or rejected.
    pub fn finish(&mut self, should_continue: ShouldContinue<'_>) -> Result<FinalReport, Stop> {
        let finish = self.guest().exports.finish.clone();
        self.enter(&finish, (), should_continue)?;
        let state = self.guest_mut().store.data_mut();
        let unhandled = std::mem::take(&mut state.unhandled);
        let outcome = match (state.result.take(), state.error.take()) {
            (Some(result), _) => Ok(result),
            (None, Some(error)) => Err(error),
            (None, None) => return Err(Stop::Fault("the program finished without a report".to_owned())),
        };
        Ok(FinalReport { outcome, unhandled, memory_refused: state.memory_refused })
    }

    /// The host that was given to [`Sandbox::new_vm`].
    pub fn host(&self) -> &H {
        self.guest().store.data().host()
    }

    /// The host, to be changed between two runs.
    pub fn host_mut(&mut self) -> &mut H {
        self.guest_mut().store.data_mut().host_mut()
    }

    /// Instructions executed since the start, and work of the host on the program's behalf.
    pub fn fuel_used(&self) -> u64 {
        self.fuel_max - self.fuel_left()
    }

    /// Instructions that it may still execute.
    pub fn fuel_left(&self) -> u64 {
        self.guest().store.get_fuel().unwrap_or(0)
    }

    /// Takes fuel for work that the host does between two runs of the guest.
    pub fn charge(&mut self, cost: u64, should_continue: ShouldContinue<'_>) -> Result<(), Stop> {
        if cost == 0 {
            return Ok(());
        }
        let left = self.fuel_left().checked_sub(cost);
        let charged = self.guest_mut().store.set_fuel(left.unwrap_or(0));
        charged.map_err(|error| Stop::Fault(format!("{error:?}")))?;
        let Some(left) = left else { return Err(Stop::OutOfFuel(Vec::new())) };
        if self.guest_mut().store.data_mut().is_check_due(left) && !should_continue() {
            return Err(Stop::Interrupted);
        }
        Ok(())
    }

    /// What the program has reported and nobody has taken yet.
    pub fn reported_bytes(&self) -> usize {
        self.guest().store.data().reported_bytes()
    }

    /// Size of its memory, which never shrinks.
    pub fn memory_bytes(&self) -> usize {
        {
            let guest = self.guest();
            guest.memory.data_size(&guest.store)
        }
    }

    /// Copies a message into the guest's memory; large ones into memory that it allocates for them.
    fn write_message(&mut self, message: &[u8], should_continue: ShouldContinue<'_>) -> Result<u32, Stop> {
        let at = if message.len() <= INBOX_BYTES {
            INBOX
        } else {
            let room = self.guest().exports.room.clone();
            self.enter(&room, message.len() as u32, should_continue)?
        };
        if at == 0 {
            self.guest_mut().store.data_mut().memory_refused = true;
            return Err(Stop::OutOfMemory);
        }
        let start = at as usize;
        let GuestMemory { store, memory, .. } = self.guest_mut();
        memory.data_mut(store)[start..start + message.len()].copy_from_slice(message);
        Ok(at)
    }

    fn enter<P, R>(
        &mut self,
        export: &TypedFunc<P, R>,
        params: P,
        should_continue: ShouldContinue<'_>,
    ) -> Result<R, Stop>
    where
        P: WasmParams + Sync,
        R: WasmResults + Send + Sync,
    {
        self.is_between_runs = false;
        let outcome = drive(export.call_async(&mut self.guest_mut().store, params), should_continue);
        let result = outcome.ok_or(Stop::Interrupted)?.map_err(|error| self.stopped(&error))?;
        self.is_between_runs = true;
        Ok(result)
    }

    fn stopped(&mut self, error: &wasmtime::Error) -> Stop {
        if self.guest_mut().store.data().stopped_by_host {
            return Stop::ByHost(self.places());
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => Stop::OutOfFuel(self.places()),
            Some(Trap::StackOverflow) => Stop::StackExhausted,
            // The engine traps when it cannot even report that memory is short.
            Some(_) if self.guest_mut().store.data().memory_refused => Stop::OutOfMemory,
            _ => Stop::Fault(format!("{error:?}")),
        }
    }

    fn places(&mut self) -> Vec<JsPosition> {
        let locate = self.guest().exports.locate.clone();
        let left = self.guest_mut().store.get_fuel().unwrap_or(0);
        if self.guest_mut().store.set_fuel(POST_MORTEM_FUEL).is_ok() {
            // The positions are a help and no more: without them the program is stopped all the same.
            drop(drive(locate.call_async(&mut self.guest_mut().store, ()), &|| true));
        }
        // Fuel that the search took is not the program's.
        drop(self.guest_mut().store.set_fuel(left));
        std::mem::take(&mut self.guest_mut().store.data_mut().places)
    }
}

/// Runs a guest's future to its end on this thread; `None` if `should_continue` returned `false` first.
pub(crate) fn drive<F: Future>(future: F, should_continue: ShouldContinue<'_>) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return Some(output),
            Poll::Pending if should_continue() => {}
            Poll::Pending => return None,
        }
    }
}

fn rest(status: i32) -> IdleState {
    match status {
        0 => IdleState::Pending,
        1 => IdleState::WaitingForTimer,
        2 => IdleState::Fulfilled,
        _ => IdleState::Rejected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sandbox;

    /// Ways to recurse through the engine's own functions, whose frames are larger than those of programs.
    const RECURSIONS: [&str; 13] = [
        "const f = n => f(n + 1) + 1; f(0)",
        "const f = () => [2, 1].sort(f); f()",
        "const f = () => 'a'.replace(/a/, f); f()",
        "const f = () => JSON.stringify({ toJSON: f }); f()",
        "const f = () => JSON.parse('[1]', f); f()",
        "const f = () => Reflect.apply(f, null, [...'abcdefgh']); f()",
        "const f = () => String({ toString: f }); f()",
        "const o = new Proxy({}, { get: (t, key) => o[key] }); o.x",
        "class A { constructor() { new A() } } new A()",
        "function* g() { yield* g() } [...g()]",
        "const f = () => Array.from({ length: 1 }, f); f()",
        "eval('['.repeat(100000))",
        "new RegExp('('.repeat(100000) + ')'.repeat(100000)).test('a')",
    ];

    /// Below its stack the guest has its heap, and nothing would stop it from writing there.
    #[test]
    fn no_recursion_reaches_the_end_of_the_stack() {
        let config = VmConfig {
            entropy: [7; 40],
            started_at_ms: 0.0,
            fuel: 1 << 34,
            memory_bytes: 128 << 20,
            stack_bytes: 768 << 10,
        };
        let sandbox = Sandbox::new(1).expect("a sandbox");
        for recursion in RECURSIONS {
            let mut vm = sandbox.new_vm(&config, ()).expect("a memory");
            let code = format!("(async () => {{ try {{ {recursion} }} catch (error) {{ return error.name }} }})()");
            let started = vm.start(&config, &ProgramNames::default(), &code, &|| true);
            started.unwrap_or_else(|stop| panic!("{recursion}: {stop:?}"));
            let report = vm.finish(&|| true).expect("it has ended");
            let error = report.outcome.expect("the name of the error");
            assert!(
                ["\"RangeError\"", "\"InternalError\"", "\"SyntaxError\""].contains(&&*error),
                "{recursion}: {error}"
            );
            let stack = &vm.guest().memory.data(&vm.guest().store)[STACK_START..];
            let unused = stack.iter().take_while(|byte| **byte == 0).count();
            assert!(unused > 64 << 10, "{recursion}: only {unused} bytes were left");
        }
    }
}
