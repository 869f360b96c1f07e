//! What the runs of an evaluation add up to, mode by mode.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::run::{EvalRun, FailureKind, Mode};

/// All runs of a mode, or those of one kind of task.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figures {
    pub runs: usize,
    pub successes: usize,
    /// Share of the runs that did their task, with its 95 % interval.
    pub success: Estimate,
    pub model_calls: Estimate,
    pub tokens_in: Estimate,
    pub tokens_out: Estimate,
    pub tool_calls: Estimate,
    pub seconds: Estimate,
}

/// A mean, with its 95 % interval if there are enough values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Estimate {
    pub mean: f64,
    pub interval: Option<(f64, f64)>,
}

/// What a report shows.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub modes: Vec<ModeSummary>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ModeSummary {
    pub mode: Mode,
    pub all: Figures,
    /// In the order of the tasks.
    pub kinds: Vec<(String, Figures)>,
    /// How many runs failed in which way, and the tasks that did.
    pub failures: BTreeMap<FailureKind, BTreeSet<String>>,
    pub failed_runs: BTreeMap<FailureKind, usize>,
}

impl Summary {
    pub(crate) fn of(runs: &[EvalRun], kinds: &[&str]) -> Summary {
        let modes: BTreeSet<Mode> = runs.iter().map(|run| run.id.mode).collect();
        Summary { modes: modes.into_iter().map(|mode| ModeSummary::of(mode, runs, kinds)).collect() }
    }
}

impl ModeSummary {
    fn of(mode: Mode, runs: &[EvalRun], kinds: &[&str]) -> ModeSummary {
        let runs: Vec<&EvalRun> = runs.iter().filter(|run| run.id.mode == mode).collect();
        let of_kind = |kind: &&str| {
            let runs: Vec<&EvalRun> = runs.iter().copied().filter(|run| run.kind == *kind).collect();
            (!runs.is_empty()).then(|| ((*kind).to_owned(), Figures::of(&runs)))
        };
        let mut failures: BTreeMap<FailureKind, BTreeSet<String>> = BTreeMap::new();
        let mut failed_runs = BTreeMap::new();
        for (run, failure) in runs.iter().filter_map(|run| Some((run, run.failure.as_ref()?))) {
            failures.entry(failure.kind).or_default().insert(run.id.task.clone());
            *failed_runs.entry(failure.kind).or_default() += 1;
        }
        let kinds = kinds.iter().filter_map(of_kind).collect();
        ModeSummary { mode, all: Figures::of(&runs), kinds, failures, failed_runs }
    }
}

impl Figures {
    fn of(runs: &[&EvalRun]) -> Figures {
        let successes = runs.iter().filter(|run| run.failure.is_none()).count();
        #[expect(clippy::cast_precision_loss, reason = "nobody pays for 2^52 tokens")]
        let whole = |number: u64| number as f64;
        let estimate = |figure: &dyn Fn(&EvalRun) -> f64| Estimate::over_repeats(runs, figure);
        Figures {
            runs: runs.len(),
            successes,
            success: Estimate::of_share(successes, runs.len()),
            model_calls: estimate(&|run| whole(run.cost.model_calls)),
            tokens_in: estimate(&|run| whole(run.cost.tokens_in)),
            tokens_out: estimate(&|run| whole(run.cost.tokens_out)),
            tool_calls: estimate(&|run| whole(run.cost.tool_calls)),
            seconds: estimate(&|run| run.cost.seconds),
        }
    }
}

/// The 97.5 % quantiles of Student's distribution, for 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// The same of the normal distribution.
const NORMAL: f64 = 1.96;

#[expect(clippy::cast_precision_loss, reason = "runs are counted in thousands at most")]
impl Estimate {
    /// Wilson's interval: it makes sense for few runs, and for shares of 0 and 1.
    fn of_share(successes: usize, runs: usize) -> Estimate {
        if runs == 0 {
            return Estimate { mean: 0.0, interval: None };
        }
        let (n, share) = (runs as f64, successes as f64 / runs as f64);
        let z2 = NORMAL * NORMAL;
        let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
        let half = NORMAL / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
        Estimate { mean: share, interval: Some(((middle - half).max(0.0), (middle + half).min(1.0))) }
    }

    /// The mean over all runs. Its interval is that of the means of the repeats: how much another round of all tasks
    /// would differ.
    fn over_repeats(runs: &[&EvalRun], figure: &dyn Fn(&EvalRun) -> f64) -> Estimate {
        let mut repeats: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for run in runs {
            repeats.entry(run.id.repeat).or_default().push(figure(run));
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let all: Vec<f64> = repeats.values().flatten().copied().collect();
        let means: Vec<f64> = repeats.values().map(|values| mean(values)).collect();
        let interval = (means.len() > 1).then(|| {
            let (n, middle) = (means.len() as f64, mean(&means));
            let variance = means.iter().map(|value| (value - middle).powi(2)).sum::<f64>() / (n - 1.0);
            let quantile = STUDENT.get(means.len() - 2).copied().unwrap_or(NORMAL);
            let half = quantile * (variance / n).sqrt();
            // None of the figures can be negative.
            ((middle - half).max(0.0), middle + half)
        });
        Estimate { mean: mean(&all), interval }
    }
}

#[cfg(test)]
mod tests {
    use super::{Estimate, Figures};
    use crate::eval::run::{EvalRun, EvalRunId, Mode, RunCost};

    fn run(repeat: u32, tokens_in: u64) -> EvalRun {
        let id = EvalRunId {
            task: "t".to_owned(),
            digest: String::new(),
            mode: Mode::Code,
            repeat,
            model: String::new(),
            upstream: String::new(),
        };
        let cost = RunCost { tokens_in, ..RunCost::default() };
        EvalRun { id, kind: String::new(), answers: Vec::new(), failure: None, cost }
    }

    #[test]
    fn a_share_of_all_is_not_certain() {
        let Estimate { mean, interval } = Estimate::of_share(10, 10);
        let (low, high) = interval.expect("an interval");
        assert!(
            (mean - 1.0).abs() < 1e-9 && (low - 0.722).abs() < 1e-3 && (high - 1.0).abs() < 1e-9,
            "{low} to {high}"
        );
    }

    #[test]
    fn repeats_give_an_interval_and_one_round_does_not() {
        let (first, second) = (run(1, 100), run(2, 110));
        assert_eq!(Figures::of(&[&first]).tokens_in, Estimate { mean: 100.0, interval: None });
        let Estimate { mean, interval } = Figures::of(&[&first, &second]).tokens_in;
        let (low, high) = interval.expect("an interval");
        assert!(
            (mean - 105.0).abs() < 1e-9 && (low - 41.47).abs() < 0.01 && (high - 168.53).abs() < 0.01,
            "{low} {high}"
        );
    }
}
