//! What a client is told of a program that has ended.

use std::fmt::Write;

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

use crate::cut::cut;
use crate::execution::{Execution, Fault};

/// What logs may take beside the data: a part of the same budget.
const LOGS_SHARE: usize = 5;

const NARROW: &str = "Return less: filter, slice, count, or pick the fields that you need in the program.";

/// Structured content, the same in words, and the images and files that the data names.
///
/// A program that failed may have missed functions of servers that are not there: those are named.
pub(crate) fn reply(execution: &Execution, unavailable: &[String], chars_max: usize) -> CallToolResult {
    let mut missing = Vec::new();
    let mut fields = Map::new();
    let mut text = String::new();
    match &execution.result {
        Ok(data) => {
            let data = serde_json::from_str(data.get()).expect("a result is JSON, and not nested deeply");
            let data = shortened("data", data, chars_max, &mut missing);
            text.push_str(&match &data {
                Value::String(words) => words.clone(),
                other => other.to_string(),
            });
            fields.insert("status".to_owned(), "success".into());
            fields.insert("data".to_owned(), data);
        }
        Err(fault) => {
            let error = serde_json::to_value(fault).unwrap_or_default();
            let error = shortened("error", error, chars_max, &mut missing);
            tell(fault, &error, &mut text);
            fields.insert("status".to_owned(), "error".into());
            fields.insert("error".to_owned(), error);
            if !unavailable.is_empty() {
                write!(text, "\nServers not available now: {}", unavailable.join("; ")).unwrap_or_default();
                fields.insert("unavailable".to_owned(), json!(unavailable));
            }
        }
    }
    if !execution.logs.is_empty() {
        let logs = serde_json::to_value(&execution.logs).unwrap_or_default();
        let logs = shortened("logs", logs, chars_max / LOGS_SHARE, &mut missing);
        text.push_str("\n\nLogs:");
        for line in logs.as_array().into_iter().flatten() {
            let words = line["text"].as_str().unwrap_or_default();
            let level = line["level"].as_str().filter(|level| *level != "log");
            text.push('\n');
            // Writing to a string cannot fail.
            level.map_or(Ok(()), |level| write!(text, "[{level}] ")).unwrap_or_default();
            text.push_str(words);
        }
        fields.insert("logs".to_owned(), logs);
    }
    fields.insert("calls".to_owned(), json!(execution.calls));
    if !missing.is_empty() {
        let missing = format!("Too long, so it was cut: {}. {NARROW}", missing.join("; "));
        write!(text, "\n\n{missing}").unwrap_or_default();
        fields.insert("missing".to_owned(), missing.into());
    }
    let mut content = vec![ContentBlock::text(text)];
    let block = |block: &Value| serde_json::from_value::<ContentBlock>(block.clone());
    content.extend(execution.attachments.iter().filter_map(|attachment| block(&attachment.block).ok()));
    let mut result =
        if execution.result.is_ok() { CallToolResult::success(content) } else { CallToolResult::error(content) };
    result.structured_content = Some(Value::Object(fields));
    result
}

fn shortened(name: &str, value: Value, chars_max: usize, missing: &mut Vec<String>) -> Value {
    let cut = cut(name, value, chars_max);
    missing.extend(cut.missing);
    cut.value
}

fn tell(fault: &Fault, error: &Value, text: &mut String) {
    let part = |key: &str| error[key].as_str().unwrap_or_default();
    write!(text, "{}: {}", fault.name(), part("message")).unwrap_or_default();
    for part in [part("frame"), part("stack")].into_iter().filter(|part| !part.is_empty()) {
        write!(text, "\n{part}").unwrap_or_default();
    }
    for (title, key) in [("Completed calls", "completed"), ("Not completed", "unfinished")] {
        let named = |made: &Value| format!("{} ({})", made["tool"].as_str().unwrap_or_default(), made["call"]);
        let calls: Vec<String> = error[key].as_array().into_iter().flatten().map(named).collect();
        if !calls.is_empty() {
            write!(text, "\n{title}: {}", calls.join(", ")).unwrap_or_default();
        }
    }
}
