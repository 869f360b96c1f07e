//! Repeated measurements of one thing.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
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
    memory_of("self")
}

/// The same for the process with this id.
pub(crate) fn memory_kb_of(process: u32) -> u64 {
    memory_of(&process.to_string())
}

fn memory_of(process: &str) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
    let private = rollup.lines().filter_map(|line| line.strip_prefix("Private_"));
    private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

/// Threads whose CPU time is measured.
#[derive(Debug, Clone)]
pub(crate) struct Threads {
    tasks: PathBuf,
    /// Only those of this name.
    name: Option<&'static str>,
}

impl Threads {
    /// Those of this process with this name.
    pub(crate) fn named(name: &'static str) -> Threads {
        Threads { tasks: "/proc/self/task".into(), name: Some(name) }
    }

    /// All of another process.
    pub(crate) fn of_process(id: u32) -> Threads {
        Threads { tasks: format!("/proc/{id}/task").into(), name: None }
    }

    /// What they take while something else runs. Threads that end meanwhile do not count: they were idle.
    pub(crate) fn cpu_during<T>(&self, run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, Duration)> {
        let start = self.cpu();
        let result = run()?;
        let since =
            |(thread, now): (u32, Duration)| now.saturating_sub(start.get(&thread).copied().unwrap_or_default());
        Ok((result, self.cpu().into_iter().map(since).sum()))
    }

    /// CPU time of each thread; none where there is no /proc.
    fn cpu(&self) -> BTreeMap<u32, Duration> {
        let tasks = std::fs::read_dir(&self.tasks).into_iter().flatten().flatten();
        let cpu = |task: std::fs::DirEntry| {
            let read = |file: &str| std::fs::read_to_string(task.path().join(file)).ok();
            if let Some(name) = self.name
                && read("comm")?.trim_end() != name
            {
                return None;
            }
            let nanos = read("schedstat")?.split_whitespace().next()?.parse().ok()?;
            Some((task.file_name().to_str()?.parse().ok()?, Duration::from_nanos(nanos)))
        };
        tasks.filter_map(cpu).collect()
    }
}
