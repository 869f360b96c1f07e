//! Repeated measurements of one thing.

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

/// Resident memory of this process; 0 where there is no /proc.
pub(crate) fn memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
