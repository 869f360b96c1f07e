//! Prints what an evaluation found, on a terminal of 100 columns.

use std::io::{self, Write};

use super::Subject;
use super::summary::{Estimate, Figures, ModeSummary, Summary};
use crate::text_style::{TextStyle, TextStyler, grouped, plural, wrap};

pub(crate) struct EvalScreen<W: Write> {
    pub out: W,
    pub styler: TextStyler,
}

const COLUMNS: usize = 100;

impl<W: Write> EvalScreen<W> {
    pub(crate) fn report(&mut self, subject: &Subject, summary: &Summary) -> io::Result<()> {
        let Subject { model, upstream, tasks, repeat } = subject;
        let times = if *repeat == 1 { "once".to_owned() } else { plural(*repeat as usize, "time") };
        let title = format!("{model} ({upstream}): {}, each played {times} in each mode", plural(*tasks, "task"));
        writeln!(self.out, "{}", self.styler.style(TextStyle::Bold, &title))?;
        for mode in &summary.modes {
            self.mode(mode)?;
        }
        if let [classic, code] = summary.modes.as_slice() {
            let ratio = |figure: fn(&Figures) -> f64| figure(&code.all) / figure(&classic.all).max(f64::MIN_POSITIVE);
            writeln!(
                self.out,
                "\nCode mode has {:.2} of the model calls, {:.2} of the tokens in and {:.2} of the tokens out.",
                ratio(|all| all.model_calls.mean),
                ratio(|all| all.tokens_in.mean),
                ratio(|all| all.tokens_out.mean),
            )?;
        }
        let note = "Means per task. Intervals are those of 95 %: of success by Wilson, of the others over repeats.";
        writeln!(self.out, "{}", self.styler.style(TextStyle::Dim, note))
    }

    fn mode(&mut self, summary: &ModeSummary) -> io::Result<()> {
        let head = format!(
            "\n{:<12}{:>6}{:>24}{:>13}{:>13}{:>13}{:>13}",
            summary.mode.name(),
            "done",
            "success",
            "model calls",
            "tokens in",
            "tokens out",
            "seconds"
        );
        writeln!(self.out, "{}", self.styler.style(TextStyle::Dim, &head))?;
        for (kind, figures) in &summary.kinds {
            self.figures(kind, figures)?;
        }
        self.figures("all", &summary.all)?;
        let all = &summary.all;
        let figures = [
            ("model calls", all.model_calls),
            ("tokens in", all.tokens_in),
            ("tokens out", all.tokens_out),
            ("seconds", all.seconds),
        ];
        let interval = |(name, estimate): (&str, Estimate)| {
            estimate.interval.map(|(low, high)| format!("{name} {} to {}", short(low), short(high)))
        };
        let intervals: Vec<String> = figures.into_iter().filter_map(interval).collect();
        if !intervals.is_empty() {
            for line in wrap(&format!("intervals: {}", intervals.join(", ")), COLUMNS) {
                writeln!(self.out, "{}", self.styler.style(TextStyle::Dim, &line))?;
            }
        }
        for (kind, tasks) in &summary.failures {
            let runs = summary.failed_runs.get(kind).copied().unwrap_or_default();
            let tasks: Vec<&str> = tasks.iter().map(String::as_str).collect();
            let line = format!("{}: {} ({})", kind.name(), plural(runs, "run"), tasks.join(", "));
            for line in wrap(&line, COLUMNS) {
                writeln!(self.out, "{}", self.styler.style(TextStyle::Red, &line))?;
            }
        }
        Ok(())
    }

    fn figures(&mut self, name: &str, figures: &Figures) -> io::Result<()> {
        let Figures { runs, successes, success, .. } = figures;
        let share = format!("{} %", (success.mean * 100.0).round());
        let interval = success.interval.map_or_else(String::new, |(low, high)| {
            format!("({} to {})", (low * 100.0).round(), (high * 100.0).round())
        });
        writeln!(
            self.out,
            "{name:<12}{:>6}{:>24}{:>13}{:>13}{:>13}{:>13}",
            format!("{successes}/{runs}"),
            format!("{share:>6} {interval:<12}"),
            short(figures.model_calls.mean),
            short(figures.tokens_in.mean),
            short(figures.tokens_out.mean),
            format!("{:.2}", figures.seconds.mean),
        )
    }
}

/// A number in few digits.
pub(super) fn short(number: f64) -> String {
    if number < 100.0 {
        return format!("{number:.1}");
    }
    #[expect(clippy::cast_sign_loss, reason = "it is at least 100")]
    grouped(number.round() as u64)
}
