//! Prints the reports on a terminal of 100 columns.

use std::io::{self, Write};

use serde_json::Value;

use super::conversation::{DemoCall, DemoEvent};
use super::one_call::OneCallCosts;
use super::report::{CostComparison, ScenarioReport};
use crate::text_style::{TextStyle, TextStyler, bytes, clip, clip_line, grouped, plural, times, wrap};

pub(crate) struct Screen<W: Write> {
    pub out: W,
    pub styler: TextStyler,
}

const COLUMNS: usize = 100;
const GUTTER: usize = 8;
const ROOM: usize = COLUMNS - GUTTER;
/// For the only program of a conversation.
const PROGRAM_LINES_MAX: usize = 13;
/// For each program, if there are more.
const PROGRAM_LINES_MAX_EACH: usize = 5;
const ANSWER_LINES_MAX: usize = 4;

impl<W: Write> Screen<W> {
    pub(crate) fn title(&mut self, address: &str) -> io::Result<()> {
        let styler = self.styler;
        writeln!(
            self.out,
            "{}",
            styler.style(TextStyle::Bold, &format!("Code mode through the gateway on http://{address}/v1"))
        )?;
        let lines = [
            "The model is played from a script and the tools are the demo's own; everything between them is real:",
            "the client's requests, the programs that run, and the tokens (o200k) of every prompt.",
        ];
        lines.iter().try_for_each(|line| writeln!(self.out, "{}", styler.style(TextStyle::Dim, line)))
    }

    pub(crate) fn report(&mut self, number: usize, story: &ScenarioReport) -> io::Result<()> {
        let ScenarioReport { scenario, conversation, .. } = story;
        let heading = format!("{number}. {}: {} ", scenario.name, scenario.title);
        let rule = "─".repeat(COLUMNS.saturating_sub(heading.chars().count()));
        writeln!(
            self.out,
            "\n{}{}",
            self.styler.style(TextStyle::Bold, &heading),
            self.styler.style(TextStyle::Dim, &rule)
        )?;
        for (at, line) in wrap(&scenario.question, ROOM).iter().enumerate() {
            self.line(if at == 0 { "user" } else { "" }, line)?;
        }
        let lines_max = if conversation.programs().count() > 1 { PROGRAM_LINES_MAX_EACH } else { PROGRAM_LINES_MAX };
        let mut last_program = "";
        let mut round = 0;
        for event in &conversation.events {
            match event {
                DemoEvent::Search(query) => {
                    self.line("model", &format!("search {}", clip(&format!("{query:?}"), ROOM - 7)))?;
                }
                DemoEvent::Program(code) => {
                    self.program(code, last_program, lines_max)?;
                    last_program = code;
                }
                DemoEvent::Round(calls) => {
                    round += 1;
                    self.round(round, calls)?;
                }
                DemoEvent::ToolResult(text) => self.tool_result(text)?,
            }
        }
        let calls = conversation.calls().count();
        let requests = plural(conversation.requests, "request");
        let twice = if conversation.has_repeated_calls() { "some twice" } else { "none twice" };
        let code = if conversation.client_saw_code { "the program" } else { "no code" };
        self.line("client", &format!("{requests}, {}, {twice}, {code}", plural(calls, "ordinary tool call")))?;
        self.answer(story)?;
        self.costs(story)
    }

    fn line(&mut self, label: &str, text: &str) -> io::Result<()> {
        let label = format!("{label:<GUTTER$}");
        writeln!(self.out, "{}{text}", self.styler.style(TextStyle::Blue, &label))
    }

    /// Prints a program. Lines at its start that are the same as in the previous program are left out.
    fn program(&mut self, code: &str, before: &str, lines_max: usize) -> io::Result<()> {
        let lines: Vec<&str> = code.lines().collect();
        let same = lines.iter().zip(before.lines()).take_while(|(a, b)| **a == *b).count();
        let mut shown: Vec<String> = Vec::new();
        if same > 0 {
            shown.push(self.styler.style(TextStyle::Dim, &format!("… {} as before", plural(same, "line"))));
        }
        let new = &lines[same..];
        let kept = if new.len() > lines_max { lines_max - 1 } else { new.len() };
        shown.extend(new[..kept].iter().map(|line| self.styler.code(&clip_line(line, ROOM))));
        if kept < new.len() {
            shown.push(self.styler.style(TextStyle::Dim, &format!("… {}", plural(new.len() - kept, "more line"))));
        }
        for (at, line) in shown.iter().enumerate() {
            self.line(if at == 0 { "model" } else { "" }, line)?;
        }
        Ok(())
    }

    /// Prints the calls of a round. More than two calls of the same tool share a line.
    fn round(&mut self, number: usize, calls: &[DemoCall]) -> io::Result<()> {
        let mut tools: Vec<&str> = Vec::new();
        for call in calls {
            if !tools.contains(&call.tool.as_str()) {
                tools.push(&call.tool);
            }
        }
        let mut lines = Vec::new();
        for tool in tools {
            let same: Vec<&DemoCall> = calls.iter().filter(|call| call.tool == tool).collect();
            match same.as_slice() {
                [first, _, _, ..] => lines.push(self.calls(&format!("{} × ", same.len()), first, &same)),
                few => lines.extend(few.iter().map(|call| self.calls("", call, &[call]))),
            }
        }
        for (at, line) in lines.iter().enumerate() {
            self.line(&if at == 0 { format!("round {number}") } else { String::new() }, line)?;
        }
        Ok(())
    }

    fn calls(&self, times: &str, first: &DemoCall, all: &[&DemoCall]) -> String {
        const SIZE: usize = 9;
        const ARROW: usize = 3;
        const CALL: usize = 44;
        let call = clip(&format!("{times}{} {}", first.tool, first.arguments), CALL);
        let answer = clip(&first.answer, ROOM - CALL - ARROW - SIZE);
        let padding = ROOM - CALL - ARROW - SIZE - answer.chars().count();
        let style = if first.is_error { TextStyle::Red } else { TextStyle::Green };
        let size = bytes(all.iter().map(|call| call.answer.len()).sum());
        format!("{call:<CALL$} → {}{}{size:>SIZE$}", self.styler.style(style, &answer), " ".repeat(padding))
    }

    /// Prints a tool result of the model: declarations, or the result of a program.
    fn tool_result(&mut self, text: &str) -> io::Result<()> {
        let result: Value = serde_json::from_str(text).unwrap_or_default();
        let size = bytes(text.len());
        let room = ROOM - size.len() - 3;
        let (label, shown, style) = if result["status"] == "error" {
            let error = &result["error"];
            let place = error["line"].as_u64().map_or_else(String::new, |line| format!(" (line {line})"));
            let message = error["message"].as_str().unwrap_or_default();
            ("failed", format!("{}{place}", clip(message, room - place.len())), Some(TextStyle::Red))
        } else if result.is_object() {
            ("result", clip(&result["data"].to_string(), room), None)
        } else {
            let functions = text.lines().filter_map(|line| line.trim().strip_prefix("declare function "));
            let names: Vec<&str> = functions.filter_map(|line| line.split('(').next()).collect();
            ("found", clip(&names.join(", "), room), None)
        };
        let shown = match style {
            Some(style) => self.styler.style(style, &shown),
            None => shown,
        };
        self.line(label, &format!("{shown} {}", self.styler.style(TextStyle::Dim, &format!("({size})"))))
    }

    fn answer(&mut self, story: &ScenarioReport) -> io::Result<()> {
        let answer = &story.conversation.answer;
        let lines: Vec<&str> = answer.lines().filter(|line| !line.trim().is_empty()).collect();
        let kept = if lines.len() > ANSWER_LINES_MAX { ANSWER_LINES_MAX - 1 } else { lines.len() };
        for (at, line) in lines[..kept].iter().enumerate() {
            let line = self.styler.style(TextStyle::Bold, &clip_line(line, ROOM));
            self.line(if at == 0 { "answer" } else { "" }, &line)?;
        }
        if kept < lines.len() {
            let more = format!("… {}", plural(lines.len() - kept, "more line"));
            self.line("", &self.styler.style(TextStyle::Dim, &more))?;
        }
        if !story.is_right() {
            let wrong = format!("WRONG; the data say: {}", clip(&story.scenario.expected, ROOM - 22));
            self.line("", &self.styler.style(TextStyle::Red, &wrong))?;
        }
        Ok(())
    }

    fn costs(&mut self, story: &ScenarioReport) -> io::Result<()> {
        let CostComparison { code, sequential, parallel } = story.costs;
        for (name, cost) in [("code mode", code), ("classic, sequential", sequential), ("classic, parallel", parallel)]
        {
            let is_code = name == "code mode";
            let ratio = |more, than| if is_code { String::new() } else { times(more, than) };
            let line = format!(
                "{name:<20}{:>4} model calls {:<8}{:>12} context tokens {}",
                cost.model_calls,
                ratio(cost.model_calls, code.model_calls),
                grouped(cost.context_tokens),
                ratio(cost.context_tokens, code.context_tokens),
            );
            let line = line.trim_end();
            self.line("", &if is_code { self.styler.style(TextStyle::Green, line) } else { line.to_owned() })?;
        }
        Ok(())
    }

    /// What a task of one small call costs, where programs do not pay.
    pub(crate) fn one_call(&mut self, costs: OneCallCosts) -> io::Result<()> {
        writeln!(self.out, "\nA task of one small call, with two tools: context tokens over both model calls")?;
        for (name, cost) in [
            ("callers = \"programs\" (default)", costs.programs),
            ("callers = \"both\"", costs.both),
            ("classic", costs.classic),
        ] {
            writeln!(self.out, "{name:<34}{:>8}", grouped(cost.context_tokens))?;
        }
        Ok(())
    }

    pub(crate) fn summary(&mut self, reports: &[ScenarioReport]) -> io::Result<()> {
        let heads = [
            format!("{:<18}{:^30}  {:^44}", "", "model calls", "context tokens"),
            format!(
                "{:<18}{:>4}{:>13}{:>13}  {:>8}{:>18}{:>18}",
                "", "code", "sequential", "parallel", "code", "sequential", "parallel"
            ),
        ];
        writeln!(self.out)?;
        for head in heads {
            writeln!(self.out, "{}", self.styler.style(TextStyle::Dim, head.trim_end()))?;
        }
        let all = reports.iter().fold(CostComparison::default(), |all, story| all.plus(story.costs));
        let rows = reports.iter().map(|story| (story.scenario.name, story.costs));
        for (name, costs) in rows.chain((reports.len() > 1).then_some(("all", all))) {
            let own =
                |number, width: usize| self.styler.style(TextStyle::Green, &format!("{:>width$}", grouped(number)));
            let other = |number, own, width: usize| format!("{:>width$}{:>7}", grouped(number), times(number, own));
            let CostComparison { code, sequential, parallel } = costs;
            let calls = [
                own(code.model_calls, 4),
                other(sequential.model_calls, code.model_calls, 6),
                other(parallel.model_calls, code.model_calls, 6),
            ];
            let tokens = [
                own(code.context_tokens, 8),
                other(sequential.context_tokens, code.context_tokens, 11),
                other(parallel.context_tokens, code.context_tokens, 11),
            ];
            writeln!(self.out, "{name:<18}{}  {}", calls.concat(), tokens.concat())?;
        }
        let notes = [
            "Classic tool calling has the same tools, calls and answers; sequential asks the model after every",
            "call, parallel after every round. Below 1× it is cheaper. Tokens are summed over all model calls.",
        ];
        notes.iter().try_for_each(|line| writeln!(self.out, "{}", self.styler.style(TextStyle::Dim, line)))
    }
}
