//! Asking a person whether a call may be made.

use std::fmt::Write;
use std::future::Future;
use std::pin::Pin;

use crate::ask::Ask;
use crate::cut::shares;

/// Whoever can be asked for approval. Questions may come at the same time.
pub trait Approver: Send + Sync {
    fn approve<'a>(&'a self, ask: &'a Ask) -> Pin<Box<dyn Future<Output = Approval> + Send + 'a>>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    Given,
    Declined,
    /// There is nobody to ask.
    Nobody,
}

/// Answers the same to every question.
impl Approver for Approval {
    fn approve<'a>(&'a self, _: &'a Ask) -> Pin<Box<dyn Future<Output = Approval> + Send + 'a>> {
        Box::pin(std::future::ready(*self))
    }
}

/// For the values of all arguments together.
const VALUES_CHARS_MAX: usize = 600;
/// However many arguments there are, this much of each is shown.
const VALUE_CHARS_LEAST: usize = 24;
const NAME_CHARS_MAX: usize = 80;
const ARGS_MAX: usize = 50;

/// What a person reads before deciding. Every argument is named, so that none hides behind another.
pub fn question(ask: &Ask) -> String {
    let mut question = format!("A program wants to call `{}` of the server `{}`", name(&ask.tool), name(&ask.server));
    if ask.args.is_empty() {
        return question + " without arguments";
    }
    question.push_str(" with");
    let values: Vec<String> = ask.args.values().map(|value| plain(&value.to_string())).collect();
    let sizes: Vec<usize> = values.iter().map(|value| value.chars().count()).collect();
    let shares = shares(&sizes, 0, VALUES_CHARS_MAX);
    let shown = ask.args.keys().zip(&values).zip(shares).take(ARGS_MAX);
    for ((key, value), share) in shown {
        // Writing to a string cannot fail.
        write!(question, "\n  {}: {}", name(key), middle_cut(value, share.max(VALUE_CHARS_LEAST))).unwrap_or_default();
    }
    if values.len() > ARGS_MAX {
        write!(question, "\n  and {} more arguments", values.len() - ARGS_MAX).unwrap_or_default();
    }
    question
}

/// A name that others chose. It must not end before it does.
fn name(name: &str) -> String {
    middle_cut(&plain(name).replace('`', "\\u{60}"), NAME_CHARS_MAX)
}

/// Both ends: what matters may stand at either.
fn middle_cut(text: &str, chars_max: usize) -> String {
    let count = text.chars().count();
    if count <= chars_max {
        return text.to_owned();
    }
    let tail = chars_max / 3;
    let head: String = text.chars().take(chars_max - tail).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{head}… ({} more characters) …{end}", count - chars_max)
}

/// Text that looks like what it is: what cannot be seen, or changes how the rest is seen, is escaped, and blanks do not
/// push anything out of sight.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            ' ' if plain.ends_with(' ') => {}
            '"' | '\'' | '\\' => plain.push(letter),
            // Letters that look like nothing.
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
                plain.extend(letter.escape_unicode());
            }
            // After another letter, where an accent may stand.
            _ => plain.extend(format!("a{letter}").escape_debug().skip(1)),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asked(server: &str, tool: &str, args: Value) -> String {
        let Value::Object(args) = args else { panic!("arguments are an object") };
        question(&Ask { server: server.to_owned(), tool: tool.to_owned(), args, key: String::new() })
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
