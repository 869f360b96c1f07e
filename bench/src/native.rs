//! The same work in native QuickJS: no sandbox, no metering, calls answered through promises kept in a list.

use anyhow::ensure;
use rquickjs::{Context, Runtime};

use crate::sample::Sample;
use crate::work;

/// Tool calls as a program in native QuickJS would get them.
const TOOLS: &str = "globalThis.calls = []; globalThis.weather = (args) => { const json = JSON.stringify(args); \
    return new Promise((resolve) => { calls.push({ json, resolve }) }) }; \
    globalThis.settle = (call, json) => calls[call].resolve(JSON.parse(json));";

struct Native {
    runtime: Runtime,
    context: Context,
}

impl Native {
    fn new() -> anyhow::Result<Native> {
        let runtime = Runtime::new()?;
        let context = Context::full(&runtime)?;
        Ok(Native { runtime, context })
    }

    fn start(&self, code: &str) -> anyhow::Result<()> {
        let wrapped =
            format!("(async () => {{\n{code}\n}})().then((data) => {{ globalThis.result = JSON.stringify(data) }})");
        self.context.with(|ctx| -> rquickjs::Result<()> {
            ctx.eval::<(), _>(TOOLS)?;
            ctx.eval::<rquickjs::Value<'_>, _>(wrapped)?;
            Ok(())
        })?;
        self.drain()
    }

    fn settle(&self, call: usize, json: &str) -> anyhow::Result<()> {
        self.context.with(|ctx| -> rquickjs::Result<()> {
            let settle: rquickjs::Function<'_> = ctx.globals().get("settle")?;
            settle.call((call as u32, json))
        })?;
        self.drain()
    }

    fn drain(&self) -> anyhow::Result<()> {
        while self.runtime.is_job_pending() {
            ensure!(self.runtime.execute_pending_job().is_ok(), "a job failed");
        }
        Ok(())
    }

    fn result(&self) -> anyhow::Result<String> {
        Ok(self.context.with(|ctx| ctx.globals().get("result"))?)
    }
}

pub(crate) fn new_vm(runs: usize) -> anyhow::Result<Sample> {
    Sample::wall(runs, || {
        drop(Native::new()?);
        Ok(())
    })
}

pub(crate) fn two_tools(runs: usize) -> anyhow::Result<Sample> {
    Sample::wall(runs, || {
        let native = Native::new()?;
        native.start(work::TWO_TOOLS)?;
        for (call, answer) in work::TWO_TOOLS_ANSWERS.iter().enumerate() {
            native.settle(call, answer)?;
        }
        ensure!(native.result()? == work::TWO_TOOLS_RESULT);
        Ok(())
    })
}

pub(crate) fn chain(runs: usize) -> anyhow::Result<Sample> {
    Sample::cpu(runs, || {
        let native = Native::new()?;
        native.start(work::CHAIN)?;
        for call in 0..work::CHAIN_CALLS {
            native.settle(call, "1")?;
        }
        ensure!(native.result()? == work::CHAIN_CALLS.to_string());
        Ok(())
    })
}

/// A program whose calls are answered one after another.
pub(crate) fn answered(code: &str, answers: &[&str], runs: usize) -> anyhow::Result<Sample> {
    Sample::cpu(runs, || {
        let native = Native::new()?;
        native.start(code)?;
        for (call, answer) in answers.iter().enumerate() {
            native.settle(call, answer)?;
        }
        ensure!(!native.result()?.is_empty());
        Ok(())
    })
}
