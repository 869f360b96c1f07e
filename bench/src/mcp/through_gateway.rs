//! A program of a hundred calls through the gateway, beside the same through `dacapo mcp`, and the SDK alone.
//!
//! Each of the first two is a whole request: the client sends it, the program runs and makes its calls, the client has the
//! answer. In the gateway a scripted model is asked twice on the way, for the program and for the answer. The tool is said to
//! have effects, so that each call is recorded before it is sent, and after it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dacapo_gateway::{Environment, Gateway, GatewayOptions, UpstreamOptions};
use dacapo_mcp::{Fleet, FleetOptions, ServersFile};
use dacapo_replay::{Effect, EffectRules};
use dacapo_runner::Policy;
use futures_util::future::try_join_all;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

use super::sdk::Client;
use super::{Command, SERVE, file};
use crate::sample::Sample;
use crate::soak::Redis;

const CALLS: usize = 100;
const READY: Duration = Duration::from_secs(30);
/// What a tool takes that does something.
const AFTER_MS: u64 = 10;

fn program(after_ms: u64) -> String {
    format!(
        "const call = (_, i) => s0.echo({{ message: `call ${{i}}`, after_ms: {after_ms} }});
const said = await Promise.all(Array.from({{ length: {CALLS} }}, call));
return said.filter((text, i) => text === `Echo: call ${{i}}`).length"
    )
}

/// Where a gateway records calls.
enum Store {
    Default,
    File,
    Redis,
}

pub(super) async fn run(runs: usize) -> anyhow::Result<()> {
    println!(
        "a program of {CALLS} calls in parallel, a whole request: milliseconds, min / p50 / p99; ratio at p50 to the SDK"
    );
    measure(runs, 0).await?;
    measure(runs, AFTER_MS).await
}

/// With a tool that takes so long.
async fn measure(runs: usize, after_ms: u64) -> anyhow::Result<()> {
    println!("\na tool that takes {after_ms} ms");
    let folder = tempfile::tempdir()?;
    let echo = Command::echo(0, 1, 0)?;
    let redis = Redis::start().await?;
    let client = Client::start(&echo).await?;
    let servers = folder.path().join("mcp.json");
    std::fs::write(&servers, file(std::slice::from_ref(&echo)))?;
    let paths = [servers.as_path(), folder.path()].map(|path| path.to_string_lossy().into_owned());
    let dacapo_mcp = Client::start(&Command::ourselves(&[SERVE, &paths[0], &paths[1]])?).await?;
    let gateways = [
        ("gateway, no store configured", "≤ 1.3", Store::Default),
        ("gateway, file", "≤ 1.5", Store::File),
        ("gateway, redis", "", Store::Redis),
    ];
    let mut started = Vec::new();
    for (name, target, store) in gateways {
        started.push((name, target, start_gateway(&echo, &store, after_ms, folder.path(), &redis.url()).await?));
    }
    let http = reqwest::Client::new();
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); 2 + started.len()];
    for number in 0..=runs {
        let mut taken =
            vec![timed(by_sdk(&client, after_ms)).await?, timed(by_dacapo_mcp(&dacapo_mcp, after_ms)).await?];
        for (_, _, (_, url)) in &started {
            taken.push(timed(by_gateway(&http, url, number)).await?);
        }
        // The first one warms up.
        if number > 0 {
            times.iter_mut().zip(taken).for_each(|(times, taken)| times.push(taken));
        }
    }
    let samples: Vec<Sample> = times.into_iter().map(Sample::of).collect();
    let names = [("SDK (rmcp) alone", ""), ("dacapo mcp", "")].into_iter();
    let names = names.chain(started.iter().map(|(name, target, _)| (*name, *target)));
    for ((name, target), sample) in names.zip(&samples) {
        let ms = |micros: f64| micros / 1e3;
        let shown =
            format!("{:.1} / {:.1} / {:.1}", ms(sample.min()), ms(sample.quantile(50)), ms(sample.quantile(99)));
        println!("{name:44} {shown:>24} {:>9.2} {target:>7}", sample.quantile(50) / samples[0].quantile(50));
    }
    for (_, _, (fleet, _)) in started {
        fleet.shutdown().await;
    }
    client.end().await?;
    dacapo_mcp.end().await
}

/// A gateway in this process, with a server of its own, and a model that writes the program.
async fn start_gateway(
    echo: &Command,
    store: &Store,
    after_ms: u64,
    folder: &Path,
    redis: &str,
) -> anyhow::Result<(Arc<Fleet>, String)> {
    let script = folder.join("script.toml");
    let turns = format!(
        "[[turn]]\nwhen = {{ after = \"user\", tool = \"execute\" }}\nprogram = '''\n{}'''\n\n\
         [[turn]]\ntext = \"{{{{result/data}}}}\"\n",
        program(after_ms)
    );
    std::fs::write(&script, turns)?;
    let mut options =
        GatewayOptions { secret: Some("a secret for this run only".to_owned()), ..GatewayOptions::default() };
    options.upstreams.push(UpstreamOptions {
        name: "bench".to_owned(),
        models: vec!["*".to_owned()],
        script: Some(script.to_string_lossy().into_owned()),
        ..UpstreamOptions::default()
    });
    match store {
        Store::Default => {}
        Store::File => {
            options.store.kind = Some("file".to_owned());
            options.store.path = Some(folder.join("store.redb").to_string_lossy().into_owned());
        }
        Store::Redis => {
            options.store.kind = Some("redis".to_owned());
            options.store.url = Some(redis.to_owned());
        }
    }
    let servers = ServersFile::parse(&file(std::slice::from_ref(echo)), &std::env::vars().collect())?;
    let write = ("s0.echo".to_owned(), Effect::Write);
    let fleet_options = FleetOptions { effects: EffectRules::new(vec![write]).into(), ..FleetOptions::default() };
    let fleet = Arc::new(Fleet::start(servers, fleet_options));
    fleet.settled(READY).await;
    let gateway = Gateway::new(options.resolve(&Environment::default())?)?;
    let gateway = gateway.with_servers(Arc::clone(&fleet) as _, Policy::default());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/v1/chat/completions", listener.local_addr()?);
    tokio::spawn(dacapo_gateway::serve(gateway, listener, std::future::pending()));
    Ok((fleet, url))
}

async fn timed(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    work.await?;
    Ok(begun.elapsed())
}

async fn by_sdk(client: &Client, after_ms: u64) -> anyhow::Result<()> {
    let call = async |number: usize| {
        let message = ("message".to_owned(), json!(format!("call {number}")));
        let args = Map::from_iter([message, ("after_ms".to_owned(), json!(after_ms))]);
        let result = client.call("echo", args).await?;
        let text = result.content.first().and_then(|content| content.as_text()).context("no text")?;
        ensure!(text.text == format!("Echo: call {number}"), "echo said {}", text.text);
        Ok(())
    };
    try_join_all((0..CALLS).map(call)).await.map(drop)
}

async fn by_dacapo_mcp(client: &Client, after_ms: u64) -> anyhow::Result<()> {
    let result = client.call("execute", Map::from_iter([("code".to_owned(), json!(program(after_ms)))])).await?;
    let data = result.structured_content.as_ref().map(|content| &content["data"]);
    ensure!(data == Some(&json!(CALLS)), "it says {data:?}");
    Ok(())
}

/// Requests differ: the same one again would get the answer of the first.
async fn by_gateway(client: &reqwest::Client, url: &str, number: usize) -> anyhow::Result<()> {
    let message = json!({ "role": "user", "content": format!("Call a hundred times, for the {number}th time") });
    let body = json!({ "model": "bench", "messages": [message] }).to_string();
    let sent = client.post(url).header("content-type", "application/json").body(body).send().await?;
    let answer: Value = serde_json::from_slice(&sent.bytes().await?)?;
    let said = answer["choices"][0]["message"]["content"].as_str();
    ensure!(said == Some(&*CALLS.to_string()), "it says {answer}");
    Ok(())
}
