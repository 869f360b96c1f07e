//! Placeholders in the texts of a script, such as `{{user}}`.

use std::borrow::Cow;

use serde_json::Value;

use crate::scripted_conversation::{Role, ScriptedConversation};

/// Fills `{{user}}`, `{{result}}`, `{{result/a/b}}`, `{{image}}` and `{{code}}`. All other braces stay as they are, because
/// programs contain braces too.
pub(crate) fn fill(template: &str, conversation: &ScriptedConversation<'_>) -> String {
    let mut filled = String::new();
    let mut rest = template;
    while let Some(at) = rest.find("{{") {
        let (before, opened) = rest.split_at(at);
        filled.push_str(before);
        let placeholder =
            opened[2..].split_once("}}").and_then(|(name, after)| Some((resolve(name, conversation)?, after)));
        if let Some((value, after)) = placeholder {
            filled.push_str(&value);
            rest = after;
        } else {
            filled.push('{');
            rest = &opened[1..];
        }
    }
    filled + rest
}

/// `None` if this is not a placeholder.
fn resolve(name: &str, conversation: &ScriptedConversation<'_>) -> Option<String> {
    let value = match name {
        "user" => conversation.last_text_of(Role::User).map(str::to_owned),
        "result" => conversation.last_text_of(Role::Tool).map(str::to_owned),
        "image" => conversation.last_image().map(Cow::into_owned),
        "code" => conversation.last_text_of(Role::User).and_then(fenced),
        _ => {
            let path = name.strip_prefix("result/")?;
            let value = conversation.last_text_of(Role::Tool).and_then(|result| value_at(result, path));
            return Some(value.unwrap_or_else(|| format!("<nothing at {path}>")));
        }
    };
    Some(value.unwrap_or_else(|| format!("<nothing at {name}>")))
}

fn value_at(result: &str, path: &str) -> Option<String> {
    let mut result: Value = serde_json::from_str(result).ok()?;
    Some(match result.pointer_mut(&format!("/{path}"))?.take() {
        Value::String(text) => text,
        other => other.to_string(),
    })
}

/// The code in the first Markdown fence. A fence that is not closed extends to the end.
fn fenced(text: &str) -> Option<String> {
    const FENCE: &str = "```";
    let mut lines = text.split_inclusive('\n').skip_while(|line| !line.trim_start().starts_with(FENCE));
    let opening = lines.next();
    let Some(opening) = opening.filter(|line| !line.trim_start()[FENCE.len()..].contains(FENCE)) else {
        let (_, inside) = text.split_once(FENCE)?;
        return Some(inside.split(FENCE).next().unwrap_or(inside).trim_start_matches('`').trim().into());
    };
    let opening = opening.trim_start();
    let ticks = opening.len() - opening.trim_start_matches('`').len();
    let closes = |line: &str| {
        let line = line.trim();
        line.len() >= ticks && line.bytes().all(|byte| byte == b'`')
    };
    let code: String = lines.take_while(|line| !closes(line)).collect();
    Some(code.trim_end_matches(['\r', '\n']).into())
}
