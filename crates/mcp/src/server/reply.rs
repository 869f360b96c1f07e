//! The result of `execute`: what a program returned, or why it failed.

use std::fmt::Write;

use dacapo_catalog::shorten;
use dacapo_replay::MadeCall;
use dacapo_runner::{Execution, RunError, truncate_json};
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Logs, and lists of calls, may each take this part of the budget of the data.
const LOGS_DIVISOR: usize = 5;

const UNAVAILABLE_MAX: usize = 5;
const UNAVAILABLE_CHARS_MAX: usize = 120;

const REUSED: &str =
    "Completed by the program before and not executed again, unless {fresh: true} is passed as the second argument";
const NARROW: &str = "Return less: filter, slice, count, or pick the fields that you need in the program.";

/// Structured content, the same as text, and the images and files whose handles are in the data.
///
/// For a program that failed, servers that are not available are listed: their missing functions may be the reason.
pub(super) fn reply(
    execution: &Execution,
    shapes: &[String],
    unavailable: &[String],
    chars_max: usize,
) -> CallToolResult {
    let mut omitted = Vec::new();
    let mut fields = Map::new();
    let mut text = String::new();
    match &execution.result {
        Ok(data) => {
            let data = serde_json::from_str(data.get()).expect("a result is JSON, and not nested deeply");
            let data = truncated("data", data, chars_max, &mut omitted);
            match &data {
                Value::String(string) => text.push_str(string),
                other => write!(text, "{other}").unwrap_or_default(),
            }
            fields.insert("status".to_owned(), "success".into());
            fields.insert("data".to_owned(), data);
        }
        Err(run_error) => {
            let error = serde_json::to_value(run_error).unwrap_or_default();
            let error = truncated("error", error, chars_max, &mut omitted);
            write_error(run_error, &error, &mut text);
            fields.insert("status".to_owned(), "error".into());
            fields.insert("error".to_owned(), error);
            let unavailable = brief(unavailable);
            if !unavailable.is_empty() {
                write!(text, "\nServers not available now: {}", unavailable.join("; ")).unwrap_or_default();
                fields.insert("unavailable".to_owned(), json!(unavailable));
            }
        }
    }
    for (title, key, calls) in listed_calls(execution) {
        let calls = truncated(key, json!(calls), chars_max / LOGS_DIVISOR, &mut omitted);
        write_calls(title, &calls, &mut text);
        fields.insert(key.to_owned(), calls);
    }
    if !execution.logs.is_empty() {
        let logs = serde_json::to_value(&execution.logs).unwrap_or_default();
        let logs = truncated("logs", logs, chars_max / LOGS_DIVISOR, &mut omitted);
        text.push_str("\n\nLogs:");
        for line in logs.as_array().into_iter().flatten() {
            let level = line["level"].as_str().filter(|level| *level != "log");
            text.push('\n');
            // Writing to a string cannot fail.
            level.map_or(Ok(()), |level| write!(text, "[{level}] ")).unwrap_or_default();
            text.push_str(line["text"].as_str().unwrap_or_default());
        }
        fields.insert("logs".to_owned(), logs);
    }
    if !shapes.is_empty() {
        write!(text, "\n\nShapes of answers:\n{}", shapes.join("\n")).unwrap_or_default();
        fields.insert("shapes".to_owned(), json!(shapes));
    }
    fields.insert("calls".to_owned(), json!(execution.calls));
    let blocks: Vec<_> =
        execution.attachments.iter().map(|attachment| ContentBlock::deserialize(&attachment.block).ok()).collect();
    let unreadable = blocks.iter().filter(|block| block.is_none()).count();
    let mut sentences = Vec::new();
    if !omitted.is_empty() {
        sentences.push(format!("Too long, so it was cut: {}. {NARROW}", omitted.join("; ")));
    }
    if unreadable > 0 {
        sentences.push(format!(
            "{unreadable} of the images and files are of a kind that is not known here, and are left out."
        ));
    }
    if !sentences.is_empty() {
        let missing = sentences.join(" ");
        write!(text, "\n\n{missing}").unwrap_or_default();
        fields.insert("missing".to_owned(), missing.into());
    }
    let mut content = vec![ContentBlock::text(text)];
    content.extend(blocks.into_iter().flatten());
    let mut result =
        if execution.result.is_ok() { CallToolResult::success(content) } else { CallToolResult::error(content) };
    result.structured_content = Some(Value::Object(fields));
    result
}

/// The first servers that are not available, each with a short reason, and how many more there are.
pub(super) fn brief(unavailable: &[String]) -> Vec<String> {
    let short = |server: &String| shorten(server, UNAVAILABLE_CHARS_MAX);
    let mut brief: Vec<String> = unavailable.iter().take(UNAVAILABLE_MAX).map(short).collect();
    if unavailable.len() > UNAVAILABLE_MAX {
        brief.push(format!("{} more", unavailable.len() - UNAVAILABLE_MAX));
    }
    brief
}

fn truncated(name: &str, value: Value, chars_max: usize, omitted: &mut Vec<String>) -> Value {
    let truncated = truncate_json(name, value, chars_max);
    omitted.extend(truncated.omitted);
    truncated.value
}

fn write_error(run_error: &RunError, error: &Value, text: &mut String) {
    let part = |key: &str| error[key].as_str().unwrap_or_default();
    write!(text, "{}: {}", run_error.name(), part("message")).unwrap_or_default();
    for part in [part("frame"), part("stack")].into_iter().filter(|part| !part.is_empty()) {
        write!(text, "\n{part}").unwrap_or_default();
    }
    for (title, key) in [("Completed calls", "completed"), ("Not completed", "unfinished")] {
        write_calls(title, &error[key], text);
    }
}

/// Calls that are in neither the data nor the error.
fn listed_calls(execution: &Execution) -> Vec<(&'static str, &'static str, &[MadeCall])> {
    let mut listed =
        vec![("Refused, so not made", "refused", &execution.refused[..]), (REUSED, "reused", &execution.reused[..])];
    if execution.result.is_ok() {
        listed.push(("Sent, but not waited for", "unfinished", &execution.unfinished[..]));
    }
    listed.retain(|(_, _, calls)| !calls.is_empty());
    listed
}

fn write_calls(title: &str, calls: &Value, text: &mut String) {
    let named = |made: &Value| format!("{} ({})", made["tool"].as_str().unwrap_or_default(), made["call"]);
    let calls: Vec<String> = calls.as_array().into_iter().flatten().map(named).collect();
    if !calls.is_empty() {
        write!(text, "\n{title}: {}", calls.join(", ")).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_are_not_available_take_little_room() {
        let few = vec!["attic (no such file)".to_owned()];
        assert_eq!(brief(&few), few);
        let many: Vec<String> = (0..40).map(|number| format!("{number} ({})", "é".repeat(500))).collect();
        let brief = brief(&many);
        assert_eq!((brief.len(), brief[5].as_str()), (6, "35 more"));
        assert!(
            brief[0].starts_with("0 (éé")
                && brief[0].ends_with('…')
                && brief[0].chars().count() == UNAVAILABLE_CHARS_MAX + 1
        );
    }
}
