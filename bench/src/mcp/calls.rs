//! A hundred calls: by a program, beside the SDK.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use dacapo_mcp::{Fleet, FleetOptions, ServerPhase, ServersFile};
use dacapo_replay::Answer;
use dacapo_runner::{Approval, CancellationToken, Policy, RunLimits, RunProgress, Runner, ToolCall, ToolHost};
use futures_util::future::try_join_all;
use serde_json::{Map, Value, json};

use super::sdk::Client;
use super::{Command, file};
use crate::sample::Sample;

const CALLS: u32 = 100;
const READY: Duration = Duration::from_secs(30);
/// What a tool takes that does something.
const AFTER_MS: u64 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Together,
    OneByOne,
}

/// One line of the table.
struct Row {
    name: &'static str,
    order: Order,
    after_ms: Option<u64>,
    /// As by default, if `None`.
    at_a_time: Option<usize>,
    target: &'static str,
}

pub(super) async fn run(runs: usize) -> anyhow::Result<()> {
    let default = FleetOptions::default().calls_per_server_max;
    println!("{CALLS} calls over stdio to one server: calls per second at p50; ratio of times, program to SDK (rmcp)");
    println!("fleet: our client side without a program");
    println!("calls_per_server is {default} unless said otherwise\n");
    println!("{:44} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7}", "", "SDK", "fleet", "program", "p50", "minima", "target");
    let row = |name, order, after_ms, at_a_time, target| Row { name, order, after_ms, at_a_time, target };
    let rows = [
        row("echo, in parallel", Order::Together, None, None, "≤ 1.3"),
        row("echo, in parallel, 16 at a time", Order::Together, None, Some(16), ""),
        row("echo after 10 ms, in parallel", Order::Together, Some(AFTER_MS), None, "≤ 1.3"),
        row("echo after 10 ms, in parallel, 16 at a time", Order::Together, Some(AFTER_MS), Some(16), ""),
        row("echo, one after the other", Order::OneByOne, None, None, ""),
    ];
    let echo = Command::echo(0, 1, 0)?;
    for row in rows {
        row.measure(&echo, runs).await?;
    }
    let rows = [
        row("npm everything's echo, in parallel", Order::Together, None, None, "≤ 1.3"),
        row("npm everything's echo, one after the other", Order::OneByOne, None, None, ""),
    ];
    match Command::npm("server-everything", &["stdio"]) {
        Some(everything) => {
            for row in rows {
                row.measure(&everything, runs).await?;
            }
        }
        None => println!("skipped: npm everything is not installed; scripts/test-tools does it"),
    }
    Ok(())
}

impl Row {
    async fn measure(&self, command: &Command, runs: usize) -> anyhow::Result<()> {
        let mut options = FleetOptions::default();
        options.calls_per_server_max = self.at_a_time.unwrap_or(options.calls_per_server_max);
        let servers = ServersFile::parse(&file(std::slice::from_ref(command)), &std::env::vars().collect())?;
        let fleet = Fleet::start(servers, options);
        fleet.settled(READY).await;
        ensure!(fleet.states()[0].phase == ServerPhase::Ready, "the server is not ready: {:?}", fleet.states());
        let runner = Runner::new(Policy::default(), RunLimits::default())?;
        let client = Client::start(command).await?;
        let program = self.program();
        let (mut direct, mut fleet_alone, mut ours) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..=runs {
            let directly = timed(self.calls(async |args| call_by_sdk(&client, args).await)).await?;
            let without = timed(self.calls(async |args| call_by_fleet(&fleet, args).await)).await?;
            let with = timed(run_program(&runner, &fleet, &program)).await?;
            // The first one warms up.
            if number > 0 {
                direct.push(directly);
                fleet_alone.push(without);
                ours.push(with);
            }
        }
        fleet.shutdown().await;
        client.end().await?;
        let [direct, fleet_alone, ours] = [direct, fleet_alone, ours].map(Sample::of);
        let per_second = |sample: &Sample| f64::from(CALLS) * 1e6 / sample.quantile(50);
        println!(
            "{:44} {:>9.0} {:>9.0} {:>9.0} {:>9.2} {:>9.2} {:>7}",
            self.name,
            per_second(&direct),
            per_second(&fleet_alone),
            per_second(&ours),
            ours.quantile(50) / direct.quantile(50),
            ours.min() / direct.min(),
            self.target
        );
        Ok(())
    }

    /// Makes the calls and looks at what they answer.
    async fn calls(&self, call: impl AsyncFn(Map<String, Value>) -> anyhow::Result<String>) -> anyhow::Result<()> {
        let call = async |number: u32| {
            let mut args = Map::from_iter([("message".to_owned(), json!(format!("call {number}")))]);
            args.extend(self.after_ms.map(|after| ("after_ms".to_owned(), json!(after))));
            let text = call(args).await?;
            ensure!(text == format!("Echo: call {number}"), "echo said {text}");
            Ok(())
        };
        match self.order {
            Order::Together => try_join_all((0..CALLS).map(call)).await.map(drop),
            Order::OneByOne => {
                for number in 0..CALLS {
                    call(number).await?;
                }
                Ok(())
            }
        }
    }

    /// The same in a program. It returns how many answers were right.
    fn program(&self) -> String {
        let after = self.after_ms.map_or_else(String::new, |after| format!(", after_ms: {after}"));
        let call = format!("s0.echo({{ message: `call ${{i}}`{after} }})");
        let right = "=== `Echo: call ${i}`";
        match self.order {
            Order::Together => format!(
                "const said = await Promise.all(Array.from({{ length: {CALLS} }}, (_, i) => {call}));\n\
                 return said.filter((text, i) => text {right}).length"
            ),
            Order::OneByOne => format!(
                "let right = 0;\nfor (let i = 0; i < {CALLS}; i++) if (await {call} {right}) right++;\nreturn right"
            ),
        }
    }
}

async fn timed(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    work.await?;
    Ok(begun.elapsed())
}

async fn call_by_sdk(client: &Client, args: Map<String, Value>) -> anyhow::Result<String> {
    let result = client.call("echo", args).await?;
    let text = result.content.first().and_then(|content| content.as_text()).context("no text")?;
    Ok(text.text.clone())
}

async fn call_by_fleet(fleet: &Fleet, args: Map<String, Value>) -> anyhow::Result<String> {
    let call = ToolCall {
        server: "s0".to_owned(),
        tool: "echo".to_owned(),
        args,
        idempotency_key: "bench".to_owned(),
        approved: None,
    };
    match fleet.call(&call, &CancellationToken::new()).await?.answer {
        Answer::Ok(text) => Ok(serde_json::from_str(text.as_str())?),
        Answer::Error { message, .. } => bail!("echo failed: {message}"),
    }
}

async fn run_program(runner: &Runner, fleet: &Fleet, program: &str) -> anyhow::Result<()> {
    let on_progress = |_: RunProgress<'_>| {};
    let done = runner.run(program, fleet, &Approval::Unavailable, &on_progress, &CancellationToken::new()).await;
    match done.result {
        Ok(data) => {
            let right: Value = serde_json::from_str(data.get())?;
            ensure!(right == CALLS, "{right} of {CALLS} answers are right");
            Ok(())
        }
        Err(fault) => bail!("the program failed: {}", serde_json::to_string(&fault)?),
    }
}
