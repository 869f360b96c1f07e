//! Honest and hostile clients together, over replicas and a Redis that are killed and started again at random.
//!
//! `cargo run --release -p dacapo-bench -- soak --minutes 10` needs `dacapo` beside its own binary (`cargo build
//! --release`) and `redis-server`. The honest clients are those of the gateway's property test, so that every write is
//! counted and every answer compared. All counts of mistakes have to be zero, and the memory of a replica bounded; the
//! exit status says whether they are.

mod hostile;
mod processes;
#[path = "../../crates/gateway/tests/gateway/random_client.rs"]
#[expect(clippy::unwrap_used, dead_code, reason = "it is part of a test, which uses more")]
mod random_client;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use random_client::{FailureKind, OnFailure, Played, RandomClient, RandomModels};

use self::processes::Replicas;
pub(crate) use self::processes::{Redis, Replica, ReplicaConfig};
use crate::gateway::client_conversation;

/// Each group of replicas has so many. One of them is killed at a time.
const REPLICAS: usize = 2;
const HONEST: usize = 8;
const HOSTILE: usize = 4;
/// A replica refuses requests above this.
const MEMORY_MAX: u64 = 512 << 20;
/// What it may have beyond that, for what it has let in already.
const MEMORY_SLACK: u64 = 256 << 20;
/// For a client to have a request answered, whatever dies meanwhile.
const PATIENCE: Duration = Duration::from_mins(1);
const STORIES_SHOWN: usize = 3;

#[derive(Default)]
struct Totals {
    conversations: u64,
    requests: usize,
    executed: usize,
    twice: usize,
    lost: usize,
    wrong_bytes: usize,
    stories: Vec<String>,
}

impl Totals {
    fn add(&mut self, played: Played) {
        self.conversations += 1;
        self.requests += played.requests;
        self.executed += played.executed;
        let Some(failure) = played.failure else { return };
        match failure.kind {
            FailureKind::Twice => self.twice += 1,
            FailureKind::Lost => self.lost += 1,
            FailureKind::WrongBytes => self.wrong_bytes += 1,
        }
        self.stories.push(failure.story);
    }
}

/// Plays for some time, while clients attack and processes are killed.
pub(crate) fn run(minutes: f64) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(soak(Duration::from_secs_f64(minutes * 60.0)))
}

/// Plays some conversations in peace.
pub(crate) fn conversations(count: u64) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(in_peace(count))
}

async fn in_peace(count: u64) -> anyhow::Result<ExitCode> {
    let seed = std::time::UNIX_EPOCH.elapsed()?.as_secs();
    println!("{count} conversations from DACAPO_SEED={seed}");
    let models = RandomModels::default();
    let model = models.serve().await;
    let redis = Redis::start().await?;
    let replicas = Replicas::start(&model, &redis, REPLICAS, MEMORY_MAX).await?;
    let honest = Honest::new(models, &replicas)?;
    let mut totals = Totals::default();
    honest.play(seed, |next| next < seed + count, &mut totals).await?;
    Ok(report(&totals, 0, &processes::Chaos::default()))
}

/// Clients that do nothing wrong, and what they need.
struct Honest {
    models: RandomModels,
    http: reqwest::Client,
    stateless: Arc<[String]>,
    with_store: Arc<[String]>,
}

impl Honest {
    fn new(models: RandomModels, replicas: &Replicas) -> anyhow::Result<Honest> {
        let http = client(processes::HONEST_KEY, PATIENCE)?;
        Ok(Honest { models, http, stateless: replicas.urls(false), with_store: replicas.urls(true) })
    }

    /// Plays one conversation after the other, several at a time, while `goes_on` says so of the next seed.
    async fn play(&self, seed: u64, goes_on: impl Fn(u64) -> bool, totals: &mut Totals) -> anyhow::Result<()> {
        let mut playing = tokio::task::JoinSet::new();
        let mut next = seed;
        loop {
            while playing.len() < HONEST && goes_on(next) {
                let gateways = if next.is_multiple_of(3) { &self.with_store } else { &self.stateless };
                let (models, http) = (self.models.clone(), self.http.clone());
                let retry = OnFailure::Retry(PATIENCE);
                playing.spawn(RandomClient::new(next, Arc::clone(gateways), models, http, retry).play());
                next += 1;
            }
            let Some(played) = playing.join_next().await else { return Ok(()) };
            totals.add(played.context("a client has panicked")?);
        }
    }
}

async fn soak(time: Duration) -> anyhow::Result<ExitCode> {
    let seed = std::time::UNIX_EPOCH.elapsed()?.as_secs();
    let log = processes::log_path();
    println!("soak for {} seconds, from DACAPO_SEED={seed}; replicas log to {}", time.as_secs(), log.display());
    let models = RandomModels::default();
    let model = models.serve().await;
    let redis = Redis::start().await?;
    let replicas = Replicas::start(&model, &redis, REPLICAS, MEMORY_MAX).await?;
    let honest = Honest::new(models, &replicas)?;
    let attacks = Arc::new(AtomicU64::new(0));
    let hostile: Vec<_> = (0..HOSTILE)
        .map(|number| {
            let urls: Vec<String> = honest.stateless.iter().chain(honest.with_store.iter()).cloned().collect();
            tokio::spawn(hostile::attack(seed + number as u64, urls, Arc::clone(&attacks)))
        })
        .collect();
    let chaos = tokio::spawn(processes::kill_at_random(seed, replicas, redis, time));
    let end = Instant::now() + time;
    let mut totals = Totals::default();
    honest.play(seed, |_| Instant::now() < end, &mut totals).await?;
    hostile.iter().for_each(tokio::task::JoinHandle::abort);
    let (mut chaos, mut replicas, _redis) = chaos.await??;
    chaos.rest(&mut replicas).await;
    Ok(report(&totals, attacks.load(Ordering::Relaxed), &chaos))
}

fn report(totals: &Totals, attacks: u64, chaos: &processes::Chaos) -> ExitCode {
    let mib = |bytes: u64| bytes >> 20;
    println!("conversations            {:>8}", totals.conversations);
    println!("requests of clients      {:>8}", totals.requests);
    println!("calls executed           {:>8}", totals.executed);
    println!("attacks                  {attacks:>8}");
    println!("replicas killed          {:>8}", chaos.replicas_killed);
    println!("Redis killed             {:>8}", chaos.redis_killed);
    println!("executed twice           {:>8}", totals.twice);
    println!("lost                     {:>8}", totals.lost);
    println!("wrong bytes              {:>8}", totals.wrong_bytes);
    println!("replicas that died       {:>8}", chaos.replicas_died);
    println!("peak of a replica, MiB   {:>8}   bound {}", mib(chaos.peak_bytes), mib(MEMORY_MAX + MEMORY_SLACK));
    println!("afterwards, MiB          {:>8}", mib(chaos.rest_bytes));
    for story in totals.stories.iter().take(STORIES_SHOWN) {
        println!("\n{story}");
    }
    let is_good = totals.twice + totals.lost + totals.wrong_bytes == 0
        && totals.conversations > 0
        && chaos.replicas_died == 0
        && chaos.peak_bytes <= MEMORY_MAX + MEMORY_SLACK;
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn client(key: &str, timeout: Duration) -> anyhow::Result<reqwest::Client> {
    let mut headers = reqwest::header::HeaderMap::new();
    headers.insert("authorization", format!("Bearer {key}").parse()?);
    Ok(reqwest::Client::builder().tls_certs_only([]).default_headers(headers).timeout(timeout).build()?)
}
