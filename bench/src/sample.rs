//! Repeated measurements of one thing.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;

#[derive(Debug)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn wall(runs: usize, mut run: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Sample> {
        Sample::take(runs, || {
            let start = Instant::now();
            run()?;
            Ok(start.elapsed())
        })
    }

    pub(crate) fn cpu(runs: usize, mut run: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Sample> {
        Sample::take(runs, || {
            let start = ThreadTime::now();
            run()?;
            Ok(start.elapsed())
        })
    }

    /// For what measures itself.
    pub(crate) fn take(runs: usize, mut run: impl FnMut() -> anyhow::Result<Duration>) -> anyhow::Result<Sample> {
        run()?;
        Ok(Sample::of((0..runs).map(|_| run()).collect::<anyhow::Result<_>>()?))
    }

    pub(crate) fn of(taken: Vec<Duration>) -> Sample {
        let mut micros: Vec<f64> = taken.into_iter().map(|taken| taken.as_secs_f64() * 1e6).collect();
        micros.sort_by(f64::total_cmp);
        Sample(micros)
    }

    pub(crate) fn min(&self) -> f64 {
        self.0[0]
    }

    pub(crate) fn quantile(&self, percent: usize) -> f64 {
        self.0[(self.0.len() - 1) * percent / 100]
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} / {:.1} / {:.1}", self.min(), self.quantile(50), self.quantile(99))
    }
}

/// Memory that belongs to this process alone, as containers are charged for it; 0 where there is no /proc. Pages that
/// programs share with the image of the guest do not count, as they would in the resident size.
pub(crate) fn memory_kb() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let private = rollup.lines().filter_map(|line| line.strip_prefix("Private_"));
    private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

/// CPU time of the threads of one name, from a moment on.
pub(crate) struct ThreadsCpu {
    name: &'static str,
    start: BTreeMap<u32, Duration>,
}

impl ThreadsCpu {
    pub(crate) fn of(name: &'static str) -> ThreadsCpu {
        ThreadsCpu { name, start: threads_cpu(name) }
    }

    /// Threads that have ended meanwhile do not count: they were idle.
    pub(crate) fn elapsed(&self) -> Duration {
        let since =
            |(thread, now): (u32, Duration)| now.saturating_sub(self.start.get(&thread).copied().unwrap_or_default());
        threads_cpu(self.name).into_iter().map(since).sum()
    }
}

/// CPU time of each thread of this name; none where there is no /proc.
fn threads_cpu(name: &str) -> BTreeMap<u32, Duration> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let cpu = |task: std::fs::DirEntry| {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).ok();
        if read("comm")?.trim_end() != name {
            return None;
        }
        let nanos = read("schedstat")?.split_whitespace().next()?.parse().ok()?;
        Some((task.file_name().to_str()?.parse().ok()?, Duration::from_nanos(nanos)))
    };
    tasks.filter_map(cpu).collect()
}
