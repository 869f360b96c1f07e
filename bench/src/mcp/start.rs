//! From the start of our process, as a client starts it, to its first answers; and what stays the same however many
//! tools are behind.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use rmcp::model::Tool;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::sdk::Client;
use super::{Command, SERVE, file};
use crate::sample::Sample;

const SLOW_MS: u64 = 2_000;
const QUERY: &str = "create an invoice, list the open tickets, read a file, echo a message";
const NEXT: [&str; 4] = ["export a report", "assign an incident to an employee", "approve vacation", "echo a message"];
const PROGRAM: &str = "return await s0.echo({ message: \"hello\" })";
/// Lists are written in the background.
const CACHED: Duration = Duration::from_secs(20);

/// Servers, and how they were measured.
struct Figures {
    name: String,
    tools: usize,
    /// Until the SDK has started all of them side by side and knows their tools.
    listed: Duration,
    /// Until our first answer when nothing is known yet.
    unknown: Duration,
    starts: Starts,
    /// Tokens of our instructions and tools, and of theirs.
    tokens: [usize; 2],
}

/// Starts with cached lists.
#[derive(Default)]
struct Starts {
    greeted: Vec<Duration>,
    first_search: Vec<Duration>,
    next_search: Vec<Duration>,
    first_execute: Vec<Duration>,
    next_execute: Vec<Duration>,
}

pub(super) async fn run(quick: bool) -> anyhow::Result<()> {
    let (runs, runs_of_many) = if quick { (3, 1) } else { (20, 5) };
    println!("first answer of `search`, from the start of our process, with lists cached and not");
    println!(
        "SDK: until it has started all servers side by side and has their lists; milliseconds: min / p50, or once\n"
    );
    println!("{:34} {:>16} {:>16} {:>16} {:>7}", "", "SDK lists all", "not cached", "cached", "target");
    let five =
        |start_ms| (0..5).map(move |number| Command::echo(number, 20, start_ms)).collect::<anyhow::Result<Vec<_>>>();
    first(&measure("5 servers, 20 tools each", &five(0)?, runs).await?, "≤ 300");
    // All of the time is ours: nothing of theirs is waited for.
    first(&measure("the same, each starts in 2 s", &five(SLOW_MS)?, runs.min(5)).await?, "≤ 300");
    match npm() {
        Some(servers) => first(&measure("5 servers from npm", &servers, runs).await?, "≤ 300"),
        None => println!("skipped: the servers from npm are not installed; scripts/test-tools does it"),
    }
    let few = measure("1 server, 10 tools", &[Command::echo(0, 10, 0)?], runs).await?;
    first(&few, "");
    let many: Vec<Command> = (0..100).map(|number| Command::echo(number, 100, 0)).collect::<anyhow::Result<_>>()?;
    let many = measure("100 servers, 100 tools each", &many, runs_of_many).await?;
    first(&many, "");

    let (few, many) = (many_columns(few), many_columns(many));
    println!("\nmany tools, cached; milliseconds: min / p50\n");
    println!("{:46} {:>20} {:>20}", "", few.0, many.0);
    for ((name, few), (_, many)) in few.1.into_iter().zip(many.1) {
        println!("{name:46} {few:>20} {many:>20}");
    }
    Ok(())
}

fn first(figures: &Figures, target: &str) {
    let ms = |taken: Duration| format!("{:.0}", taken.as_secs_f64() * 1e3);
    let cached = shown(figures.starts.first_search.clone());
    println!("{:34} {:>16} {:>16} {cached:>16} {target:>7}", figures.name, ms(figures.listed), ms(figures.unknown));
}

fn many_columns(figures: Figures) -> (String, [(&'static str, String); 7]) {
    let Starts { greeted, first_search, next_search, first_execute, next_execute } = figures.starts;
    let [ours, theirs] = figures.tokens;
    let rows = [
        ("start to greeting", shown(greeted)),
        ("start to first search", shown(first_search)),
        ("next search", shown(next_search)),
        ("first execute, right after; its server starts", shown(first_execute)),
        ("next execute, one call", shown(next_execute)),
        ("context, o200k tokens: our two tools", ours.to_string()),
        ("context, o200k tokens: all tools themselves", theirs.to_string()),
    ];
    (format!("{} tools", figures.tools), rows)
}

fn shown(taken: Vec<Duration>) -> String {
    let sample = Sample::of(taken);
    format!("{:.1} / {:.1}", sample.min() / 1e3, sample.quantile(50) / 1e3)
}

/// Five as people have them.
fn npm() -> Option<Vec<Command>> {
    let here = env!("CARGO_MANIFEST_DIR");
    let packages: [(&str, &[&str]); 5] = [
        ("server-everything", &["stdio"]),
        ("server-filesystem", &[here]),
        ("server-memory", &[]),
        ("server-sequential-thinking", &[]),
        ("server-filesystem", &[here, here]),
    ];
    packages.into_iter().map(|(package, args)| Command::npm(package, args)).collect()
}

async fn measure(name: &str, servers: &[Command], runs: usize) -> anyhow::Result<Figures> {
    // Once for files that nobody has read yet.
    list(servers).await?;
    let (listed, theirs) = list(servers).await?;

    let place = TempDir::new()?;
    let config = place.path().join("mcp.json");
    fs::write(&config, file(servers))?;
    let cache = place.path().join("cache");
    let text = |path: &Path| path.to_str().map(str::to_owned).context("the path of a temporary directory is not text");
    let command = Command::ourselves(&[SERVE, &text(&config)?, &text(&cache)?])?;

    let begun = Instant::now();
    let client = Client::start(&command).await?;
    search(&client, QUERY).await?;
    let unknown = begun.elapsed();
    let ours = json!({ "instructions": client.instructions(), "tools": client.list().await? });
    let stored = || {
        fs::read_dir(&cache).map_or(0, |files| {
            files.flatten().filter(|file| file.path().extension().is_some_and(|extension| extension == "json")).count()
        })
    };
    while stored() < servers.len() {
        ensure!(begun.elapsed() < CACHED, "only {} of {} lists are cached", stored(), servers.len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    client.end().await?;

    let mut starts = Starts::default();
    for _ in 0..runs {
        starts.measure(&command).await?;
    }
    let tokens = [tokens(&ours.to_string()), tokens(&serde_json::to_string(&theirs)?)];
    Ok(Figures { name: name.to_owned(), tools: theirs.len(), listed, unknown, starts, tokens })
}

/// Starts all servers with the SDK, side by side, and asks each for its tools.
async fn list(servers: &[Command]) -> anyhow::Result<(Duration, Vec<Tool>)> {
    let begun = Instant::now();
    let list = async |command: &Command| {
        let client = Client::start(command).await?;
        let tools = client.list().await?;
        anyhow::Ok((client, tools))
    };
    let listed = try_join_all(servers.iter().map(list)).await?;
    let taken = begun.elapsed();
    let mut all = Vec::new();
    for (client, tools) in listed {
        client.end().await?;
        all.extend(tools);
    }
    Ok((taken, all))
}

impl Starts {
    async fn measure(&mut self, command: &Command) -> anyhow::Result<()> {
        let begun = Instant::now();
        let client = Client::start(command).await?;
        self.greeted.push(begun.elapsed());
        search(&client, QUERY).await?;
        self.first_search.push(begun.elapsed());
        let begun = Instant::now();
        execute(&client).await?;
        self.first_execute.push(begun.elapsed());
        for query in NEXT {
            let begun = Instant::now();
            search(&client, query).await?;
            self.next_search.push(begun.elapsed());
            let begun = Instant::now();
            execute(&client).await?;
            self.next_execute.push(begun.elapsed());
        }
        client.end().await
    }
}

async fn search(client: &Client, query: &str) -> anyhow::Result<()> {
    let result = client.call("search", Map::from_iter([("query".to_owned(), json!(query))])).await?;
    let found = result.structured_content.context("`search` answers with structure")?;
    // Not every server has a function for every query.
    found["functions"].as_array().context("`search` answers with functions")?;
    Ok(())
}

async fn execute(client: &Client) -> anyhow::Result<()> {
    let result = client.call("execute", Map::from_iter([("code".to_owned(), json!(PROGRAM))])).await?;
    let data = result.structured_content.map(|mut structured| structured["data"].take());
    ensure!(data == Some(Value::from("Echo: hello")), "the program returned {data:?}");
    Ok(())
}

fn tokens(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton().encode_ordinary(text).len()
}
