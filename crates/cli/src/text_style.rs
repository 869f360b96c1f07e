//! Terminal colours, and the formatting of texts and numbers.

use std::io::IsTerminal;

#[derive(Debug, Clone, Copy)]
pub(crate) struct TextStyler {
    mode: ColorMode,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum TextStyle {
    Bold,
    Dim,
    Blue,
    Green,
    Red,
    Violet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ColorMode {
    Ansi,
    Plain,
}

impl TextStyler {
    /// Colours if stdout is a terminal and `NO_COLOR` is not set.
    pub(crate) fn of_stdout() -> TextStyler {
        let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_wanted = std::io::stdout().is_terminal() && !is_refused;
        TextStyler { mode: if is_wanted { ColorMode::Ansi } else { ColorMode::Plain } }
    }

    pub(crate) fn style(self, style: TextStyle, text: &str) -> String {
        let code = match style {
            TextStyle::Bold => 1,
            TextStyle::Dim => 2,
            TextStyle::Red => 31,
            TextStyle::Green => 32,
            TextStyle::Blue => 34,
            TextStyle::Violet => 35,
        };
        if self.mode == ColorMode::Ansi && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Colours keywords and string literals in a line of a program.
    pub(crate) fn code(self, line: &str) -> String {
        const KEYWORDS: [&str; 16] = [
            "async",
            "await",
            "catch",
            "const",
            "else",
            "for",
            "function",
            "if",
            "instanceof",
            "let",
            "new",
            "of",
            "return",
            "throw",
            "try",
            "while",
        ];
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        let mut painted = String::new();
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let (end, style) = match first {
                '"' | '`' => {
                    let close = rest[1..].find(first).map_or(rest.len(), |at| at + 2);
                    (close, Some(TextStyle::Green))
                }
                _ if is_word(first) => {
                    let end = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
                    (end, KEYWORDS.contains(&&rest[..end]).then_some(TextStyle::Violet))
                }
                _ => (first.len_utf8(), None),
            };
            let (piece, after) = rest.split_at(end);
            match style {
                Some(style) => painted += &self.style(style, piece),
                None => painted += piece,
            }
            rest = after;
        }
        painted
    }
}

/// The text on one line, cut to `chars_max` characters.
pub(crate) fn clip(text: &str, chars_max: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    clip_line(&line, chars_max)
}

/// A line cut to `chars_max` characters. Its spaces stay as they are.
pub(crate) fn clip_line(line: &str, chars_max: usize) -> String {
    if line.chars().count() <= chars_max {
        return line.to_owned();
    }
    let kept: String = line.chars().take(chars_max.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Breaks a text between words into lines of at most `chars_max` characters.
pub(crate) fn wrap(text: &str, chars_max: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= chars_max {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// 1234567 as 1,234,567.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn bytes(count: usize) -> String {
    if count < 10_000 {
        format!("{} B", grouped(count as u64))
    } else {
        format!("{} kB", grouped(count as u64 / 1_000))
    }
}

/// The ratio of two numbers, such as `3.2×`.
pub(crate) fn times(more: u64, than: u64) -> String {
    let tenths = (more * 10 + than / 2) / than.max(1);
    if tenths < 100 {
        format!("{}.{}×", tenths / 10, tenths % 10)
    } else {
        format!("{}×", grouped((tenths + 5) / 10))
    }
}

pub(crate) fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{} {noun}s", grouped(count as u64)) }
}
