//! Estimates of tokens, for where no tokenizer is at hand: the models behind the gateway have different ones.

/// Bytes per token, on average, of JSON, TypeScript declarations and English text with the tokenizers in use.
pub const BYTES_PER_TOKEN: usize = 4;

/// About how many tokens a text takes: at most a tenth off on declarations.
pub(crate) fn estimated(text: &str) -> usize {
    // In tenths of a token.
    let mut tenths = 0;
    let mut run = Run { kind: LetterKind::Space, length: 0 };
    for letter in text.chars() {
        let kind = LetterKind::of(letter);
        if kind == run.kind {
            run.length += 1;
        } else {
            tenths += run.tenths();
            run = Run { kind, length: 1 };
        }
    }
    (tenths + run.tenths()).div_ceil(10)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LetterKind {
    Word,
    Digit,
    Space,
    Line,
    Sign,
    /// Letters of scripts that tokenizers know less of.
    Other,
}

impl LetterKind {
    fn of(letter: char) -> LetterKind {
        match letter {
            'a'..='z' | 'A'..='Z' => LetterKind::Word,
            '0'..='9' => LetterKind::Digit,
            ' ' => LetterKind::Space,
            '\n' => LetterKind::Line,
            '\0'..='\x7f' => LetterKind::Sign,
            _ => LetterKind::Other,
        }
    }
}

/// Neighbouring letters of one kind.
struct Run {
    kind: LetterKind,
    length: usize,
}

impl Run {
    fn tenths(&self) -> usize {
        let length = self.length;
        match self.kind {
            // Common words are one token, long ones fall into parts.
            LetterKind::Word if length <= 8 => 10,
            LetterKind::Word => 10 + 2 * (length - 8),
            LetterKind::Digit => 10 * length.div_ceil(3),
            // One space belongs to the word after it.
            LetterKind::Space if length == 1 => 0,
            LetterKind::Space => 10,
            LetterKind::Line => 4,
            LetterKind::Sign => 5 + 3 * length,
            LetterKind::Other => 8 * length,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::estimated;
    use crate::{Catalog, read_tools};

    #[test]
    fn estimates_are_close_to_what_a_tokenizer_counts() {
        let tokenizer = tiktoken_rs::o200k_base_singleton();
        let mut texts = vec![("no declarations".to_owned(), include_str!("tokens.rs").to_owned())];
        for directory in ["tests/corpus/tool-lists", "../../../shared/data/tool-lists"] {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
            let files = std::fs::read_dir(directory).into_iter().flatten();
            for path in files.map(|file| file.expect("the directory is readable").path()) {
                let json = std::fs::read_to_string(&path).expect("the list is readable");
                let json = serde_json::from_str(&json).expect("the list is JSON");
                let declarations = Catalog::new(read_tools(&json).expect("it is a tool list")).declarations();
                texts.push((path.display().to_string(), declarations.text().to_owned()));
            }
        }
        for (name, text) in texts {
            let counted = tokenizer.encode_ordinary(&text).len();
            let percent = estimated(&text) * 100 / counted;
            assert!((90..=110).contains(&percent), "{name}: {} for {counted} tokens", estimated(&text));
        }
    }
}
