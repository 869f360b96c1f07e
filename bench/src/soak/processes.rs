//! Replicas of the gateway and a Redis, as processes that can be killed.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::net::{TcpListener, TcpStream};

use super::random_client::Random;

pub(crate) const HONEST_KEY: &str = "key of the honest clients";
pub(crate) const HOSTILE_KEY: &str = "key of the hostile clients";

/// For a process to listen.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// After the last request, for memory to be given back.
const REST: Duration = Duration::from_secs(20);

/// A gateway in a process of its own.
pub(crate) struct Replica {
    child: Child,
    port: u16,
    config: PathBuf,
    _dir: tempfile::TempDir,
}

/// What replicas differ in.
pub(crate) struct ReplicaConfig<'a> {
    pub model: &'a str,
    pub redis: Option<&'a str>,
    pub memory_bytes_max: Option<u64>,
    pub turns_max: usize,
    /// Whether there are honest and hostile clients with keys.
    pub has_clients: bool,
}

impl Replica {
    pub(crate) async fn start(config: &ReplicaConfig<'_>) -> anyhow::Result<Replica> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("dacapo.toml");
        let port = free_port().await?;
        std::fs::write(&path, config.to_toml(port)?)?;
        let child = spawn(&path)?;
        let replica = Replica { child, port, config: path, _dir: dir };
        until_listening(port).await?;
        Ok(replica)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Memory that would be free without it, and its share of what others use too.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.child.id())).ok()?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
    }

    /// Whether it has ended by itself.
    fn has_died(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    async fn kill_and_restart(&mut self, pause: Duration) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        tokio::time::sleep(pause).await;
        self.child = spawn(&self.config)?;
        until_listening(self.port).await
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().unwrap_or_default();
        drop(self.child.wait());
    }
}

fn spawn(config: &PathBuf) -> anyhow::Result<Child> {
    let dacapo = std::env::current_exe()?.with_file_name("dacapo");
    ensure!(dacapo.exists(), "{} is missing; build it with `cargo build --release`", dacapo.display());
    let mut command = Command::new(dacapo);
    // While Redis is down, every request logs an error.
    let log = OpenOptions::new().create(true).append(true).open(log_path())?;
    command.args(["serve", "--config"]).arg(config).stdout(Stdio::null()).stderr(log);
    Ok(command.spawn()?)
}

/// What replicas log.
pub(crate) fn log_path() -> PathBuf {
    std::env::temp_dir().join("dacapo-soak.log")
}

impl ReplicaConfig<'_> {
    fn to_toml(&self, port: u16) -> anyhow::Result<String> {
        let model = self.model;
        let mut toml = format!(
            "listen = \"127.0.0.1:{port}\"\nsecret = \"a secret for this run only\"\nlog = \"error\"\nturns_max = {}\n",
            self.turns_max
        );
        if let Some(bytes) = self.memory_bytes_max {
            writeln!(toml, "memory_bytes_max = {bytes}")?;
        }
        writeln!(toml, "[timeouts]\nheader_seconds = 5\nbody_seconds = 5")?;
        if let Some(redis) = self.redis {
            writeln!(toml, "[store]\nkind = \"redis\"\nurl = \"{redis}\"")?;
        }
        if self.has_clients {
            for (name, key) in [("honest", HONEST_KEY), ("hostile", HOSTILE_KEY)] {
                let hash = dacapo_gateway::key_sha256(key);
                writeln!(toml, "[[client]]\nname = \"{name}\"\nkey_sha256 = \"{hash}\"")?;
            }
        }
        for (name, models, wires) in
            [("other", "*-b", "[\"messages\"]"), ("model", "*", "[\"chat\", \"responses\", \"messages\"]")]
        {
            writeln!(
                toml,
                "[[upstream]]\nname = \"{name}\"\nmodels = [\"{models}\"]\nwires = {wires}\nbase_url = \"{model}\""
            )?;
        }
        Ok(toml)
    }
}

/// Replicas without a store, and replicas that share one.
pub(crate) struct Replicas {
    stateless: Vec<Replica>,
    with_store: Vec<Replica>,
}

impl Replicas {
    pub(crate) async fn start(model: &str, redis: &Redis, count: usize, memory_max: u64) -> anyhow::Result<Replicas> {
        let mut replicas = Replicas { stateless: Vec::new(), with_store: Vec::new() };
        let url = redis.url();
        for _ in 0..count {
            let config = ReplicaConfig {
                model,
                redis: None,
                memory_bytes_max: Some(memory_max),
                turns_max: 1_024,
                has_clients: true,
            };
            replicas.stateless.push(Replica::start(&config).await?);
            replicas.with_store.push(Replica::start(&ReplicaConfig { redis: Some(&url), ..config }).await?);
        }
        Ok(replicas)
    }

    pub(crate) fn urls(&self, with_store: bool) -> Arc<[String]> {
        let group = if with_store { &self.with_store } else { &self.stateless };
        group.iter().map(Replica::url).collect()
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Replica> {
        self.stateless.iter_mut().chain(&mut self.with_store)
    }
}

/// A Redis that keeps what was written to it when it is killed.
pub(crate) struct Redis {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Redis {
    pub(crate) async fn start() -> anyhow::Result<Redis> {
        let (dir, port) = (tempfile::tempdir()?, free_port().await?);
        let child = Redis::spawn(&dir, port)?;
        until_listening(port).await?;
        Ok(Redis { child, port, dir })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    fn spawn(dir: &tempfile::TempDir, port: u16) -> anyhow::Result<Child> {
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "yes",
            "--dir",
        ]);
        command.arg(dir.path()).stdout(Stdio::null());
        command.spawn().context("redis-server is missing; scripts/test-tools installs it")
    }

    async fn kill_and_restart(&mut self, pause: Duration) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        tokio::time::sleep(pause).await;
        self.child = Redis::spawn(&self.dir, self.port)?;
        until_listening(self.port).await
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        drop(self.child.wait());
    }
}

async fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port())
}

async fn until_listening(port: u16) -> anyhow::Result<()> {
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        ensure!(begun.elapsed() < START_TIMEOUT, "nothing listens on port {port}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// What happened to the processes.
#[derive(Debug, Default)]
pub(crate) struct Chaos {
    pub replicas_killed: u64,
    pub redis_killed: u64,
    /// By themselves.
    pub replicas_died: u64,
    pub peak_bytes: u64,
    /// The most that a replica has when all is over.
    pub rest_bytes: u64,
}

impl Chaos {
    fn watch(&mut self, replicas: &mut Replicas) {
        for replica in replicas.all() {
            self.peak_bytes = self.peak_bytes.max(replica.memory_bytes().unwrap_or_default());
        }
    }

    /// Looks at all replicas when nobody has asked them for some time.
    pub(crate) async fn rest(&mut self, replicas: &mut Replicas) {
        self.watch(replicas);
        tokio::time::sleep(REST).await;
        for replica in replicas.all() {
            self.replicas_died += u64::from(replica.has_died());
            self.rest_bytes = self.rest_bytes.max(replica.memory_bytes().unwrap_or_default());
        }
    }
}

/// Kills a replica or Redis every few seconds, and starts it again. At the end all run.
pub(crate) async fn kill_at_random(
    seed: u64,
    mut replicas: Replicas,
    mut redis: Redis,
    time: Duration,
) -> anyhow::Result<(Chaos, Replicas, Redis)> {
    let mut random = Random::new(seed);
    let mut chaos = Chaos::default();
    let end = Instant::now() + time;
    let mut next = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(500)).await;
        chaos.watch(&mut replicas);
        if Instant::now() < next {
            continue;
        }
        next = Instant::now() + Duration::from_millis(2_000 + random.below(6_000) as u64);
        let pause = Duration::from_millis(random.below(1_500) as u64);
        if random.percent(25) {
            chaos.redis_killed += 1;
            redis.kill_and_restart(pause).await?;
        } else {
            let count = replicas.all().count();
            let at = random.below(count);
            let replica = replicas.all().nth(at).context("there is one")?;
            chaos.replicas_died += u64::from(replica.has_died());
            chaos.replicas_killed += 1;
            replica.kill_and_restart(pause).await?;
        }
    }
    Ok((chaos, replicas, redis))
}
