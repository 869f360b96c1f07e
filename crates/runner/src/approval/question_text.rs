//! A question about a call, as a person reads it.
//!
//! Everything in it is chosen by the program and by servers, which may want to mislead the person. So nothing of the call is
//! left out unless it is very long, and then the first line says so.

use std::fmt::Write;

use super::standing::object_shape;
use super::{ApprovalQuestion, DefinitionChange};
use crate::truncate::{shares, truncate_middle};

/// Of a question that is sent to a client or shown at a terminal. More than people read, and few enough to be displayed.
const ARGS_CHARS_MAX: usize = 20_000;
/// If not all fits: the arguments that are shown, the least that is shown of each value, and the most of each name.
const ARGS_MAX: usize = 100;
const VALUE_CHARS_MIN: usize = 24;
const NAME_CHARS_MAX: usize = 60;
/// A longer shape is described and not spelled out. The arguments themselves are above it.
const SHAPE_CHARS_MAX: usize = 2_000;
/// Longer runs of spaces, which could push the rest out of sight, are counted.
const SPACES_MAX: usize = 16;

/// The text of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionText {
    /// What is asked. The first line says if something is missing.
    pub text: String,
    /// Characters of the arguments that the text does not have.
    pub hidden_chars: usize,
}

impl QuestionText {
    /// Whether the text shows all of the call.
    pub fn is_complete(&self) -> bool {
        self.hidden_chars == 0
    }
}

/// One argument, ready to be shown.
struct ShownArgument {
    name: String,
    value: String,
}

impl ShownArgument {
    fn chars(&self) -> usize {
        self.name.chars().count() + self.value.chars().count()
    }
}

impl ApprovalQuestion {
    /// The question for a person, shortened if the arguments are very long.
    pub fn text(&self) -> QuestionText {
        let arguments = self.arguments();
        let chars: usize = arguments.iter().map(ShownArgument::chars).sum::<usize>() + self.names_chars();
        if chars <= ARGS_CHARS_MAX {
            return QuestionText { text: self.complete_text(), hidden_chars: 0 };
        }
        let (lines, hidden_chars) = shortened(&arguments);
        let (tool, server) = (name(&self.call.tool), name(&self.call.server));
        let (tool, server) = (truncate_middle(&tool, NAME_CHARS_MAX), truncate_middle(&server, NAME_CHARS_MAX));
        let text = format!(
            "NOT EVERYTHING IS SHOWN: {hidden_chars} of {chars} characters of this call are missing below.\n\
             {}A program wants to call `{tool}` of the server `{server}` with{lines}",
            self.change_line()
        );
        QuestionText { text, hidden_chars: hidden_chars.max(1) }
    }

    /// The question with every character of the call, however long it is.
    pub fn complete_text(&self) -> String {
        let mut text = format!("{}A program wants to call {}", self.change_line(), self.tool());
        let arguments = self.arguments();
        text.push_str(if arguments.is_empty() { " without arguments" } else { " with" });
        for ShownArgument { name, value } in arguments {
            // Writing to a string cannot fail.
            write!(text, "\n  {name}: {value}").unwrap_or_default();
        }
        text
    }

    /// The tool and its server.
    pub fn tool(&self) -> String {
        format!("`{}` of the server `{}`", name(&self.call.tool), name(&self.call.server))
    }

    /// Which calls are allowed by [`ApprovalVerdict::AllowForProgram`](super::ApprovalVerdict).
    pub fn coverage(&self) -> String {
        let shape = visible(&object_shape(&self.call.args));
        let shape = if self.call.args.is_empty() {
            "without arguments".to_owned()
        } else if shape.chars().count() > SHAPE_CHARS_MAX {
            "whose arguments have the names and types of those above, whatever their values".to_owned()
        } else {
            format!("with arguments of this shape, whatever their values: {shape}")
        };
        format!("this call, and every further call by this program of {} {shape}", self.tool())
    }

    fn change_line(&self) -> &'static str {
        match self.change {
            DefinitionChange::None => "",
            DefinitionChange::SinceApproval => {
                "THE TOOL HAS CHANGED since it was last approved: its server describes it differently now.\n"
            }
        }
    }

    fn names_chars(&self) -> usize {
        name(&self.call.tool).chars().count() + name(&self.call.server).chars().count()
    }

    fn arguments(&self) -> Vec<ShownArgument> {
        let shown = |(key, value): (&String, &serde_json::Value)| ShownArgument {
            name: name(key),
            value: visible(&value.to_string()),
        };
        self.call.args.iter().map(shown).collect()
    }
}

/// The arguments in at most about `ARGS_CHARS_MAX` characters, and how many characters are missing.
fn shortened(arguments: &[ShownArgument]) -> (String, usize) {
    let (shown, others) = arguments.split_at(arguments.len().min(ARGS_MAX));
    let names: Vec<_> = shown.iter().map(|argument| truncate_middle(&argument.name, NAME_CHARS_MAX)).collect();
    let name_chars: usize = names.iter().map(|name| name.chars().count()).sum();
    let sizes: Vec<usize> = shown.iter().map(|argument| argument.value.chars().count()).collect();
    let shares = shares(&sizes, 0, ARGS_CHARS_MAX.saturating_sub(name_chars));
    let (mut lines, mut hidden) = (String::new(), 0);
    for ((argument, name), (size, share)) in shown.iter().zip(names).zip(sizes.into_iter().zip(shares)) {
        let share = share.max(VALUE_CHARS_MIN);
        hidden += size.saturating_sub(share) + argument.name.chars().count().saturating_sub(NAME_CHARS_MAX);
        write!(lines, "\n  {name}: {}", truncate_middle(&argument.value, share)).unwrap_or_default();
    }
    if !others.is_empty() {
        let chars: usize = others.iter().map(ShownArgument::chars).sum();
        hidden += chars;
        write!(lines, "\n  and {} more arguments with {chars} characters, none of which is shown", others.len())
            .unwrap_or_default();
    }
    (lines, hidden)
}

/// A name that is chosen by others. Backticks are escaped, because the question puts names between backticks.
fn name(name: &str) -> String {
    visible(name).replace('`', "\\u{60}")
}

/// Escapes characters that cannot be seen or that change how the rest is displayed.
fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let spaces = rest.len() - rest.trim_start_matches(' ').len();
        rest = &rest[spaces.max(letter.len_utf8())..];
        match letter {
            ' ' if spaces > SPACES_MAX => write!(visible, " [{spaces} spaces] ").unwrap_or_default(),
            ' ' => visible.extend(std::iter::repeat_n(' ', spaces)),
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
    use crate::tool_host::ToolCall;

    fn question(server: &str, tool: &str, args: Value) -> ApprovalQuestion {
        let Value::Object(args) = args else { panic!("arguments are an object") };
        let call = ToolCall {
            server: server.to_owned(),
            tool: tool.to_owned(),
            args,
            idempotency_key: String::new(),
            approved: None,
        };
        ApprovalQuestion { call, definition: None, change: DefinitionChange::None }
    }

    #[test]
    fn nothing_hides_between_padding() {
        let command = format!("ls {}; rm -rf /{}", "a".repeat(700), "b".repeat(700));
        let asked = question("shell", "run", json!({ "force": true, "command": command })).text();
        let expected = format!(
            "A program wants to call `run` of the server `shell` with\n  force: true\n  command: \"{command}\""
        );
        assert_eq!(asked, QuestionText { text: expected, hidden_chars: 0 });
    }

    #[test]
    fn every_argument_is_shown_and_not_only_the_first_fifty() {
        let args: Value = (0..200).map(|number| (format!("a{number}"), json!(number))).collect();
        let asked = question("s", "t", args).text();
        assert_eq!(asked.text.lines().count(), 201);
        assert!(asked.is_complete() && asked.text.ends_with("\n  a199: 199"), "{}", asked.text);
    }

    #[test]
    fn what_is_too_long_to_be_shown_is_counted_in_the_first_line() {
        let body = format!("{}; rm -rf /{}", "x".repeat(15_000), "y".repeat(15_000));
        let asked = question("files", "write", json!({ "body": body, "force": true }));
        let shown = asked.text();
        let lines: Vec<&str> = shown.text.lines().collect();
        let missing = "NOT EVERYTHING IS SHOWN: 10025 of 30035 characters of this call are missing below.";
        assert_eq!(lines[..2], [missing, "A program wants to call `write` of the server `files` with"]);
        assert!(lines[2].starts_with("  body: \"xxx") && lines[2].contains("… (10025 more characters) …yyy"));
        assert_eq!(lines[3], "  force: true");
        assert_eq!(shown.hidden_chars, 10_025);
        assert!(asked.complete_text().contains("xx; rm -rf /yy"));
    }

    #[test]
    fn arguments_that_are_too_many_are_counted() {
        let args = (0..1_000).map(|number| (format!("{number}{}", "n".repeat(500)), json!("v".repeat(500)))).collect();
        let asked = question("s", "t", Value::Object(args));
        let shown = asked.text();
        let end = "\n  and 900 more arguments with 904500 characters, none of which is shown";
        assert!(shown.text.ends_with(end), "{}", shown.text);
        assert!(shown.text.chars().count() < 30_000, "{}", shown.text.chars().count());
        assert_eq!(asked.complete_text().lines().count(), 1_001);
        assert!(!question("s", &"t".repeat(30_000), json!({})).text().is_complete());
    }

    #[test]
    fn nothing_in_a_question_is_hidden_or_disguised() {
        let args = json!({ "a\u{202e}b": format!("ls{}; rm -rf  ~\u{200b}\n\u{1b}[2K", " ".repeat(5_000)), "ü": "e\u{301} हिन्दी" });
        let expected = "A program wants to call `x\\u{60} of y` of the server `s\\u{2066}\\u{3164}` with\n  \
                        a\\u{202e}b: \"ls [5000 spaces] ; rm -rf  ~\\u{200b}\\n\\u001b[2K\"\n  ü: \"e\u{301} हिन्दी\"";
        assert_eq!(question("s\u{2066}\u{3164}", "x` of y", args).text().text, expected);
        let asked = question("s", "t", json!({})).text().text;
        assert_eq!(asked, "A program wants to call `t` of the server `s` without arguments");
    }

    #[test]
    fn an_approval_for_a_program_says_what_it_covers() {
        let asked = question("files", "write", json!({ "path": "/a", "tags": ["x"] }));
        let expected = "this call, and every further call by this program of `write` of the server `files` with \
                        arguments of this shape, whatever their values: { path: string, tags: string[] }";
        assert_eq!(asked.coverage(), expected);
    }

    #[test]
    fn a_tool_that_changed_is_said_to_have_changed_in_the_first_line() {
        let asked = ApprovalQuestion { change: DefinitionChange::SinceApproval, ..question("s", "t", json!({})) };
        let first = "THE TOOL HAS CHANGED since it was last approved: its server describes it differently now.";
        assert_eq!(asked.text().text.lines().next(), Some(first));
    }
}
