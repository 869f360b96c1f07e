//! The step function: [`Stepper::step`].

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dacapo_lru::{CacheKey, LruCache};
use dacapo_sandbox::{Sandbox, SandboxError, Shortage, ShouldContinue, Vm, VmConfig};
use dacapo_script::{Diagnostic, PreparedScript};
use sha2::{Digest, Sha256};

use crate::call_recorder::CallRecorder;
use crate::journal::{CallIndex, Journal};
use crate::limits::Limit;
use crate::report;
use crate::request::StepRequest;
use crate::run::{Interrupted, ReplayRun, RunInputs, ShrunkRun};
use crate::step::{Outcome, ProgramFailure, ResourceUsage, Step};

/// Runs programs step by step. Make one per process and share it between threads.
pub struct Stepper {
    sandbox: Sandbox<CallRecorder>,
    /// Paused programs kept in memory. A cache: a program that is neither here nor shrunk is replayed.
    warm: Mutex<LruCache<ReplayRun>>,
    /// Those that nobody has resumed for a while, and that would take long to be replayed.
    shrunk: Mutex<LruCache<ShrunkRun>>,
    /// How often unused programs were released.
    releases: AtomicU32,
    /// Steps that ended a program. A cache as well: clients send the same history with every request.
    finished: Mutex<LruCache<Step>>,
    /// Programs as JavaScript. A cache as well: a program that is replayed was prepared for the step before, unless another
    /// machine took it.
    prepared: Mutex<LruCache<Arc<PreparedScript>>>,
    /// Where programs go that run no more. Without it they are dropped at once.
    disposal: Option<Disposal>,
    /// Each of those that were not dropped yet has a reference to it.
    undisposed: Arc<()>,
}

type Disposal = Box<dyn Fn(EndedProgram) + Send + Sync>;

/// A program that runs no more. Dropping it makes its memory ready for another program, which takes longer than starting one.
pub struct EndedProgram {
    _run: ReplayRun,
    _undisposed: Arc<()>,
}

impl std::fmt::Debug for EndedProgram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndedProgram").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Stepper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stepper").finish_non_exhaustive()
    }
}

/// How many paused programs stay in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmPrograms {
    /// Programs at most.
    pub count_max: u32,
    /// Bytes of their memories at most, with the arguments of their calls and what they logged.
    pub bytes_max: usize,
}

impl WarmPrograms {
    /// Keep none: every step replays its program from the start.
    pub const NONE: WarmPrograms = WarmPrograms { count_max: 0, bytes_max: 0 };
}

impl Default for WarmPrograms {
    fn default() -> WarmPrograms {
        WarmPrograms { count_max: 1_000, bytes_max: 4 << 30 }
    }
}

/// What a step started from. It decides how long the step takes, never its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepStart {
    /// From the program's start.
    Cold,
    /// From a paused program in memory.
    Warm,
    /// The same step had ended the program before: nothing was run.
    Finished,
}

/// Paused programs in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PausedPrograms {
    /// How many there are.
    pub count: usize,
    /// What they take together.
    pub bytes: usize,
}

/// Why there is no step. The program is not at fault, and a retry may succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The caller's [`ShouldContinue`] returned `false`.
    #[error(
        "the step was given up before the program came to rest; this machine is too busy or too slow, so try again"
    )]
    Interrupted,
    /// There is no room for another program.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

/// Memory that a paused program takes on the host, besides its own.
const BYTES_PER_PROGRAM: usize = 256 << 10;

/// Fuel for reading a program's source and turning it into JavaScript.
const FUEL_PER_SOURCE_BYTE: u64 = 100;

/// Finished steps kept for each paused program that may be kept. They take far less room.
const FINISHED_PER_WARM: usize = 8;
const FINISHED_BYTES_MAX: usize = 64 << 20;

/// Programs that have used less are replayed in less time than it takes to bring back what is left of them, some 300 µs.
const FUEL_WORTH_KEEPING: u64 = 2_000_000;
/// What may be left of one program's memory. More is given up, and the program is replayed.
const SHRUNK_MEMORY_BYTES_MAX: usize = 64 << 10;
/// What may be left of all.
const SHRUNK_BYTES_MAX: usize = 64 << 20;
/// Those that nobody needed between so many releases are given up.
const SHRUNK_PERIOD_RELEASES: u32 = 12;

const PREPARED_MAX: usize = 4_096;
const PREPARED_BYTES_MAX: usize = 16 << 20;

/// Programs that may run at the same moment, beside those that are paused.
const RUNNING_MAX: u32 = 64;

/// Programs that ended and may wait to be dropped. One more is dropped at once.
const UNDISPOSED_MAX: u32 = 8;
/// The memory of one that may wait. A larger one ran for so long that dropping it is no matter.
const UNDISPOSED_BYTES_MAX: usize = 4 << 20;

impl Stepper {
    /// A stepper that keeps this many paused programs. Reserves address space for them, but no memory.
    pub fn new(warm: WarmPrograms) -> Result<Stepper, SandboxError> {
        let sandbox = Sandbox::new(warm.count_max + RUNNING_MAX + UNDISPOSED_MAX)?;
        Ok(Stepper {
            sandbox,
            warm: Mutex::new(LruCache::new(warm.count_max as usize, warm.bytes_max)),
            shrunk: Mutex::new(LruCache::new(warm.count_max as usize, warm.bytes_max.min(SHRUNK_BYTES_MAX))),
            releases: AtomicU32::new(0),
            finished: Mutex::new(LruCache::new(warm.count_max as usize * FINISHED_PER_WARM, FINISHED_BYTES_MAX)),
            prepared: Mutex::new(LruCache::new(PREPARED_MAX, PREPARED_BYTES_MAX)),
            disposal: None,
            undisposed: Arc::default(),
        })
    }

    /// Passes programs that have ended to `disposal`, which may drop them when nobody waits for the step any more.
    #[must_use]
    pub fn with_disposal(mut self, disposal: impl Fn(EndedProgram) + Send + Sync + 'static) -> Stepper {
        self.disposal = Some(Box::new(disposal));
        self
    }

    /// Set if address space is limited: there may be room for fewer programs, and they may run more slowly.
    pub fn shortage(&self) -> Option<Shortage> {
        self.sandbox.shortage()
    }

    /// Runs the program against the journal: up to the next calls that the journal does not answer, or to its end.
    ///
    /// ```
    /// use dacapo_replay::{StepRequest, Stepper, WarmPrograms};
    /// let stepper = Stepper::new(WarmPrograms::NONE)?;
    /// let request = StepRequest::parse(r#"{"program": {"code": "return 6 * 7"}}"#)?;
    /// let step = stepper.step(&request, &|| true)?;
    /// assert!(serde_json::to_string(&step)?.contains(r#"{"status":"success","data":42}"#));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// `should_continue` guards against a slow machine and is called every few milliseconds. It does not change the
    /// outcome of a step: a step that it stops is an `Err`, and the next attempt starts over.
    pub fn step(&self, request: &StepRequest, should_continue: ShouldContinue<'_>) -> Result<Step, StepError> {
        self.step_beyond(request, CallIndex(0), should_continue)
    }

    /// Like [`step`](Stepper::step), and says what it started from.
    pub fn step_from(
        &self,
        request: &StepRequest,
        should_continue: ShouldContinue<'_>,
    ) -> Result<(Step, StepStart), StepError> {
        self.run(request, CallIndex(0), should_continue)
    }

    /// The paused programs that are in memory now.
    pub fn paused(&self) -> PausedPrograms {
        let (warm, shrunk) = (self.warm(), self.shrunk());
        PausedPrograms { count: warm.count() + shrunk.count(), bytes: warm.bytes() + shrunk.bytes() }
    }

    /// Like [`step`](Stepper::step), for a caller who has seen all calls before `new` already: a pause lists only the
    /// calls from there on.
    pub fn step_beyond(
        &self,
        request: &StepRequest,
        new: CallIndex,
        should_continue: ShouldContinue<'_>,
    ) -> Result<Step, StepError> {
        self.run(request, new, should_continue).map(|(step, _)| step)
    }

    fn run(
        &self,
        request: &StepRequest,
        new: CallIndex,
        should_continue: ShouldContinue<'_>,
    ) -> Result<(Step, StepStart), StepError> {
        let inputs = RunInputs { program: &request.program, limits: &request.limits, new, should_continue };
        let base = base(request);
        let whole = key(&base, &request.journal, request.journal.entries().len());
        if let Some(step) = self.finished().get(&whole) {
            return Ok((step.clone(), StepStart::Finished));
        }
        let resumed = if request.journal.bytes() as u64 > request.limits.get(Limit::JournalBytes) {
            return Ok((unstarted(report::limit(Limit::JournalBytes, &[], &inputs), request), StepStart::Cold));
        } else {
            self.resume(&base, &request.journal)
        };
        let start = if resumed.is_some() { StepStart::Warm } else { StepStart::Cold };
        let mut run = match resumed {
            Some(run) => run,
            None => match self.start(request, &inputs)? {
                Ok(run) => run,
                Err(step) => return Ok((step, start)),
            },
        };
        let step = run.advance(&request.journal, &inputs).map_err(|Interrupted| StepError::Interrupted)?;
        if let Outcome::Paused { .. } = step.outcome {
            let key = key(&base, &request.journal, run.consumed());
            let bytes = BYTES_PER_PROGRAM + run.memory_bytes();
            // They are dropped after the lock is released.
            let evicted = self.warm().put(key, run, bytes);
            for run in evicted {
                self.dispose(run);
            }
        } else {
            self.dispose(run);
            let bytes = step.bytes();
            drop(self.finished().put(whole, step.clone(), bytes));
        }
        Ok((step, start))
    }

    fn dispose(&self, run: ReplayRun) {
        let waiting = Arc::strong_count(&self.undisposed) - 1;
        let may_wait = waiting < UNDISPOSED_MAX as usize
            && run.memory_bytes() <= UNDISPOSED_BYTES_MAX
            // Where there is room for few programs, the next one may need this one's place.
            && self.shortage().is_none();
        if let Some(disposal) = self.disposal.as_ref().filter(|_| may_wait) {
            disposal(EndedProgram { _run: run, _undisposed: Arc::clone(&self.undisposed) });
        }
    }

    /// Gives up the programs and steps that are kept only to save time, and the memory that they took.
    pub fn release_memory(&self) {
        while self.warm().evict().is_some() {}
        while self.shrunk().evict().is_some() {}
        while self.finished().evict().is_some() {}
        while self.prepared().evict().is_some() {}
        self.sandbox.release_memory();
    }

    /// Takes their memory from the paused programs that no step has used since the last call of this method. Those that
    /// have computed for long are brought back from what is kept of them when they are needed again, up to 64 KB each; the
    /// others are replayed, and so are those that were not needed for a dozen calls more. To be called from time to time:
    /// there is no clock here.
    pub fn release_unused(&self) {
        self.release_unused_from(FUEL_WORTH_KEEPING);
    }

    /// The same, with something kept of programs that have used at least this much fuel.
    pub fn release_unused_from(&self, fuel_min: u64) {
        while let Some((key, run)) = self.next_unused() {
            let shrunk = (run.fuel_used() >= fuel_min).then(|| run.shrink(SHRUNK_MEMORY_BYTES_MAX)).flatten();
            if let Some(shrunk) = shrunk {
                let bytes = shrunk.bytes();
                drop(self.shrunk().put(key, shrunk, bytes));
            }
        }
        self.warm().begin_period();
        if self.releases.fetch_add(1, Ordering::Relaxed).is_multiple_of(SHRUNK_PERIOD_RELEASES) {
            while let Some(unused) = self.next_unused_shrunk() {
                drop(unused);
            }
            self.shrunk().begin_period();
        }
        self.sandbox.release_unused();
    }

    // Without the lock each of them is shrunk or dropped, which takes up to a few milliseconds.

    fn next_unused(&self) -> Option<(CacheKey, ReplayRun)> {
        self.warm().evict_unused()
    }

    fn next_unused_shrunk(&self) -> Option<(CacheKey, ShrunkRun)> {
        self.shrunk().evict_unused()
    }

    /// The paused program that has come furthest into this journal.
    fn resume(&self, base: &CacheKey, journal: &Journal) -> Option<ReplayRun> {
        for consumed in (0..=journal.entries().len()).rev() {
            let key = key(base, journal, consumed);
            let run = self.warm().take(&key);
            if run.is_some() {
                return run;
            }
            let shrunk = self.shrunk().take(&key);
            if let Some(shrunk) = shrunk {
                // Without a place for its memory it is replayed.
                return shrunk.restore(&self.sandbox).ok();
            }
        }
        None
    }

    fn start(&self, request: &StepRequest, inputs: &RunInputs<'_>) -> Result<Result<ReplayRun, Step>, StepError> {
        let code = &request.program.code;
        if code.len() as u64 > request.limits.get(Limit::ProgramBytes) {
            return Ok(Err(unstarted(report::limit(Limit::ProgramBytes, &[], inputs), request)));
        }
        if request.stored.bytes() as u64 > request.limits.get(Limit::StoredBytes) {
            return Ok(Err(unstarted(report::limit(Limit::StoredBytes, &[], inputs), request)));
        }
        let preparation_fuel = code.len() as u64 * FUEL_PER_SOURCE_BYTE;
        if preparation_fuel > request.limits.get(Limit::Fuel) {
            return Ok(Err(unstarted(report::limit(Limit::Fuel, &[], inputs), request)));
        }
        let prepared = match self.prepare(request) {
            Ok(prepared) => prepared,
            Err(diagnostic) => return Ok(Err(unstarted(report::syntax(diagnostic), request))),
        };
        let limits = &request.limits;
        let config = VmConfig {
            entropy: request.program.entropy(),
            started_at_ms: request.program.started_at_ms,
            fuel: limits.get(Limit::Fuel),
            memory_bytes: limits.get(Limit::MemoryBytes) as usize,
            stack_bytes: limits.get(Limit::StackBytes) as u32,
        };
        let mut vm = self.new_vm(&config, request)?;
        let names = request.toolbox.names_for(&prepared);
        let started = vm
            .charge(preparation_fuel, inputs.should_continue)
            .and_then(|()| vm.start(&config, &names, &prepared.javascript, inputs.should_continue));
        Ok(Ok(ReplayRun::new(vm, started)))
    }

    fn prepare(&self, request: &StepRequest) -> Result<Arc<PreparedScript>, Diagnostic> {
        let code = &request.program.code;
        // What one tenant ran does not hasten another.
        let key: CacheKey =
            Sha256::new().chain_update(Sha256::digest(&request.tenant)).chain_update(code).finalize().into();
        if let Some(prepared) = self.prepared().get(&key) {
            return Ok(Arc::clone(prepared));
        }
        let prepared = Arc::new(dacapo_script::prepare(code)?);
        // What is known of it besides the JavaScript is made of parts of the source.
        let bytes = prepared.javascript.len() + code.len();
        drop(self.prepared().put(key, Arc::clone(&prepared), bytes));
        Ok(prepared)
    }

    fn new_vm(&self, config: &VmConfig, request: &StepRequest) -> Result<Vm<CallRecorder>, SandboxError> {
        loop {
            let recorder = CallRecorder::new(request);
            match self.sandbox.new_vm(config, recorder) {
                // A program that runs now goes before one that is only kept.
                Err(SandboxError::Full(places)) => {
                    let evicted = self.warm().evict();
                    if evicted.is_none() {
                        return Err(SandboxError::Full(places));
                    }
                }
                other => return other,
            }
        }
    }

    fn finished(&self) -> MutexGuard<'_, LruCache<Step>> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepared(&self) -> MutexGuard<'_, LruCache<Arc<PreparedScript>>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shrunk(&self) -> MutexGuard<'_, LruCache<ShrunkRun>> {
        self.shrunk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn warm(&self) -> MutexGuard<'_, LruCache<ReplayRun>> {
        self.warm.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Digest of all of the request but its journal.
fn base(request: &StepRequest) -> CacheKey {
    let mut hash = Sha256::new();
    hash.update(Sha256::digest(&request.tenant));
    hash.update(request.program.digest());
    hash.update(request.toolbox.digest());
    for value in request.limits.values() {
        hash.update(value.to_le_bytes());
    }
    request.reuse.iter().for_each(|record| record.absorb_into(&mut hash));
    if !request.stored.is_empty() {
        hash.update(request.stored.digest());
    }
    hash.finalize().into()
}

fn key(base: &CacheKey, journal: &Journal, consumed: usize) -> CacheKey {
    Sha256::digest([*base, journal.digest(consumed)].concat()).into()
}

/// The step of a program that was refused before it started.
fn unstarted(failure: Box<ProgramFailure>, request: &StepRequest) -> Step {
    Step {
        outcome: Outcome::Finished { result: Err(failure) },
        logs: Vec::new(),
        usage: ResourceUsage { fuel: 0, memory_bytes: 0 },
        reused: Vec::new(),
        record: request.reuse.clone(),
        stored: request.stored.clone(),
        shapes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_tenant_ran_does_not_hasten_another() {
        let stepper = Stepper::new(WarmPrograms { count_max: 4, bytes_max: 64 << 20 }).unwrap();
        let ends = "let sum = 0; for (let i = 0; i < 2e7; i++) sum += i; return sum";
        let pauses = "let sum = 0; for (let i = 0; i < 2e7; i++) sum += i; return await f({})";
        for code in [ends, pauses] {
            let text = serde_json::json!({"program": {"code": code}, "tools": [{"name": "f"}]}).to_string();
            let (toolboxes, limits) = (crate::Toolboxes::default(), crate::Limits::default());
            let request = |tenant: &str| {
                let rules = crate::ServiceRules { toolboxes: &toolboxes, tenant, limits: &limits };
                StepRequest::parse_for(&text, rules).unwrap()
            };
            let first = stepper.step(&request("ann"), &|| true).unwrap();
            // A step that has to run its program is interrupted; one from memory is not.
            assert!(matches!(stepper.step(&request("bob"), &|| false), Err(StepError::Interrupted)));
            assert!(matches!(stepper.step(&request(""), &|| false), Err(StepError::Interrupted)));
            let again = stepper.step(&request("ann"), &|| false).unwrap();
            assert_eq!(serde_json::to_string(&again).unwrap(), serde_json::to_string(&first).unwrap());
        }
        // Each of the two programs was prepared once for each of the three tenants.
        assert_eq!(stepper.prepared().count(), 6);
    }

    #[test]
    fn only_a_few_small_programs_wait_to_be_dropped() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&kept);
        let stepper = Stepper::new(WarmPrograms::NONE).unwrap();
        let stepper = stepper.with_disposal(move |program| keep.lock().unwrap().push(program));
        let step = |code: &str| {
            let text = serde_json::json!({"program": {"code": code}, "tools": [{"name": "f"}]}).to_string();
            serde_json::to_string(&stepper.step(&StepRequest::parse(&text).unwrap(), &|| true).unwrap()).unwrap()
        };
        assert!(step("return 'x'.repeat(8 << 20).length").contains("8388608"));
        assert_eq!(kept.lock().unwrap().len(), 0);
        for number in 0..RUNNING_MAX {
            // Some end, and some are paused with no room to keep them.
            assert!(step(&format!("return {number}")).contains(&format!("\"data\":{number}")));
            assert!(step(&format!("return f({{number: {number}}})")).contains("paused"));
        }
        assert_eq!(kept.lock().unwrap().len(), UNDISPOSED_MAX as usize);
        kept.lock().unwrap().clear();
        assert!(step("return 'another'").contains("another"));
        assert_eq!(kept.lock().unwrap().len(), 1);
    }
}
