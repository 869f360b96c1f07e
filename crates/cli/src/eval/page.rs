//! What an evaluation found, as one page without scripts: figures, failures, and every task in both modes.

use std::fmt::Write;
use std::sync::Arc;

use super::Subject;
use super::run::{EvalRun, Mode};
use super::screen::short;
use super::summary::{Estimate, Figures, Summary};
use super::task::Task;

const STYLE: &str = include_str!("page.css");

pub(super) fn page(subject: &Subject, summary: &Summary, tasks: &[Arc<Task>], runs: &[EvalRun]) -> String {
    let mut page = Page(String::new());
    let Subject { model, upstream, tasks: count, repeat } = subject;
    let title = format!("{model}: classic tool calls and code mode");
    page.raw("<!doctype html><html lang=en><meta charset=utf-8>");
    page.raw("<meta name=viewport content=\"width=device-width, initial-scale=1\">");
    page.element("title", "", &title);
    page.raw("<style>");
    page.raw(STYLE);
    page.raw("</style><main>");
    page.element("h1", "", &title);
    page.element(
        "p",
        "",
        &format!("{count} tasks with simulated tools, each played {repeat}× in each mode. Upstream: {upstream}."),
    );
    page.summary(summary);
    page.failures(summary);
    page.raw("<h2>Tasks</h2>");
    for task in tasks {
        page.task(task, runs);
    }
    page.raw("</main></html>\n");
    page.0
}

struct Page(String);

impl Page {
    fn raw(&mut self, html: &str) {
        self.0.push_str(html);
    }

    /// Text that nobody can take for markup.
    fn text(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '&' => self.0.push_str("&amp;"),
                '"' => self.0.push_str("&quot;"),
                _ => self.0.push(character),
            }
        }
    }

    fn element(&mut self, name: &str, class: &str, text: &str) {
        // Writing to a text cannot fail.
        _ = write!(self.0, "<{name} class=\"{class}\">");
        self.text(text);
        _ = write!(self.0, "</{name}>");
    }

    fn summary(&mut self, summary: &Summary) {
        self.raw("<h2>Figures</h2><table><thead><tr>");
        for head in ["", "done", "success", "", "model calls", "tokens in", "tokens out", "tool calls", "seconds"] {
            self.element("th", "", head);
        }
        self.raw("</tr></thead>");
        for mode in &summary.modes {
            self.raw("<tbody>");
            self.figures(mode.mode.name(), "all", &mode.all);
            for (kind, figures) in &mode.kinds {
                self.figures(kind, "", figures);
            }
            self.raw("</tbody>");
        }
        self.raw(
            "</table><p class=note>Means per task; below them the 95 % interval: of the success by Wilson, of the ",
        );
        self.raw("others over repeats, if there are any.</p>");
    }

    fn figures(&mut self, name: &str, class: &str, figures: &Figures) {
        let Figures { runs, successes, success, .. } = figures;
        _ = write!(self.0, "<tr class=\"{class}\">");
        self.element("th", "", name);
        self.element("td", "", &format!("{successes}/{runs}"));
        let percent = |share: f64| (share * 100.0).round();
        self.raw("<td>");
        self.element("span", "", &format!("{} %", percent(success.mean)));
        if let Some((low, high)) = success.interval {
            self.element("small", "", &format!("{} to {}", percent(low), percent(high)));
        }
        _ = write!(self.0, "</td><td><meter min=0 max=1 value=\"{:.3}\"></meter></td>", success.mean);
        for figure in [figures.model_calls, figures.tokens_in, figures.tokens_out, figures.tool_calls, figures.seconds]
        {
            self.estimate(figure);
        }
        self.raw("</tr>");
    }

    fn estimate(&mut self, Estimate { mean, interval }: Estimate) {
        self.raw("<td>");
        self.element("span", "", &short(mean));
        if let Some((low, high)) = interval {
            self.element("small", "", &format!("{} to {}", short(low), short(high)));
        }
        self.raw("</td>");
    }

    fn failures(&mut self, summary: &Summary) {
        self.raw("<h2>Failures by kind</h2>");
        if summary.modes.iter().all(|mode| mode.failures.is_empty()) {
            self.element("p", "", "None.");
            return;
        }
        self.raw("<table>");
        for mode in &summary.modes {
            for (kind, tasks) in &mode.failures {
                self.raw("<tr>");
                self.element("th", "", mode.mode.name());
                self.element("td", "", kind.name());
                self.element("td", "", &mode.failed_runs.get(kind).copied().unwrap_or_default().to_string());
                let tasks: Vec<&str> = tasks.iter().map(String::as_str).collect();
                self.element("td", "names", &tasks.join(", "));
                self.raw("</tr>");
            }
        }
        self.raw("</table>");
    }

    fn task(&mut self, task: &Task, runs: &[EvalRun]) {
        let of = |mode: Mode| runs.iter().filter(move |run| run.id.task == task.name && run.id.mode == mode);
        self.raw("<details><summary>");
        for mode in [Mode::Classic, Mode::Code] {
            let (all, done) = (of(mode).count(), of(mode).filter(|run| run.failure.is_none()).count());
            if all > 0 {
                let class = if done == all { "done" } else { "failed" };
                self.element("span", class, &format!("{mode} {done}/{all}"));
            }
        }
        self.element("b", "", &task.name);
        self.element("i", "", &task.kind);
        self.raw("</summary>");
        for turn in &task.turns {
            self.element("p", "question", &turn.question);
        }
        for run in [Mode::Classic, Mode::Code].into_iter().flat_map(of) {
            self.run(run);
        }
        self.raw("</details>");
    }

    fn run(&mut self, run: &EvalRun) {
        self.raw("<article>");
        let cost = run.cost;
        let class = if run.failure.is_none() { "done" } else { "failed" };
        self.element("span", class, &format!("{}, {}", run.id.mode, run.id.repeat));
        let figures = format!(
            "{} model calls, {} tool calls, {} tokens in, {} out, {:.2} s",
            cost.model_calls, cost.tool_calls, cost.tokens_in, cost.tokens_out, cost.seconds
        );
        self.element("small", "", &figures);
        for answer in &run.answers {
            self.element("pre", "", answer);
        }
        for detail in run.failure.iter().flat_map(|failure| &failure.details) {
            self.element("p", "failed", detail);
        }
        self.raw("</article>");
    }
}
