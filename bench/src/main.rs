//! Measures dacapo beside what else there is, both in one run:
//!
//! - `cargo run --release -p dacapo-bench`: programs, beside native QuickJS; and the gateway and MCP, as below
//! - `cargo run --release -p dacapo-bench -- gateway`: turns through the gateway, beside the same requests without it
//! - `cargo run --release -p dacapo-bench -- beside PATH`: the gateway as built now, beside another build of `dacapo`
//! - `cargo run --release -p dacapo-bench -- mcp`: programs over MCP servers, beside the MCP SDK alone
//! - `cargo run --release -p dacapo-bench --features shares -- shares target/release/build/dacapo-sandbox-*/out`: how much of
//!   a program's CPU is the engine, WebAssembly and fuel counting
//! - `cargo run --release -p dacapo-bench -- soak --minutes 10`: replicas that are killed under honest and hostile clients
//! - `cargo run --release -p dacapo-bench -- streams`: memory of 2,000 conversations that stream at the same moment
//! - `cargo run --release -p dacapo-bench -- tools`: time and memory of `dacapo search` with 50,000 tools
//! - `cargo run --release -p dacapo-bench -- types`: schemas as TypeScript, beside npm packages
//!
//! Programs and the gateway are compared with `bench/baseline.json`, and what got worse is printed; `--update` writes what
//! was measured into it. The machine is shared and noisy, so compare the minima. CPU-bound rows are thread CPU
//! time, the others wall time.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]
#![expect(clippy::cast_precision_loss, reason = "measurements are rounded anyway")]

mod baseline;
mod gateway;
mod mcp;
mod native;
mod ours;
mod sample;
#[cfg(feature = "shares")]
mod shares;
mod soak;
mod streams;
mod tools;
mod types;

use std::process::ExitCode;

use baseline::Measured;
use sample::{Sample, memory_kb};

/// As in the command `dacapo`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What both sides run. Each returns its result, which is compared every time.
pub(crate) mod work {
    /// Two parallel calls and some arithmetic, 25 lines.
    pub(crate) const TWO_TOOLS: &str = include_str!("../programs/two_tools.js");
    pub(crate) const TWO_TOOLS_ANSWERS: [&str; 2] =
        [r#"{"temps":[11,12,13,9,8,14,15]}"#, r#"{"temps":[14,15,13,12,11,17,18]}"#];
    pub(crate) const TWO_TOOLS_RESULT: &str =
        r#"{"warmest":"Paris","text":"Paris: 14.29 (11..18); Berlin: 11.71 (8..15)","n":2}"#;

    pub(crate) const CHAIN_CALLS: usize = 1_000;
    pub(crate) const CHAIN: &str =
        "let sum = 0; for (let i = 0; i < 1000; i++) sum += await weather({ i }); return sum";

    /// Filters and sorts what a tool answered.
    pub(crate) const BIG_ANSWER: &str = include_str!("../programs/big_answer.js");

    /// About 1 MB of JSON.
    pub(crate) fn big_answer() -> String {
        let row = |i: u32| {
            let amount = i.wrapping_mul(2_654_435_761) % 100_000;
            format!(
                r#"{{"id":{i},"name":"customer {i}","amount":{amount},"tags":["t{}","u{}"],"active":{}}}"#,
                i % 7,
                i % 11,
                i.is_multiple_of(3)
            )
        };
        format!("[{}]", (0..12_000).map(row).collect::<Vec<_>>().join(","))
    }

    /// Sorts with a function that compares.
    pub(crate) const SORTING: &str = "await weather({});
        const row = (_, i) => ({ id: i, key: (i * 7919) % 10007 });
        const rows = Array.from({ length: 20000 }, row);
        rows.sort((a, b) => a.key - b.key || b.id - a.id);
        return rows[0].id";

    /// Puts about 1 MB of text together, and takes it apart.
    pub(crate) const TEXT: &str = "await weather({});
        let text = '';
        for (let i = 0; i < 30000; i++) text += `line ${i}: some words in it\\n`;
        return text.split('\\n').map((line) => line.slice(5).toUpperCase()).join('; ').length";

    pub(crate) const FIFTY_LINES: &str = include_str!("../programs/fifty_lines.ts");

    /// What the model writes in the conversations through the gateway.
    pub(crate) const FIVE_ROUNDS: &str = include_str!("../programs/five_rounds.ts");
}

const USAGE: &str =
    "usage: dacapo-bench [--quick] [--update]           programs, beside native QuickJS; and gateway and mcp
       dacapo-bench gateway [--quick] [--update]   turns through the gateway, beside the same requests without it
       dacapo-bench beside PATH [--quick]   turns through this build of `dacapo`, beside the build at PATH
       dacapo-bench cost NAME [--quick]   one row of its table of CPU per request, to be profiled
       dacapo-bench latency [--quick]       what clients wait for their answers, to be profiled
       dacapo-bench mcp [--quick]       programs over MCP servers, beside the MCP SDK alone
       dacapo-bench shares DIR [--quick]   CPU of the engine, WebAssembly and fuel counting, for the guest built in DIR
       dacapo-bench soak --minutes N    honest and hostile clients, over replicas that are killed
       dacapo-bench soak --conversations N   honest clients alone
       dacapo-bench streams             memory of 2,000 conversations that stream at the same moment
       dacapo-bench tools               time and memory of `dacapo search` with 50,000 tools
       dacapo-bench types               schemas as TypeScript, beside npm packages";

#[expect(clippy::print_stderr, reason = "wrong arguments are told on standard error")]
fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    let (flags, arguments): (Vec<String>, Vec<String>) =
        arguments.into_iter().partition(|argument| matches!(argument.as_str(), "--quick" | "--update"));
    let quick = flags.iter().any(|flag| flag == "--quick");
    let mut measured = Measured::default();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => all(quick, &mut measured)?,
        ["gateway"] => gateway::run(quick, &mut measured)?,
        ["beside", other] => return gateway::beside(other, quick).map(|()| ExitCode::SUCCESS),
        // Only for processes that this one starts.
        ["serve", model] => gateway::serve_alone(model)?,
        ["cost", name] => gateway::cost_of(name, quick, &mut measured)?,
        ["latency"] => return gateway::latency_alone(quick).map(|()| ExitCode::SUCCESS),
        ["mcp"] => return mcp::run(quick).map(|()| ExitCode::SUCCESS),
        [mcp::ECHO, number, tools, start_ms] => {
            return mcp::echo(number.parse()?, tools.parse()?, start_ms.parse()?).map(|()| ExitCode::SUCCESS);
        }
        [mcp::SERVE, file, cache] => return mcp::serve(file, cache).map(|()| ExitCode::SUCCESS),
        #[cfg(feature = "shares")]
        ["shares", .., folder] => return shares::run(folder.as_ref(), quick).map(|()| ExitCode::SUCCESS),
        ["soak", "--minutes", minutes] => return soak::run(minutes.parse()?),
        ["soak", "--conversations", count] => return soak::conversations(count.parse()?),
        ["streams"] => return streams::run(),
        ["tools"] => return tools::run().map(|()| ExitCode::SUCCESS),
        ["types"] => return types::run().map(|()| ExitCode::SUCCESS),
        _ => {
            eprintln!("dacapo-bench does not know `{}`\n{USAGE}", arguments.join(" "));
            return Ok(ExitCode::from(2));
        }
    }
    measured.compare()?;
    if flags.iter().any(|flag| flag == "--update") {
        measured.update()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn all(quick: bool, measured: &mut Measured) -> anyhow::Result<()> {
    programs(quick, measured)?;
    println!();
    gateway::run(quick, measured)?;
    println!();
    mcp::run(quick)
}

fn programs(quick: bool, measured: &mut Measured) -> anyhow::Result<()> {
    let runs = if quick { 50 } else { 2_000 };
    println!("microseconds: min / p50 / p99; ratio of minima, dacapo to native QuickJS (rquickjs 0.14)\n");
    println!("{:44} {:>28} {:>28} {:>7}", "", "dacapo", "native", "ratio");

    let ours = ours::Bench::new()?;
    row(measured, "new VM, and its end", &ours.new_vm(runs)?, Some(&native::new_vm(runs)?));
    row(
        measured,
        "two-tool run, JavaScript, new VM to result",
        &ours.two_tools_in_sandbox(runs)?,
        Some(&native::two_tools(runs)?),
    );
    row(measured, "two-tool run, a cold step with TypeScript", &ours.two_tools_cold(runs)?, None);
    row(measured, "two-tool run, warm resume with both answers", &ours.two_tools_resumed(runs)?, None);
    row(measured, "TypeScript front end, 50 lines", &ours::front_end(work::FIFTY_LINES, runs)?, None);
    // Lines that end like this are printed.
    let printed = ours::front_end(&format!("{}\r", work::FIVE_ROUNDS), runs)?;
    let blanked = ours::front_end(work::FIVE_ROUNDS, runs)?;
    row(measured, "TypeScript front end, 25 lines that are printed", &printed, None);
    row(measured, "TypeScript front end, 25 lines, blanked out", &blanked, None);
    measured.add("types blanked out, to printed", blanked.min() / printed.min());
    row(
        measured,
        "state of a program compressed for its ids, 25 lines",
        &ours::packed_state(work::FIVE_ROUNDS, runs)?,
        None,
    );
    let chains = if quick { 1 } else { 5 };
    let (warm, cold) = (ours.chain_warm(chains)?, ours.chain_cold(1)?);
    let native_chain = native::chain(chains)?;
    row(measured, "1,000 sequential calls, warm (CPU)", &warm, Some(&native_chain));
    let in_sandbox = ours.answered(work::CHAIN, &["1"; work::CHAIN_CALLS], chains)?;
    row(measured, "1,000 sequential calls, the sandbox's part (CPU)", &in_sandbox, Some(&native_chain));
    row(measured, "1,000 sequential calls, cold every round (CPU)", &cold, None);
    let big_answer = work::big_answer();
    for (name, code, answer) in [
        ("1 MB answer: parse, filter, sort (CPU)", work::BIG_ANSWER, big_answer.as_str()),
        ("sorting 20,000 objects (CPU)", work::SORTING, "1"),
        ("1 MB of text, put together and apart (CPU)", work::TEXT, "1"),
    ] {
        let runs = runs.min(30);
        let answers = &[answer];
        row(measured, name, &ours.answered(code, answers, runs)?, Some(&native::answered(code, answers, runs)?));
    }

    println!("\ncold chain / warm chain: {:.1} ×", cold.min() / warm.min());
    measured.add("cold chain to warm chain", cold.min() / warm.min());
    let linear = ours.chain_linearity()?;
    println!("warm chain, CPU per call at 2,000 calls / at 500 calls: {linear:.2}");
    let before = memory_kb();
    let paused = ours.paused_programs(1_000)?;
    let each = memory_kb().saturating_sub(before) / 1_000;
    println!("1,000 paused programs: {each} KB of private memory each");
    measured.add("paused program, KB", each as f64);
    drop(paused);
    let (brought_back, replayed, bytes) = ours.brought_back(runs.min(200))?;
    println!(
        "one that nobody resumes for long: {} KB; brought back in {brought_back} µs, replayed in {replayed} µs",
        bytes >> 10
    );
    measured.add("paused program that nobody resumes, KB", (bytes >> 10) as f64);
    measured.add("paused program brought back, µs", brought_back.min());
    Ok(())
}

fn row(measured: &mut Measured, name: &str, ours: &Sample, native: Option<&Sample>) {
    measured.add(&format!("{name}, µs"), ours.min());
    if let Some(native) = native {
        measured.add(&format!("{name}, to native"), ours.min() / native.min());
    }
    let (beside, ratio) = native
        .map_or_else(Default::default, |native| (native.to_string(), format!("{:.2}", ours.min() / native.min())));
    println!("{name:44} {:>28} {beside:>28} {ratio:>7}", ours.to_string());
}
