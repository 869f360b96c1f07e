//! What a client sends beside tool results: remarks, and words of the user.
//!
//! Agents add text on their own: reminders, the state of their environment, the image that a tool returned. A program
//! goes on beside such remarks, and the model reads them with its result. Words of the user end a program before its
//! next call.

/// Whether content beside tool results ends a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    Remark,
    UserWords,
}

/// Tags in which agents wrap text that no person wrote.
const WRAPPERS: [&str; 4] = ["system-reminder", "environment_context", "environment_details", "user_instructions"];

/// Beginnings of text of agents that a person wrote: messages that arrived while the agent was working.
const USER_WORDS_TITLES: [&str; 2] =
    ["The user sent a new message while you were working:", "The user sent the following message:"];

/// Beginnings of the line with which clients send the image or file that a tool returned. It ends with a colon: a person
/// who writes about an image writes more.
const ATTACHMENT_TITLES: [&str; 6] = [
    "This is file ",
    "Attached image",
    "Attached file",
    "Attached media",
    "Image from tool result",
    "Tool result image",
];

const REMINDER: (&str, &str) = ("<system-reminder>", "</system-reminder>");

/// A tool's result without the reminders at its end, and those: agents append them, and the result itself may be JSON.
pub(crate) fn split_reminders(result: &str) -> (&str, Option<String>) {
    let mut end = result.len();
    while let Some(body) = result[..end].trim_end().strip_suffix(REMINDER.1) {
        let Some(start) = body.rfind(REMINDER.0) else { break };
        end = start;
    }
    if end == result.len() {
        return (result, None);
    }
    (result[..end].trim_end(), Some(result[end..].trim().to_owned()))
}

/// Whether the reminders at the end of a tool's result hold words of the user.
pub(crate) fn are_user_words(reminders: &str) -> bool {
    classify([reminders], MediaBeside::None) == Beside::UserWords
}

/// Whether a text is one that the user wrote meanwhile. Claude Code sends such words also in a message of role
/// `system`.
pub(crate) fn is_titled_as_user_words(text: &str) -> bool {
    USER_WORDS_TITLES.iter().any(|title| text.trim_start().starts_with(title))
}

/// Classifies a message: its texts, and whether images or files stand beside them.
pub(crate) fn classify<'a>(texts: impl IntoIterator<Item = &'a str>, media: MediaBeside) -> Beside {
    let is_remark = |text: &str| {
        let rest = without_wrapped(text);
        let rest = rest.trim();
        let is_line = || rest.ends_with(':') && !rest.contains('\n');
        let is_title = || is_line() && ATTACHMENT_TITLES.iter().any(|title| rest.starts_with(title));
        rest.is_empty() || media == MediaBeside::Attached && is_title()
    };
    if texts.into_iter().all(is_remark) { Beside::Remark } else { Beside::UserWords }
}

/// Whether a message has images or files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MediaBeside {
    Attached,
    None,
}

impl MediaBeside {
    pub(crate) fn attached_if(any: bool) -> MediaBeside {
        if any { MediaBeside::Attached } else { MediaBeside::None }
    }
}

/// The text without what agents wrote between the tags of a wrapper. One pass: a tag that is never closed is looked for once.
fn without_wrapped(text: &str) -> String {
    let mut open_tags: Vec<(String, String)> =
        WRAPPERS.iter().map(|tag| (format!("<{tag}>"), format!("</{tag}>"))).collect();
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let wrapper = open_tags.iter().position(|(open, _)| rest.starts_with(open));
        match wrapper.map(|wrapper| (wrapper, rest.find(&open_tags[wrapper].1))) {
            Some((wrapper, Some(end))) => {
                let (open, close) = &open_tags[wrapper];
                let inside = rest[open.len()..end].trim();
                if is_titled_as_user_words(inside) {
                    kept.push_str(inside);
                }
                rest = &rest[end + close.len()..];
            }
            unclosed => {
                if let Some((wrapper, None)) = unclosed {
                    open_tags.remove(wrapper);
                }
                kept.push('<');
                rest = &rest[1..];
            }
        }
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reminders_at_the_end_of_a_result_are_not_part_of_it() {
        let one = "<system-reminder>Be brief.</system-reminder>";
        let of = |text: &'static str| (text, Some(one.to_owned()));
        assert_eq!(split_reminders(&format!("{{\"a\": 1}}\n\n{one}\n")), of("{\"a\": 1}"));
        assert_eq!(split_reminders(&format!("text {one} {one}")), ("text", Some(format!("{one} {one}"))));
        assert_eq!(split_reminders(one), of(""));
        for text in ["", " a ", "<system-reminder>never closed", "a</system-reminder>", &format!("{one} and more")] {
            assert_eq!(split_reminders(text), (text, None));
        }
    }

    #[test]
    fn wrapped_reminders_and_attachments_are_remarks_and_anything_else_is_the_users() {
        let remarks = [
            ("", MediaBeside::None),
            ("  \n", MediaBeside::None),
            ("<system-reminder>Be brief.</system-reminder>", MediaBeside::None),
            (
                "<system-reminder>a</system-reminder>\n\n<environment_context>b</environment_context>\n",
                MediaBeside::None,
            ),
            ("This is file 12ab:", MediaBeside::Attached),
            ("Attached image(s) from tool result:", MediaBeside::Attached),
            ("Attached media from tool result:", MediaBeside::Attached),
        ];
        let words = [
            ("Stop. Do not write any file.", MediaBeside::None),
            ("[Request interrupted by user for tool use]", MediaBeside::None),
            ("<system-reminder>a</system-reminder> and stop", MediaBeside::None),
            ("<system-reminder>never closed", MediaBeside::None),
            (
                "<system-reminder>\nThe user sent a new message while you were working:\nStop\n</system-reminder>",
                MediaBeside::None,
            ),
            (
                "<system-reminder>\nThe user sent the following message:\nStop\n\nPlease address it.\n</system-reminder>",
                MediaBeside::None,
            ),
            ("This is file 12ab:", MediaBeside::None),
            ("What do you think of this one?", MediaBeside::Attached),
            ("<b>Stop</b>", MediaBeside::None),
            ("<context>Stop</context>", MediaBeside::None),
            ("This is file 12ab: stop, it is the wrong one.", MediaBeside::Attached),
        ];
        assert!(remarks.iter().all(|(text, media)| classify([*text], *media) == Beside::Remark));
        for (text, media) in words {
            assert_eq!(classify([text], media), Beside::UserWords, "{text}");
        }
        assert_eq!(classify([], MediaBeside::Attached), Beside::Remark);
        assert_eq!(classify(["<system-reminder>x</system-reminder>", "Stop"], MediaBeside::None), Beside::UserWords);
    }
}
