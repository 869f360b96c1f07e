//! `dacapo search` over 50,000 tools, as a process: from the file to the answer.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::ensure;
use serde_json::Value;

/// Of these all that are there.
const CATALOGUES: [&str; 3] = [
    "crates/catalog/tests/corpus/search/catalog.jsonl",
    "../shared/data/search/bfcl-live/catalog.jsonl",
    "../shared/data/search/metatool/catalog.jsonl",
];
const TOOLS: usize = 50_000;
const RUNS: usize = 10;
const SECONDS_MAX: f64 = 1.0;
const PEAK_MAX_MIB: u64 = 200;

pub(crate) fn run() -> anyhow::Result<()> {
    let dacapo = std::env::current_exe()?.with_file_name("dacapo");
    ensure!(dacapo.exists(), "{} is not there; build it first: cargo build --release", dacapo.display());
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("tools.json");
    let text = Value::Array(tools()?).to_string();
    fs::write(&file, &text)?;
    let mut runs = (0..RUNS).map(|_| search(&dacapo, &file)).collect::<anyhow::Result<Vec<_>>>()?;
    runs.sort_unstable();
    let peak_mib = runs.iter().map(|(_, peak_kib)| peak_kib / 1_024).max().unwrap_or_default();
    println!("`dacapo search` as a process, {TOOLS} tools, {} MiB of JSON\n", text.len() >> 20);
    println!("{:24} {:>12} {:>12}", "", "measured", "to reach");
    println!("{:24} {:>12.3} {:>12}", "seconds, best", runs[0].0.as_secs_f64(), format!("≤ {SECONDS_MAX}"));
    println!("{:24} {:>12.3} {:>12}", "seconds, median", runs[RUNS / 2].0.as_secs_f64(), "");
    println!("{:24} {peak_mib:>12} {:>12}", "peak of memory, MiB", format!("≤ {PEAK_MAX_MIB}"));
    Ok(())
}

/// The tools of the catalogues again and again, each time on another server.
fn tools() -> anyhow::Result<Vec<Value>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources: Vec<Value> = Vec::new();
    let mut names = BTreeSet::new();
    for path in CATALOGUES.iter().map(|path| root.join(path)).filter(|path| path.exists()) {
        for line in fs::read_to_string(path)?.lines() {
            let tool: Value = serde_json::from_str(line)?;
            if names.insert(tool["name"].to_string()) {
                sources.push(tool);
            }
        }
    }
    ensure!(!sources.is_empty(), "there are no tools to measure with");
    let on_server = |number: usize| {
        let mut tool = sources[number % sources.len()].clone();
        tool["server"] = format!("server{}", number / sources.len()).into();
        tool
    };
    Ok((0..TOOLS).map(on_server).collect())
}

/// How long one process takes, and the most memory that it held, in KiB.
fn search(dacapo: &Path, tools: &Path) -> anyhow::Result<(Duration, u64)> {
    let mut command = Command::new(dacapo);
    command.args(["search", "send an email", "--tools"]).arg(tools).stdout(Stdio::null());
    let start = Instant::now();
    let mut process = command.spawn()?;
    let status = format!("/proc/{}/status", process.id());
    let mut peak_kib = 0;
    loop {
        // The kernel remembers the most, so that a look now and then is enough.
        let peak = fs::read_to_string(&status).ok().and_then(|status| peak_of(&status));
        peak_kib = peak_kib.max(peak.unwrap_or_default());
        if let Some(ended) = process.try_wait()? {
            ensure!(ended.success(), "dacapo search failed: {ended}");
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    let took = start.elapsed();
    ensure!(peak_kib > 0, "the kernel does not tell the memory of a process");
    Ok((took, peak_kib))
}

fn peak_of(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.split_whitespace().next()?.parse().ok()
}
