//! Turns through the gateway, beside the same requests sent to the model directly and through the gateway with code
//! mode off. All in one process, over HTTP on loopback: the client and the model take their share of the machine too.

mod beside;
mod client;
#[path = "../../crates/gateway/tests/gateway/client_conversation.rs"]
#[expect(clippy::unwrap_used, reason = "a client that is answered wrongly cannot go on")]
pub(crate) mod client_conversation;
mod conversation;
mod cost;
mod first_token;
mod observing;
mod pairs;
mod played;
mod servers;
mod streamed;

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
pub(crate) use beside::run as beside;
use client::Connection;
use conversation::{Conversation, KINDS, Kind, REQUESTS, Sent};
use cpu_time::{ProcessTime, ThreadTime};
pub(crate) use servers::serve_alone;
use servers::{LoneGateway, Servers};

use crate::baseline::Measured;
use crate::sample::{Sample, memory_kb};

/// Makes ids that are none of ours out of those that are, of the same size.
const OTHERS_IDS: (&str, &str) = ("dc1_", "xx1_");
const OFF: &str = "x-dacapo-mode: off\r\n";
const CONCURRENT: usize = 64;
const PAUSED: usize = 1_000;
const REST: Duration = Duration::from_secs(3);
/// A paused conversation has two rounds behind it.
const REQUESTS_TO_PAUSE: usize = 3;

pub(crate) fn run(quick: bool, measured: &mut Measured) -> anyhow::Result<()> {
    let servers = Servers::start()?;
    check(&servers)?;
    paused(&servers, measured)?;
    cost::run(&servers, None, if quick { 10 } else { 40 }, measured)?;
    first_token::run(&servers, if quick { 20 } else { 100 }, measured)?;
    latencies(&servers, quick)?;
    pairs::run(&servers, if quick { 40 } else { 400 })?;
    throughput(&servers, Duration::from_secs(if quick { 2 } else { 10 }))?;
    observing::run(&servers, if quick { 60 } else { 2_000 }, Duration::from_secs(if quick { 4 } else { 20 }))?;
    flat_memory(&servers, if quick { 10_000 } else { 100_000 })
}

/// Only the CPU of requests, and only of one row of the table, so that a profiler sees nothing else.
pub(crate) fn cost_of(name: &str, quick: bool, measured: &mut Measured) -> anyhow::Result<()> {
    cost::run(&Servers::start()?, Some(name), if quick { 10 } else { 40 }, measured)
}

/// Only what clients wait for their answers.
pub(crate) fn latency_alone(quick: bool) -> anyhow::Result<()> {
    latencies(&Servers::start()?, quick)
}

/// Whole answers, then streamed ones.
fn latencies(servers: &Servers, quick: bool) -> anyhow::Result<()> {
    let conversations = if quick { 60 } else { 2_000 };
    latency(servers, conversations)?;
    streamed::run(servers, conversations)
}

/// Fails before anything is measured, unless what the program returns reaches the model, warm and cold.
fn check(servers: &Servers) -> anyhow::Result<()> {
    for gateway in [servers.gateway, servers.cold] {
        Conversation::play(&mut Connection::open(gateway)?, "echo")?;
    }
    Ok(())
}

/// How one kind of request does in each way.
struct Row {
    name: &'static str,
    kind: Kind,
    direct: Vec<Duration>,
    proxied: Vec<Duration>,
    off: Vec<Duration>,
    warm: Vec<Duration>,
    cold: Vec<Duration>,
}

impl Row {
    fn new(name: &'static str, kind: Kind) -> Row {
        Row { name, kind, direct: Vec::new(), proxied: Vec::new(), off: Vec::new(), warm: Vec::new(), cold: Vec::new() }
    }
}

fn latency(servers: &Servers, conversations: usize) -> anyhow::Result<()> {
    let mut rows = KINDS.map(|(kind, name)| Row::new(name, kind));
    let mut model = Connection::open(servers.model)?;
    let mut warm = Connection::open(servers.gateway)?;
    let mut off = Connection::open(servers.gateway)?;
    let mut cold = Connection::open(servers.cold)?;
    let mut proxy = Connection::open(servers.empty_proxy)?;
    let mut body_bytes = 0;
    for number in 0..=conversations {
        let played = Conversation::play(&mut warm, "text")?;
        let played_cold = Conversation::play(&mut cold, "text")?;
        for (Sent { kind, body, taken }, without) in played.into_iter().zip(played_cold) {
            let body = body.replace(OTHERS_IDS.0, OTHERS_IDS.1);
            let (_, direct) = model.post("", &body)?;
            let (_, proxied) = proxy.post("", &body)?;
            let (_, passed) = off.post(OFF, &body)?;
            body_bytes = body_bytes.max(body.len());
            // The first one warms up.
            let row = rows.iter_mut().find(|row| row.kind == kind && number > 0);
            if let Some(row) = row {
                row.direct.push(direct);
                row.proxied.push(proxied);
                row.off.push(passed);
                row.warm.push(taken);
                row.cold.push(without.taken);
            }
        }
    }
    println!("one conversation at a time, 25 lines, 20 tools, 5 rounds, requests up to {} KB", body_bytes / 1_000);
    println!("microseconds: p50 / p99; added: p50 less that of the model alone; off / on: through the gateway\n");
    println!(
        "{:30} {:>15} {:>15} {:>15} {:>15} {:>15} {:>9} {:>9} {:>9} {:>9}",
        "", "model alone", "empty proxy", "mode off", "on, warm", "on, cold", "warm/off", "+ proxy", "+ warm", "+ cold"
    );
    for row in rows {
        let samples = [row.direct, row.proxied, row.off, row.warm, row.cold];
        let [direct, proxied, off, warm, cold] = samples.map(Sample::of);
        let shown = |sample: &Sample| format!("{:.0} / {:.0}", sample.quantile(50), sample.quantile(99));
        // In the middle no model is asked: all of the time is ours.
        let alone = if row.kind == Kind::Middle { 0.0 } else { direct.quantile(50) };
        println!(
            "{:30} {:>15} {:>15} {:>15} {:>15} {:>15} {:>9.2} {:>9.0} {:>9.0} {:>9.0}",
            row.name,
            shown(&direct),
            shown(&proxied),
            shown(&off),
            shown(&warm),
            shown(&cold),
            warm.quantile(50) / off.quantile(50),
            proxied.quantile(50) - direct.quantile(50),
            warm.quantile(50) - alone,
            cold.quantile(50) - alone,
        );
    }
    println!("{:>144}", "target     ≤ 400     ≤ 700");
    Ok(())
}

/// Requests done by all clients together in some time.
struct Load {
    per_second: f64,
    /// Of the process, less what the clients took.
    cpu_micros: f64,
}

fn throughput(servers: &Servers, time: Duration) -> anyhow::Result<()> {
    let sent = Conversation::play(&mut Connection::open(servers.gateway)?, "text")?;
    let bodies: Vec<String> = sent.iter().map(|sent| sent.body.replace(OTHERS_IDS.0, OTHERS_IDS.1)).collect();
    let resend = |headers: &'static str| {
        let bodies = &bodies;
        move |connection: &mut Connection| bodies.iter().try_for_each(|body| connection.post(headers, body).map(drop))
    };
    let play = |connection: &mut Connection| Conversation::play(connection, "text").map(drop);
    println!("\n{CONCURRENT} conversations at a time: requests per second; CPU per request in µs, clients not counted");
    let direct = load(servers.model, time, resend(""))?;
    let off = load(servers.gateway, time, resend(OFF))?;
    let warm = load(servers.gateway, time, play)?;
    let cold = load(servers.cold, time, play)?;
    for (name, load) in [("model alone", &direct), ("mode off", &off), ("on, warm", &warm), ("on, cold", &cold)] {
        let ratio = load.per_second / off.per_second;
        println!("{name:30} {:>9.0} {:>9.0} {ratio:>9.2} × mode off", load.per_second, load.cpu_micros);
    }
    println!("{:30} {:>9}", "target", "≥ 2000");
    Ok(())
}

fn load(
    server: SocketAddr,
    time: Duration,
    conversation: impl Fn(&mut Connection) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<Load> {
    let done = AtomicUsize::new(0);
    let (start, cpu) = (Instant::now(), ProcessTime::now());
    let client_cpu = Mutex::new(Duration::ZERO);
    in_threads(CONCURRENT, || {
        let cpu = ThreadTime::now();
        let mut connection = Connection::open(server)?;
        while start.elapsed() < time {
            conversation(&mut connection)?;
            done.fetch_add(REQUESTS, Ordering::Relaxed);
        }
        *client_cpu.lock().expect("no client panics") += cpu.elapsed();
        Ok(())
    })?;
    let (taken, cpu) = (start.elapsed(), cpu.elapsed());
    let requests = f64::from(u32::try_from(done.into_inner())?);
    let servers_cpu = cpu.saturating_sub(client_cpu.into_inner()?);
    Ok(Load { per_second: requests / taken.as_secs_f64(), cpu_micros: servers_cpu.as_secs_f64() * 1e6 / requests })
}

fn paused(servers: &Servers, measured: &mut Measured) -> anyhow::Result<()> {
    let gateway = LoneGateway::start(servers.model)?;
    let mut connection = Connection::open(gateway.address)?;
    // What the first conversation loads stays.
    Conversation::play(&mut connection, "text")?;
    let before = gateway.memory_kb();
    let mut conversations: Vec<Conversation> = (0..PAUSED).map(|_| Conversation::new()).collect();
    for conversation in &mut conversations {
        for _ in 0..REQUESTS_TO_PAUSE {
            conversation.next(&mut connection, "text")?;
        }
    }
    let with = gateway.memory_kb();
    for mut conversation in conversations {
        for _ in REQUESTS_TO_PAUSE..REQUESTS {
            conversation.next(&mut connection, "text")?;
        }
    }
    let after = gateway.memory_kb();
    std::thread::sleep(REST);
    let rested = gateway.memory_kb();
    let each = with.saturating_sub(before) / PAUSED as u64;
    println!("\n{PAUSED} paused conversations, private memory: {each} KB each");
    println!(
        "{} MB before, {} MB with them, {} MB when all are finished, {} MB after {} s of rest; target ≤ {} MB",
        before >> 10,
        with >> 10,
        after >> 10,
        rested >> 10,
        REST.as_secs(),
        (before >> 10) + 64,
    );
    measured.add("paused program in the gateway, KB", each as f64);
    measured
        .add("memory after a burst of 1,000 programs, MB more", (rested.saturating_sub(before) >> 10).max(1) as f64);
    Ok(())
}

fn flat_memory(servers: &Servers, rounds: usize) -> anyhow::Result<()> {
    const CLIENTS: usize = 4;
    const PARTS: usize = 10;
    let mut memory = Vec::new();
    for _ in 0..PARTS {
        let left = AtomicUsize::new(rounds / PARTS);
        in_threads(CLIENTS, || {
            let mut connection = Connection::open(servers.gateway)?;
            let take = |left: usize| (left > 0).then(|| left.saturating_sub(REQUESTS));
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                Conversation::play(&mut connection, "text")?;
            }
            Ok(())
        })?;
        memory.push(memory_kb());
    }
    let shown: Vec<String> = memory.iter().map(|kb| (kb >> 10).to_string()).collect();
    ensure!(memory[0] > 0, "memory cannot be read here");
    println!("\n{rounds} requests, memory after each tenth: {} MB", shown.join(" "));
    let percent = memory[PARTS - 1] * 100 / memory[0];
    println!("last / first: {percent} %; target: flat");
    Ok(())
}

fn in_threads(count: usize, work: impl Fn() -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|_| std::thread::Builder::new().name("client".to_owned()).spawn_scoped(scope, &work))
            .collect::<Result<_, _>>()?;
        threads.into_iter().try_for_each(|thread| thread.join().expect("no client panics"))
    })
}
