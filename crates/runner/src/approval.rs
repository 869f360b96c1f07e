//! Asking a person whether a call may be made.

use std::fmt::Write;

use futures_util::future::BoxFuture;

use crate::tool_host::ToolCall;
use crate::truncate::{shares, truncate_middle};

/// Asks a person whether a call may be made. It may be asked about several calls at the same time.
pub trait Approver: Send + Sync {
    /// Waits for the person's decision.
    fn approve<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, Approval>;
}

/// A person's decision about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    /// The call may be made.
    Given,
    /// The person said no, or anything but a clear yes.
    Declined,
    /// Nobody can be asked, or nobody answered.
    Unavailable,
}

/// An approver that decides the same about every call.
impl Approver for Approval {
    fn approve<'a>(&'a self, _: &'a ToolCall) -> BoxFuture<'a, Approval> {
        Box::pin(std::future::ready(*self))
    }
}

/// For the values of all arguments together.
const VALUES_CHARS_MAX: usize = 600;
/// However many arguments there are, at least this much of each is shown.
const VALUE_CHARS_MIN: usize = 24;
const NAME_CHARS_MAX: usize = 80;
const ARGS_MAX: usize = 50;

/// The question that a person is asked about a call. Every argument is named, so that a long one cannot hide another.
pub fn approval_question(call: &ToolCall) -> String {
    let mut question = format!("A program wants to call `{}` of the server `{}`", name(&call.tool), name(&call.server));
    if call.args.is_empty() {
        return question + " without arguments";
    }
    question.push_str(" with");
    let values: Vec<String> = call.args.values().map(|value| visible(&value.to_string())).collect();
    let sizes: Vec<usize> = values.iter().map(|value| value.chars().count()).collect();
    let shares = shares(&sizes, 0, VALUES_CHARS_MAX);
    let shown = call.args.keys().zip(&values).zip(shares).take(ARGS_MAX);
    for ((key, value), share) in shown {
        // Writing to a string cannot fail.
        write!(question, "\n  {}: {}", name(key), truncate_middle(value, share.max(VALUE_CHARS_MIN)))
            .unwrap_or_default();
    }
    if values.len() > ARGS_MAX {
        write!(question, "\n  and {} more arguments", values.len() - ARGS_MAX).unwrap_or_default();
    }
    question
}

/// A name that is chosen by others. Backticks are escaped, because the question puts names between backticks.
fn name(name: &str) -> String {
    truncate_middle(&visible(name).replace('`', "\\u{60}"), NAME_CHARS_MAX).into_owned()
}

/// Escapes characters that cannot be seen or that change how the rest is displayed, and joins runs of spaces, which could
/// push the rest out of sight.
fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            ' ' if visible.ends_with(' ') => {}
            '"' | '\'' | '\\' => visible.push(letter),
            // Letters and marks that have no visible shape.
            '\u{34f}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{e0000}'..='\u{e0fff}' => {
                visible.extend(letter.escape_unicode());
            }
            // `escape_debug` escapes an accent at the start of a text, but not after a letter.
            _ => visible.extend(format!("a{letter}").escape_debug().skip(1)),
        }
    }
    visible
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asked(server: &str, tool: &str, args: Value) -> String {
        let Value::Object(args) = args else { panic!("arguments are an object") };
        approval_question(&ToolCall {
            server: server.to_owned(),
            tool: tool.to_owned(),
            args,
            idempotency_key: String::new(),
        })
    }

    #[test]
    fn every_argument_is_named_however_long_the_others_are() {
        let args =
            json!({ "body": "x".repeat(5_000), "force": true, "path": format!("/{}/etc/passwd", "a".repeat(900)) });
        let question = asked("files", "write", args);
        let lines: Vec<&str> = question.lines().collect();
        assert_eq!(lines[0], "A program wants to call `write` of the server `files` with");
        assert!(lines[1].starts_with("  body: \"xxx") && lines[1].contains(" more characters) …xxx"), "{question}");
        assert_eq!(lines[2], "  force: true");
        assert!(lines[3].starts_with("  path: \"/aaa") && lines[3].ends_with("/etc/passwd\""), "{question}");
        assert!(question.chars().count() < 800, "{question}");
    }

    #[test]
    fn many_arguments_are_counted() {
        let args = (0..1_000).map(|number| (format!("{number}{}", "n".repeat(500)), json!("v".repeat(500)))).collect();
        let question = asked("s", "t", Value::Object(args));
        assert!(question.ends_with("\n  and 950 more arguments"), "{question}");
        assert!(question.chars().count() < 12_000, "{}", question.chars().count());
    }

    #[test]
    fn nothing_in_a_question_is_hidden_or_disguised() {
        let args = json!({ "a\u{202e}b": format!("ls{}; rm -rf ~\u{200b}\n\u{1b}[2K", " ".repeat(5_000)), "ü": "e\u{301} हिन्दी" });
        let expected = "A program wants to call `x\\u{60} of y` of the server `s\\u{2066}\\u{3164}` with\n  \
                        a\\u{202e}b: \"ls ; rm -rf ~\\u{200b}\\n\\u001b[2K\"\n  ü: \"e\u{301} हिन्दी\"";
        assert_eq!(asked("s\u{2066}\u{3164}", "x` of y", args), expected);
        assert_eq!(asked("s", "t", json!({})), "A program wants to call `t` of the server `s` without arguments");
    }
}
