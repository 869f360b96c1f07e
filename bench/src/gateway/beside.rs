//! Two builds of the gateway beside each other: the same conversations through each in turns, so that whatever else the
//! machine does falls on both alike. Each gateway is a process of its own, as operators run it.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dacapo_wire::Wire;
use tempfile::TempDir;

use super::client::Connection;
use super::client_conversation::ClientConversation;
use super::conversation::{Conversation, KINDS, Kind, TOOLS};
use super::cost::{self, Cost, Delivery, Way};
use super::load;
use super::played::{Played, play};
use super::servers::Model;
use crate::sample::{Sample, Threads};

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Builds take turns in carrying the load.
const SLICES: u32 = 6;

/// Compares the `dacapo` beside this program with the one at `other`.
pub(crate) fn run(other: &str, quick: bool) -> anyhow::Result<()> {
    let this = std::env::current_exe()?.with_file_name("dacapo");
    let model = Model::start()?;
    let builds = [Build::start(Path::new(other), &model)?, Build::start(&this, &model)?];
    println!("before: {}, after: {}", builds[0].version, builds[1].version);
    starts([Path::new(other), &this], if quick { 50 } else { 200 })?;
    cpu(&builds, if quick { 10 } else { 40 })?;
    latency(&builds, &model, if quick { 100 } else { 1_000 })?;
    throughput(&builds, Duration::from_secs(if quick { 6 } else { 30 }))
}

/// A small program for `dacapo step`.
const STEP: &str = r#"{"program": {"code": "const n: number = await f({}); return n + 1"}, "tools": [{"name": "f"}]}"#;

fn starts(builds: [&Path; 2], times: usize) -> anyhow::Result<()> {
    let mut taken: [Vec<Duration>; 2] = Default::default();
    for number in 0..=times {
        for (build, taken) in builds.iter().zip(&mut taken) {
            let started = Instant::now();
            let mut child = Command::new(build).arg("step").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            child.stdin.take().context("it has a stdin")?.write_all(STEP.as_bytes())?;
            let output = child.wait_with_output()?;
            ensure!(output.status.success(), "`{} step` failed", build.display());
            // The first one warms up.
            if number > 0 {
                taken.push(started.elapsed());
            }
        }
    }
    let [before, after] = taken.map(Sample::of);
    let ratio = after.quantile(50) / before.quantile(50);
    println!(
        "\n`dacapo step` of a small program, from the start of the process to its end, in µs: min / p50 / p99; ratio of p50"
    );
    println!("{:30} {:>28} {:>28} {ratio:>9.2}", "", before.to_string(), after.to_string());
    println!("{:30} {:>28} {:>28}", "target", "", "≤ 8000");
    Ok(())
}

fn cpu(builds: &[Build; 2], batches: usize) -> anyhow::Result<()> {
    println!("\nCPU of the gateway per request in µs, one request at a time, least of {batches} batches");
    println!("{:30} {:>9} {:>9} {:>9} {:>9} {:>9}", "", "program", "middle", "result", "mean", "mode off");
    let ways = builds.each_ref().map(|build| {
        let mut ways = vec![build.cold.way(Wire::Chat, "chat, cold")];
        ways.extend(Wire::ALL.into_iter().map(|wire| build.warm.way(wire, wire.name())));
        ways.extend(cost::larger(|name| build.warm.way(Wire::Chat, name)));
        ways
    });
    for pair in ways[0].iter().zip(&ways[1]).map(|(before, after)| [before, after]) {
        let mut least: [Option<Cost>; 2] = [None, None];
        for number in 0..=batches {
            for (way, least) in pair.iter().zip(&mut least) {
                let cost = Cost::of_batch(way)?;
                // The first one warms up.
                if number > 0 {
                    *least = Some(cost.least(least.take()));
                }
            }
        }
        let [Some(before), Some(after)] = least else { continue };
        let [before, after] = [before.columns(), after.columns()];
        row(&format!("{}, before", pair[0].name), before, 0);
        row(&format!("{}, after", pair[0].name), after, 0);
        row("  after / before", std::array::from_fn(|column| after[column] / before[column]), 2);
    }
    Ok(())
}

fn row(name: &str, columns: [f64; 5], decimals: usize) {
    let columns = columns.map(|column| format!(" {column:>9.decimals$}"));
    println!("{name:30}{}", columns.concat());
}

fn latency(builds: &[Build; 2], model: &Model, conversations: usize) -> anyhow::Result<()> {
    let tools = serde_json::from_str(TOOLS)?;
    let mut alone = Connection::open(model.address)?;
    for (delivery, how) in [(Delivery::Whole, ""), (Delivery::Streamed, ", streamed")] {
        for (name, of) in WAYS {
            let mut connections =
                [Connection::open(of(&builds[0]).address)?, Connection::open(of(&builds[1]).address)?];
            let mut played: [Vec<Played>; 2] = Default::default();
            for number in 0..=conversations {
                for (connection, played) in connections.iter_mut().zip(&mut played) {
                    let talk = ClientConversation::declared(Wire::Chat, &tools);
                    let one = play(connection, (&mut alone, Wire::Chat), talk, delivery)?;
                    // The first one warms up.
                    played.extend(one.into_iter().filter(|_| number > 0));
                }
            }
            println!(
                "\n{name}{how}, what a client waits in µs, one conversation at a time: min / p50 / p99; ratio of p50; added: p50 \
                 less that of the model alone"
            );
            for (kind, name) in KINDS {
                let [before, after] = played.each_ref().map(|played| Waits::of(played, kind));
                let ratio = after.taken.quantile(50) / before.taken.quantile(50);
                let (taken, then) = (after.taken.to_string(), before.taken.to_string());
                println!(
                    "{name:30} {then:>28} {taken:>28} {ratio:>9.2}  + {:.0} → {:.0}",
                    before.added(),
                    after.added()
                );
            }
        }
    }
    Ok(())
}

/// What clients waited for one kind of answer, with the gateway and without.
struct Waits {
    taken: Sample,
    alone: Sample,
}

impl Waits {
    fn of(played: &[Played], kind: Kind) -> Waits {
        let of_kind = || played.iter().filter(|played| played.kind == kind);
        Waits {
            taken: Sample::of(of_kind().map(|played| played.taken).collect()),
            alone: Sample::of(of_kind().map(|played| played.alone).collect()),
        }
    }

    fn added(&self) -> f64 {
        self.taken.quantile(50) - self.alone.quantile(50)
    }
}

fn throughput(builds: &[Build; 2], time: Duration) -> anyhow::Result<()> {
    println!("\n{} conversations at a time, requests per second: before, after, ratio", super::CONCURRENT);
    let play = |connection: &mut Connection| Conversation::play(connection, "text").map(drop);
    for (name, of) in WAYS {
        let mut most = [0.0_f64; 2];
        for _ in 0..SLICES {
            for (build, most) in builds.iter().zip(&mut most) {
                *most = most.max(load(of(build).address, time / SLICES, play)?.per_second);
            }
        }
        println!("{name:30} {:>9.0} {:>9.0} {:>9.2}", most[0], most[1], most[1] / most[0]);
    }
    Ok(())
}

/// One build, once with room for paused programs and once without.
struct Build {
    version: String,
    warm: Process,
    cold: Process,
}

type ProcessOf = fn(&Build) -> &Process;

const WAYS: [(&str, ProcessOf); 2] = [("warm", |build| &build.warm), ("cold", |build| &build.cold)];

impl Build {
    fn start(dacapo: &Path, model: &Model) -> anyhow::Result<Build> {
        let output = Command::new(dacapo).arg("--version").output().with_context(|| {
            format!("{} cannot be started; `cargo build --release -p dacapo` makes it", dacapo.display())
        })?;
        Ok(Build {
            version: String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            warm: Process::start(dacapo, model, "")?,
            cold: Process::start(dacapo, model, "[warm]\nprograms_max = 0\n")?,
        })
    }
}

/// A gateway that runs until it is dropped.
struct Process {
    child: Child,
    address: SocketAddr,
    _dir: TempDir,
}

impl Process {
    fn start(dacapo: &Path, model: &Model, more: &str) -> anyhow::Result<Process> {
        let dir = tempfile::tempdir()?;
        let config = dir.path().join("dacapo.toml");
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let model = model.address;
        std::fs::write(
            &config,
            format!(
                "listen = \"{address}\"\nsecret = \"a secret for this run only\"\nlog = \"error\"\n{more}\
                 [[upstream]]\nname = \"bench\"\nmodels = [\"*\"]\nwires = [\"chat\", \"responses\", \"messages\"]\n\
                 base_url = \"http://{model}/v1\"\n"
            ),
        )?;
        let mut command = Command::new(dacapo);
        command.args(["serve", "--config"]).arg(&config).stdout(Stdio::null());
        let mut process = Process { child: command.spawn()?, address, _dir: dir };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(process.child.try_wait()?.is_none(), "{} ended at once", dacapo.display());
            ensure!(begun.elapsed() < START_TIMEOUT, "{} does not listen", dacapo.display());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(process)
    }

    fn way(&self, wire: Wire, name: &str) -> Way {
        Way::new(name, self.address, Threads::of_process(self.child.id()), wire)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().unwrap_or_default();
        drop(self.child.wait());
    }
}
