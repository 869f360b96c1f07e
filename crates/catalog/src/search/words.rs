//! Splits texts into words: identifiers are split, letters folded, and texts in scripts without spaces cut into pairs of
//! letters.

/// Longer runs of letters are hashes and encoded data, not words.
const WORD_BYTES_MAX: usize = 40;

/// What stood around a word in its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WordPlace {
    /// Where the word begins, in bytes.
    pub(super) start: usize,
    /// Whether the word is two neighbours written as one: `git` and `hub` in `GitHub`.
    pub(super) joined: bool,
}

/// Calls `each` with every word of `text`, in lower case and without accents.
pub(super) fn for_each_word(text: &str, mut each: impl FnMut(&str, WordPlace)) {
    let mut reader = WordSplitter { word: String::new(), start: 0, chain: Chain::None };
    let mut before = LetterKind::Other;
    let mut at = 0;
    while let Some(letter) = text[at..].chars().next() {
        if reader.is_between_words()
            && let Some(word) = plain_word(&text[at..])
        {
            each(word, WordPlace { start: at, joined: false });
            before = LetterKind::Lower;
            at += word.len();
            continue;
        }
        let start = at;
        at += letter.len_utf8();
        let next = text[at..].chars().next().map_or(LetterKind::Other, LetterKind::of);
        let kind = LetterKind::of(letter);
        match kind {
            LetterKind::Other if is_apostrophe(letter) && before.is_word() => {
                at += contraction(&text[at..]);
                reader.finish(Boundary::Space, &mut each);
            }
            LetterKind::Other => {
                let glue = letter == '-' && next.is_word();
                reader.finish(if glue { Boundary::Glue } else { Boundary::Space }, &mut each);
            }
            LetterKind::Unspaced => {
                reader.finish(Boundary::Space, &mut each);
                if let Some(word) = unspaced_word(&text[start..], before) {
                    each(word, WordPlace { start, joined: false });
                }
            }
            LetterKind::Upper | LetterKind::Lower | LetterKind::Digit => {
                if reader.ends_before(kind, before, next) {
                    reader.finish(Boundary::Glue, &mut each);
                }
                reader.push(start, letter);
            }
        }
        before = kind;
    }
    reader.finish(Boundary::Space, &mut each);
}

/// The word at the beginning, if there is nothing to do about it: most words are of this kind.
fn plain_word(text: &str) -> Option<&str> {
    let length = text.bytes().position(|byte| !byte.is_ascii_lowercase()).unwrap_or(text.len());
    let ends =
        text.as_bytes().get(length).is_none_or(|byte| matches!(byte, b' ' | b'.' | b',' | b'_' | b')' | b'\n' | b':'));
    (length > 0 && length <= WORD_BYTES_MAX && ends).then(|| &text[..length])
}

/// The letters of a word as they are compared: lower case, no accents.
pub(super) fn fold(word: &str) -> String {
    let mut folded = String::with_capacity(word.len());
    for letter in word.chars() {
        push_folded(&mut folded, letter);
    }
    folded
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LetterKind {
    Upper,
    Lower,
    Digit,
    /// A letter of a script that puts no spaces between words.
    Unspaced,
    Other,
}

impl LetterKind {
    fn of(letter: char) -> LetterKind {
        match letter {
            'a'..='z' => LetterKind::Lower,
            'A'..='Z' => LetterKind::Upper,
            '0'..='9' => LetterKind::Digit,
            '\0'..='\x7f' => LetterKind::Other,
            _ if is_unspaced(letter) => LetterKind::Unspaced,
            _ if letter.is_uppercase() => LetterKind::Upper,
            _ if letter.is_alphabetic() || is_mark(letter) => LetterKind::Lower,
            _ if letter.is_numeric() => LetterKind::Digit,
            _ => LetterKind::Other,
        }
    }

    fn is_word(self) -> bool {
        matches!(self, LetterKind::Upper | LetterKind::Lower | LetterKind::Digit)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Boundary {
    Space,
    /// A hyphen or a change of case: the two sides may also be one word.
    Glue,
}

struct WordSplitter {
    word: String,
    start: usize,
    chain: Chain,
}

/// The parts that are glued to the one that is being read.
#[derive(Debug, PartialEq, Eq)]
enum Chain {
    None,
    One(String),
    /// Too many to be one word: `create-calendar-event`.
    Longer,
}

impl WordSplitter {
    fn push(&mut self, at: usize, letter: char) {
        if self.word.is_empty() {
            self.start = at;
        }
        push_folded(&mut self.word, letter);
    }

    fn is_between_words(&self) -> bool {
        self.word.is_empty() && self.chain == Chain::None
    }

    /// Whether a new word begins with the next letter: `get|Weather`, `HTTP|Request`, `ride|2`.
    fn ends_before(&self, kind: LetterKind, before: LetterKind, next: LetterKind) -> bool {
        match kind {
            LetterKind::Upper => {
                before == LetterKind::Lower || before == LetterKind::Upper && next == LetterKind::Lower
            }
            // `mp3` and `k8s` are words.
            LetterKind::Digit => before != LetterKind::Digit && self.word.len() > 3,
            _ => before == LetterKind::Digit && self.is_number(),
        }
    }

    fn is_number(&self) -> bool {
        self.word.bytes().all(|byte| byte.is_ascii_digit())
    }

    fn finish(&mut self, boundary: Boundary, each: &mut impl FnMut(&str, WordPlace)) {
        let chain = std::mem::replace(&mut self.chain, Chain::None);
        if self.word.is_empty() {
            return;
        }
        if self.word.len() <= WORD_BYTES_MAX && !self.is_number() {
            each(&self.word, WordPlace { start: self.start, joined: false });
            match (chain, boundary) {
                (Chain::None, Boundary::Glue) => self.chain = Chain::One(self.word.clone()),
                (Chain::One(_) | Chain::Longer, Boundary::Glue) => self.chain = Chain::Longer,
                (Chain::One(first), Boundary::Space) if first.len() + self.word.len() <= WORD_BYTES_MAX => {
                    each(&(first + &self.word), WordPlace { start: self.start, joined: true });
                }
                _ => {}
            }
        }
        self.word.clear();
    }
}

/// The word at the beginning, in a script without spaces. Its words cannot be told apart without a
/// dictionary; pairs of letters do almost as well.
fn unspaced_word(text: &str, before: LetterKind) -> Option<&str> {
    let mut letters = text.char_indices().map(|(at, letter)| at + letter.len_utf8());
    let one = letters.next()?;
    let pair = letters.next().filter(|two| text[one..*two].chars().all(is_unspaced));
    match pair {
        Some(two) => Some(&text[..two]),
        // Otherwise the letter ends a pair.
        None => (before != LetterKind::Unspaced).then(|| &text[..one]),
    }
}

/// How long the ending after an apostrophe is: `user's`, `I'll`; but not `l'email`.
fn contraction(text: &str) -> usize {
    let length = text.find(|letter: char| !letter.is_alphabetic()).unwrap_or(text.len());
    if length <= 2 { length } else { 0 }
}

fn is_apostrophe(letter: char) -> bool {
    matches!(letter, '\'' | '\u{2019}')
}

fn is_unspaced(letter: char) -> bool {
    matches!(letter,
        '\u{0e00}'..='\u{0eff}' // Thai, Lao
        | '\u{1780}'..='\u{17ff}' // Khmer
        | '\u{3041}'..='\u{30ff}' // kana
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' // Han
        | '\u{ac00}'..='\u{d7af}' // Hangul: spaced, but endings stick to the nouns
        | '\u{20000}'..='\u{3ffff}')
}

fn is_mark(letter: char) -> bool {
    matches!(letter, '\u{0300}'..='\u{036f}' | '\u{0900}'..='\u{0dff}')
}

fn push_folded(word: &mut String, letter: char) {
    if letter.is_ascii() {
        word.push(letter.to_ascii_lowercase());
        return;
    }
    for lower in letter.to_lowercase() {
        match LATIN.iter().find(|(accented, _)| accented.contains(lower)) {
            Some((_, plain)) => word.push_str(plain),
            None if is_accent(lower) => {}
            None => word.push(lower),
        }
    }
}

fn is_accent(letter: char) -> bool {
    matches!(letter, '\u{0300}'..='\u{036f}')
}

const LATIN: &[(&str, &str)] = &[
    ("àáâãäåāăąạảấầẩẫậắằẳẵặ", "a"),
    ("çćĉċč", "c"),
    ("ďđð", "d"),
    ("èéêëēĕėęěẹẻẽếềểễệ", "e"),
    ("ĝğġģ", "g"),
    ("ĥħ", "h"),
    ("ìíîïĩīĭįıỉị", "i"),
    ("ĵ", "j"),
    ("ķ", "k"),
    ("ĺļľŀł", "l"),
    ("ñńņňŋ", "n"),
    ("òóôõöøōŏőơọỏốồổỗộớờởỡợ", "o"),
    ("ŕŗř", "r"),
    ("śŝşšș", "s"),
    ("ţťŧț", "t"),
    ("ùúûüũūŭůűųưụủứừửữự", "u"),
    ("ŵ", "w"),
    ("ýÿŷỳỵỷỹ", "y"),
    ("źżž", "z"),
    ("ß", "ss"),
    ("æ", "ae"),
    ("œ", "oe"),
    ("þ", "th"),
];
