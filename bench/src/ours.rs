//! Dacapo's side.

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use anyhow::{anyhow, ensure};
use cpu_time::ThreadTime;
use dacapo_replay::{
    Answer, CallIndex, JournalEntry, JsonText, Outcome, Program, Step, StepRequest, StepStart, Stepper, Toolbox,
    WarmPrograms, read_tools,
};
use dacapo_sandbox::{
    AnswerKind, CallArguments, CallDecision, Freshness, FuelMeter, Host, IdleState, LogLevel, Names, ProgramNames,
    Sandbox, VmConfig,
};
use dacapo_wire::{ModelCall, ModelMessage, PackedState, RunState};
use serde_json::json;

use crate::sample::Sample;
use crate::work;

/// Numbers calls of one tool and does nothing else.
struct Counter(u32);

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let mut names = Names::default();
    names.function(0, "weather");
    names
});

impl Host for Counter {
    fn call(&mut self, _: u32, _: CallArguments<'_>, _: Freshness, _: &mut FuelMeter) -> CallDecision {
        self.0 += 1;
        CallDecision::Issued
    }

    fn log(&mut self, _: LogLevel, _: &str) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn names(&self) -> Option<&Names> {
        Some(&NAMES)
    }
}

pub(crate) struct Bench {
    sandbox: Sandbox<Counter>,
    config: VmConfig,
    cold: Stepper,
    warm: Stepper,
    toolbox: Arc<Toolbox>,
}

/// Never interrupts.
const NEVER_INTERRUPT: &dyn Fn() -> bool = &|| true;

impl Bench {
    pub(crate) fn new() -> anyhow::Result<Bench> {
        let tools = read_tools(&json!([{ "name": "weather", "input_schema": { "type": "object", "properties": {
            "city": { "type": "string" }, "days": { "type": "integer", "minimum": 1, "maximum": 14 } } } }]))?;
        Ok(Bench {
            sandbox: Sandbox::new(16)?,
            config: VmConfig {
                entropy: [7; 40],
                started_at_ms: 1.76e12,
                fuel: 20_000_000_000,
                memory_bytes: 128 << 20,
                stack_bytes: 256 << 10,
            },
            cold: Stepper::new(WarmPrograms::NONE)?,
            warm: Stepper::new(WarmPrograms { count_max: 1_100, bytes_max: usize::MAX })?,
            toolbox: Arc::new(Toolbox::new(tools)?),
        })
    }

    pub(crate) fn new_vm(&self, runs: usize) -> anyhow::Result<Sample> {
        Sample::wall(runs, || {
            drop(self.sandbox.new_vm(&self.config, Counter(0))?);
            Ok(())
        })
    }

    pub(crate) fn two_tools_in_sandbox(&self, runs: usize) -> anyhow::Result<Sample> {
        let javascript = format!("(async () => {{\n{}\n}})()", work::TWO_TOOLS);
        Sample::wall(runs, || {
            let mut vm = self.sandbox.new_vm(&self.config, Counter(0))?;
            let mut rest = vm.start(&self.config, &ProgramNames::default(), &javascript, NEVER_INTERRUPT);
            for (call, answer) in work::TWO_TOOLS_ANSWERS.iter().enumerate() {
                ensure!(rest == Ok(IdleState::Pending), "{rest:?}");
                rest = vm.settle(call as u32, AnswerKind::Json, answer, NEVER_INTERRUPT);
            }
            ensure!(rest == Ok(IdleState::Fulfilled), "{rest:?}");
            let ending = vm.finish(NEVER_INTERRUPT).map_err(|stop| anyhow!("{stop:?}"))?;
            ensure!(ending.outcome.as_deref() == Ok(work::TWO_TOOLS_RESULT), "{ending:?}");
            Ok(())
        })
    }

    pub(crate) fn two_tools_cold(&self, runs: usize) -> anyhow::Result<Sample> {
        let mut request = self.request(work::TWO_TOOLS);
        let paused = self.cold.step(&request, NEVER_INTERRUPT)?;
        answer_all(&mut request, &paused, &work::TWO_TOOLS_ANSWERS);
        Sample::wall(runs, || expect(&self.cold.step(&request, NEVER_INTERRUPT)?, work::TWO_TOOLS_RESULT))
    }

    pub(crate) fn two_tools_resumed(&self, runs: usize) -> anyhow::Result<Sample> {
        let mut number = 0;
        Sample::take(runs, || {
            // A new program each time: the last step of one that was run before is in a cache.
            number += 1;
            let mut request = self.request(work::TWO_TOOLS);
            request.program.seed = format!("{number}");
            let paused = self.warm.step(&request, NEVER_INTERRUPT)?;
            answer_all(&mut request, &paused, &work::TWO_TOOLS_ANSWERS);
            let start = Instant::now();
            expect(&self.warm.step(&request, NEVER_INTERRUPT)?, work::TWO_TOOLS_RESULT)?;
            Ok(start.elapsed())
        })
    }

    pub(crate) fn chain_warm(&self, runs: usize) -> anyhow::Result<Sample> {
        Sample::cpu(runs, || chain(&self.warm, self.request(work::CHAIN), work::CHAIN_CALLS))
    }

    pub(crate) fn chain_cold(&self, runs: usize) -> anyhow::Result<Sample> {
        Sample::cpu(runs, || chain(&self.cold, self.request(work::CHAIN), work::CHAIN_CALLS))
    }

    /// CPU per call of a chain of 2,000 calls, to that of one of 500.
    pub(crate) fn chain_linearity(&self) -> anyhow::Result<f64> {
        let per_call = |calls: usize| -> anyhow::Result<f64> {
            let code = work::CHAIN.replace("1000", &calls.to_string());
            let mut best = f64::INFINITY;
            for _ in 0..5 {
                let start = ThreadTime::now();
                chain(&self.warm, self.request(&code), calls)?;
                best = best.min(start.elapsed().as_secs_f64());
            }
            Ok(best / f64::from(u32::try_from(calls)?))
        };
        Ok(per_call(2_000)? / per_call(500)?)
    }

    /// A program whose calls are answered one after another, in the sandbox alone.
    pub(crate) fn answered(&self, code: &str, answers: &[&str], runs: usize) -> anyhow::Result<Sample> {
        let javascript = format!("(async () => {{\n{code}\n}})()");
        Sample::cpu(runs, || {
            let mut vm = self.sandbox.new_vm(&self.config, Counter(0))?;
            let mut rest = vm.start(&self.config, &ProgramNames::default(), &javascript, NEVER_INTERRUPT);
            for (call, answer) in (0..).zip(answers) {
                ensure!(rest == Ok(IdleState::Pending), "{rest:?}");
                rest = vm.settle(call, AnswerKind::Json, answer, NEVER_INTERRUPT);
            }
            ensure!(rest == Ok(IdleState::Fulfilled), "{rest:?}");
            vm.finish(NEVER_INTERRUPT).map(drop).map_err(|stop| anyhow!("{stop:?}"))
        })
    }

    /// Leaves `count` different programs paused in memory.
    pub(crate) fn paused_programs(&self, count: usize) -> anyhow::Result<Stepper> {
        let stepper = Stepper::new(WarmPrograms { count_max: count as u32, bytes_max: usize::MAX })?;
        for i in 0..count {
            let mut request = self.request(work::TWO_TOOLS);
            request.program.seed = format!("{i}");
            let step = stepper.step(&request, NEVER_INTERRUPT)?;
            ensure!(matches!(step.outcome, Outcome::Paused { .. }), "{step:?}");
        }
        Ok(stepper)
    }

    /// Brings paused programs back after nobody has used them for a while, and replays them. Also what is kept of one
    /// meanwhile, in bytes.
    pub(crate) fn brought_back(&self, runs: usize) -> anyhow::Result<(Sample, Sample, usize)> {
        let stepper = Stepper::new(WarmPrograms::default())?;
        let request = self.request(work::TWO_TOOLS);
        let mut bytes = 0;
        let mut step = |fuel_min| {
            stepper.step(&request, NEVER_INTERRUPT)?;
            // Shrunk by the second call, if nothing has used it since the first.
            stepper.release_unused_from(fuel_min);
            stepper.release_unused_from(fuel_min);
            bytes = stepper.paused().bytes.max(bytes);
            let start = Instant::now();
            let (_, from) = stepper.step_from(&request, NEVER_INTERRUPT)?;
            let taken = start.elapsed();
            ensure!((from == StepStart::Warm) == (fuel_min == 0), "{from:?}");
            Ok(taken)
        };
        let brought_back = Sample::take(runs, || step(0))?;
        let replayed = Sample::take(runs, || step(u64::MAX))?;
        Ok((brought_back, replayed, bytes))
    }

    fn request(&self, code: &str) -> StepRequest {
        StepRequest::new(Program::new(code), Arc::clone(&self.toolbox))
    }
}

fn chain(stepper: &Stepper, mut request: StepRequest, calls: usize) -> anyhow::Result<()> {
    for call in 0..calls {
        let step = stepper.step(&request, NEVER_INTERRUPT)?;
        let Outcome::Paused { calls } = &step.outcome else { return Err(anyhow!("{step:?}")) };
        ensure!(calls.len() == 1 && calls[0].call.0 as usize == call, "{calls:?}");
        answer_all(&mut request, &step, &["1"]);
    }
    expect(&stepper.step(&request, NEVER_INTERRUPT)?, &calls.to_string())
}

fn answer_all(request: &mut StepRequest, step: &Step, answers: &[&str]) {
    let Outcome::Paused { calls } = &step.outcome else { return };
    for (call, answer) in calls.iter().zip(answers) {
        let answer = JsonText::parse(*answer).map(Answer::Ok);
        if let Some(answer) = answer {
            request.journal.push(JournalEntry::new(
                CallIndex(call.call.0),
                call.tool.clone(),
                Some(&call.args),
                answer,
            ));
        }
    }
}

fn expect(step: &Step, result: &str) -> anyhow::Result<()> {
    match &step.outcome {
        Outcome::Finished { result: Ok(data) } if data.get() == result => Ok(()),
        other => Err(anyhow!("{other:?}")),
    }
}

/// Turning a program into JavaScript.
pub(crate) fn front_end(program: &str, runs: usize) -> anyhow::Result<Sample> {
    Sample::wall(runs, || dacapo_script::prepare(program).map(drop).map_err(|diagnostic| anyhow!("{diagnostic:?}")))
}

/// Compressing what the ids of a program's calls carry.
pub(crate) fn packed_state(program: &str, runs: usize) -> anyhow::Result<Sample> {
    let message = ModelMessage { calls: vec![ModelCall::default()], ..ModelMessage::default() };
    let state = RunState { code: program.to_owned(), model_messages: vec![message], ..RunState::default() };
    Sample::wall(runs, || {
        std::hint::black_box(PackedState::of(&state));
        Ok(())
    })
}
