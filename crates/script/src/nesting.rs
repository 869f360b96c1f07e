//! How deep a text may nest, and the stack that its depth needs.
//!
//! Every phase of the front end recurses over the syntax tree, so a hostile text could overflow
//! the stack of the process that hosts it. [`with_stack_for`] bounds the depth of the tree from
//! above in one cheap pass, before anything recursive runs. The bound may be too high, never too
//! low by more than a small factor: every construct that can hold another of its kind has a token
//! that counts. Ordinary texts run on the stack of the caller, deeper ones on a larger stack of
//! their own, and the rest are refused.

use std::thread;

/// A bracket takes the parser through every level of the grammar; other tokens cost far less.
const BRACKET_COST: usize = 4;
/// The parser tries every `<` as the start of type arguments, in time that grows with their square.
const ANGLE_COST: usize = 16;
const COST_MAX: usize = 4_000;
const STACK_BYTES_PER_COST: usize = if cfg!(debug_assertions) { 8 << 10 } else { 4 << 10 };
/// How far to look for the end of what may be a regular expression.
const UNCLEAR_BYTES_MAX: usize = 256;
/// Stack that every caller is assumed to have left.
const CALLER_STACK_BYTES: usize = 1 << 20;
const COST_ON_CALLER_STACK_MAX: usize = CALLER_STACK_BYTES / STACK_BYTES_PER_COST;

/// A text that nests deeper than the front end can follow.
#[derive(Debug)]
pub(crate) struct TooDeep {
    pub(crate) offset: usize,
}

pub(crate) const TOO_DEEP: &str = "the program nests too deeply, or has too long an expression, at this point; \
    split it into several statements or build the value in a loop";

/// Runs the front end for `text` on a stack that is large enough for it.
pub(crate) fn with_stack_for<T: Send>(text: &str, run: impl FnOnce() -> T + Send) -> Result<T, TooDeep> {
    let mut scan = Scan::new(text);
    scan.run();
    if let Some(offset) = scan.too_deep_at {
        return Err(TooDeep { offset });
    }
    if scan.cost_max <= COST_ON_CALLER_STACK_MAX {
        return Ok(run());
    }
    let stack_bytes = CALLER_STACK_BYTES + scan.cost_max * STACK_BYTES_PER_COST;
    thread::scope(|scope| {
        let spawned = thread::Builder::new().stack_size(stack_bytes).spawn_scoped(scope, run);
        match spawned.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            // No room for such a stack now.
            Err(_) => Err(TooDeep { offset: 0 }),
        }
    })
}

/// What the token before the current one means for a `/` and for a line break that follow it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// The end of a value: `/` divides, a line break may end the statement.
    Operand,
    /// An operator or the like: `/` starts a regular expression.
    Operator,
    Semicolon,
    Dot,
    /// A `}`: what a `/` is depends on what it closes, but a line break may end the statement.
    Brace,
    /// An operand or an operator; only the grammar decides.
    Unclear,
}

/// One level of brackets.
struct BracketLevel {
    closer: u8,
    in_template: bool,
    /// What the closing bracket is.
    after: Before,
    /// Tokens that can deepen the tree since the last `,` or `;`.
    run: usize,
    /// Those that go on deepening it beyond, like `else`.
    kept: usize,
    /// Every `<` that may start type arguments and that no `>` has closed.
    angles: usize,
}

impl BracketLevel {
    fn cost(&self) -> usize {
        self.run + self.kept + self.angles * ANGLE_COST
    }
}

struct Scan<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    levels: Vec<BracketLevel>,
    /// Cost of all levels together.
    cost: usize,
    cost_max: usize,
    too_deep_at: Option<usize>,
    before: Before,
    /// What the word before is to a `(`.
    header: Before,
    line_break: bool,
    /// The scan cannot tell code from text any more, so that every token counts and no bracket closes.
    lost: bool,
}

impl<'t> Scan<'t> {
    fn new(text: &'t str) -> Self {
        let top = BracketLevel { closer: 0, in_template: false, after: Before::Operand, run: 0, kept: 0, angles: 0 };
        Self {
            text,
            bytes: text.as_bytes(),
            at: if text.starts_with("#!") { line_length(text) } else { 0 },
            levels: vec![top],
            cost: 0,
            cost_max: 0,
            too_deep_at: None,
            before: Before::Semicolon,
            header: Before::Operand,
            line_break: true,
            lost: false,
        }
    }

    fn run(&mut self) {
        loop {
            self.skip_spaces();
            if self.at >= self.bytes.len() || self.too_deep_at.is_some() {
                return;
            }
            self.token();
        }
    }

    /// Most of the characters between two tokens.
    fn skip_spaces(&mut self) {
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b' ' | b'\t' | 0x0b | 0x0c => {}
                b'\n' | b'\r' => self.line_break = true,
                _ => return,
            }
            self.at += 1;
        }
    }

    fn token(&mut self) {
        if self.skip_trivia() {
            return;
        }
        let byte = self.bytes[self.at];
        let header = std::mem::replace(&mut self.header, Before::Operand);
        match byte {
            b'/' if !self.lost => self.slash(),
            b'\'' | b'"' if !self.lost => self.string(byte),
            b'`' if !self.lost => {
                self.count(1);
                self.at += 1;
                self.template();
            }
            b'(' => self.open(b')', header),
            b'[' => self.open(b']', Before::Operand),
            b'{' => self.open(b'}', Before::Brace),
            b')' | b']' | b'}' => self.close(byte),
            b';' | b',' => self.separator(byte),
            b'<' => {
                self.operator(1, Before::Operator);
                self.level().angles += 1;
                self.add(ANGLE_COST);
            }
            b'>' => {
                self.operator(1, Before::Unclear);
                if self.level().angles > 0 && !self.lost {
                    self.level().angles -= 1;
                    self.cost -= ANGLE_COST;
                }
            }
            b'=' if self.next_is(b'>') => self.operator(2, Before::Operator),
            b'+' | b'-' if self.next_is(byte) => self.operator(2, Before::Unclear),
            b'.' => self.operator(1, Before::Dot),
            b'!' if !self.next_is(b'=') => {
                let before = match self.before {
                    Before::Operand if !self.line_break => Before::Operand,
                    Before::Operand | Before::Brace | Before::Unclear => Before::Unclear,
                    Before::Operator | Before::Semicolon | Before::Dot => Before::Operator,
                };
                self.operator(1, before);
            }
            _ => self.word_or_operator(),
        }
        self.line_break = false;
    }

    /// Skips one comment, or one white space that is not ASCII, which no token in front of it may notice.
    fn skip_trivia(&mut self) -> bool {
        let rest = &self.text[self.at..];
        let length = match self.bytes[self.at] {
            b'/' if self.next_is(b'/') && !self.lost => line_length(rest),
            b'/' if self.next_is(b'*') && !self.lost => {
                let length = rest[2..].find("*/").map_or(rest.len(), |end| end + 4);
                self.line_break |= line_length(&rest[..length]) < length;
                length
            }
            0x80.. => match rest.chars().next() {
                Some(c) if is_space(c) => {
                    self.line_break |= LINE_BREAKS.contains(&c);
                    c.len_utf8()
                }
                _ => return false,
            },
            _ => return false,
        };
        self.at += length;
        true
    }

    fn next_is(&self, byte: u8) -> bool {
        self.bytes.get(self.at + 1) == Some(&byte)
    }

    fn level(&mut self) -> &mut BracketLevel {
        self.levels.last_mut().expect("the top level is never closed")
    }

    fn count(&mut self, cost: usize) {
        self.level().run += cost;
        self.add(cost);
    }

    fn count_kept(&mut self) {
        self.level().kept += 1;
        self.add(1);
    }

    fn add(&mut self, cost: usize) {
        self.cost += cost;
        self.cost_max = self.cost_max.max(self.cost);
        if self.cost > COST_MAX {
            self.too_deep_at = Some(self.at);
        }
    }

    fn operator(&mut self, length: usize, before: Before) {
        self.begin_token();
        self.count(1);
        self.at += length;
        self.before = before;
    }

    /// A statement that does not go on with `else` leaves nothing behind.
    fn begin_token(&mut self) {
        if self.before == Before::Semicolon {
            self.end_statement();
        }
    }

    fn end_statement(&mut self) {
        if self.lost {
            return;
        }
        let level = self.level();
        let ended = level.cost();
        (level.run, level.kept, level.angles) = (0, 0, 0);
        self.cost -= ended;
    }

    fn open(&mut self, closer: u8, after: Before) {
        self.begin_token();
        self.count(1);
        self.add(BRACKET_COST);
        self.levels.push(BracketLevel { closer, in_template: false, after, run: 0, kept: 0, angles: 0 });
        self.at += 1;
        self.before = Before::Semicolon;
    }

    fn close(&mut self, closer: u8) {
        self.at += 1;
        self.before = Before::Unclear;
        if self.lost || self.level().closer != closer {
            return;
        }
        if let Some(level) = self.levels.pop() {
            self.cost -= level.cost() + BRACKET_COST;
            self.before = level.after;
            if level.in_template {
                self.template();
            }
        }
    }

    fn separator(&mut self, byte: u8) {
        self.begin_token();
        self.at += 1;
        self.before = if byte == b';' { Before::Semicolon } else { Before::Operator };
        if !self.lost {
            let run = std::mem::take(&mut self.level().run);
            self.cost -= run;
        }
    }

    fn string(&mut self, quote: u8) {
        self.begin_token();
        self.at += 1;
        self.before = Before::Operand;
        while let Some(&byte) = self.bytes.get(self.at) {
            self.at += 1;
            match byte {
                b'\\' if self.bytes[self.at..].starts_with(b"\r\n") => self.at += 2,
                b'\\' => self.at += 1,
                b'\n' | b'\r' => {
                    self.lost = true;
                    return;
                }
                _ if byte == quote => return,
                _ => {}
            }
        }
    }

    /// Skips template characters up to the end or to the next `${`.
    fn template(&mut self) {
        while let Some(&byte) = self.bytes.get(self.at) {
            self.at += 1;
            match byte {
                b'\\' => self.at += 1,
                b'`' => {
                    self.before = Before::Operand;
                    return;
                }
                b'$' if self.bytes.get(self.at) == Some(&b'{') => {
                    self.open(b'}', Before::Operand);
                    self.level().in_template = true;
                    return;
                }
                _ => {}
            }
        }
    }

    fn slash(&mut self) {
        let divides = self.before == Before::Operand && !self.line_break;
        if divides {
            return self.operator(1, Before::Operator);
        }
        let unclear = matches!(self.before, Before::Operand | Before::Brace | Before::Unclear);
        let rest = &self.bytes[self.at..];
        if !unclear {
            let Some(length) = regular_expression(rest) else {
                self.lost = true;
                return self.operator(1, Before::Operator);
            };
            self.begin_token();
            self.at += length;
            self.before = Before::Operand;
            return;
        }
        // Both readings come to the same unless there is something in it to open or to close.
        let near = &rest[..rest.len().min(UNCLEAR_BYTES_MAX)];
        self.lost = match regular_expression(near) {
            Some(length) => near[1..length].iter().any(|byte| b"'\"`\\()[]{}".contains(byte)),
            None => near.len() == UNCLEAR_BYTES_MAX && !near.contains(&b'\n'),
        };
        self.operator(1, Before::Operator);
    }

    fn word_or_operator(&mut self) {
        let rest = &self.text[self.at..];
        let mut length = word_length(rest);
        if length == 0 {
            return self.operator(1, Before::Operator);
        }
        if self.bytes[self.at].is_ascii_digit() && self.bytes.get(self.at + length) == Some(&b'.') {
            length += 1;
            length += word_length(&rest[length..]);
        }
        self.word(&rest[..length]);
        self.at += length;
    }

    fn word(&mut self, word: &str) {
        let role = if self.before == Before::Dot { KeywordRole::Name } else { KeywordRole::of(word) };
        let starts = match role {
            KeywordRole::GoesOn | KeywordRole::Infix(_) => false,
            KeywordRole::Case => true,
            KeywordRole::Name | KeywordRole::Starts(_) => match self.before {
                Before::Semicolon => true,
                Before::Operand | Before::Brace => self.line_break,
                Before::Operator | Before::Dot | Before::Unclear => false,
            },
        };
        if starts {
            self.end_statement();
        }
        self.before = match role {
            KeywordRole::Name => Before::Operand,
            KeywordRole::Starts(before) | KeywordRole::Infix(before) => before,
            KeywordRole::GoesOn | KeywordRole::Case => Before::Operator,
        };
        match role {
            KeywordRole::Name => return,
            KeywordRole::GoesOn => self.count_kept(),
            KeywordRole::Starts(_) | KeywordRole::Infix(_) | KeywordRole::Case => self.count(1),
        }
        self.header = match word {
            "if" | "while" | "for" | "with" => Before::Operator,
            "await" => Before::Unclear,
            _ => Before::Operand,
        };
    }
}

/// What a word can do to the depth of the tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeywordRole {
    /// Nothing: it is a name or a literal.
    Name,
    /// Can hold what follows, and starts a statement where it is first on its line.
    Starts(Before),
    /// Goes on with the expression or type before it.
    Infix(Before),
    /// Goes on with the statement before it.
    GoesOn,
    /// Starts an entry of a `switch`.
    Case,
}

impl KeywordRole {
    fn of(word: &str) -> Self {
        match word {
            "class" | "const" | "delete" | "do" | "enum" | "export" | "for" | "function" | "if" | "import" | "new"
            | "return" | "switch" | "throw" | "try" | "typeof" | "var" | "void" | "with" => {
                Self::Starts(Before::Operator)
            }
            "abstract" | "accessor" | "asserts" | "async" | "await" | "declare" | "get" | "global" | "infer"
            | "interface" | "keyof" | "let" | "module" | "namespace" | "override" | "private" | "protected"
            | "public" | "readonly" | "set" | "static" | "type" | "unique" | "using" | "yield" => {
                Self::Starts(Before::Unclear)
            }
            "extends" | "in" | "instanceof" => Self::Infix(Before::Operator),
            "as" | "implements" | "is" | "of" | "satisfies" => Self::Infix(Before::Unclear),
            "catch" | "else" | "finally" | "while" => Self::GoesOn,
            "case" | "default" => Self::Case,
            // Not worth reading escapes and other scripts for.
            _ if !word.bytes().all(|byte| PLAIN_WORD_BYTES[usize::from(byte)] || byte == b'.') => {
                Self::Infix(Before::Unclear)
            }
            _ => Self::Name,
        }
    }
}

/// The bytes of names and numbers in ASCII, without escapes and points.
const PLAIN_WORD_BYTES: [bool; 256] = {
    let mut is_plain = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        is_plain[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'#');
        byte += 1;
    }
    is_plain
};

const LINE_BREAKS: [char; 4] = ['\n', '\r', '\u{2028}', '\u{2029}'];

fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{feff}' | '\u{200b}')
}

fn is_word(c: char) -> bool {
    if c.is_ascii() { PLAIN_WORD_BYTES[c as usize] || c == '\\' } else { !is_space(c) }
}

fn word_length(text: &str) -> usize {
    let plain = text.bytes().take_while(|byte| PLAIN_WORD_BYTES[usize::from(*byte)]).count();
    match text.as_bytes().get(plain) {
        Some(b'\\' | 0x80..) => text[plain..].find(|c| !is_word(c)).map_or(text.len(), |length| plain + length),
        _ => plain,
    }
}

/// Up to a line break, or to the end.
fn line_length(text: &str) -> usize {
    let is_break = |(at, byte): &(usize, u8)| match byte {
        b'\n' | b'\r' => true,
        // The other two begin with this byte, and few other characters do.
        0xe2 => text[*at..].starts_with(LINE_BREAKS),
        _ => false,
    };
    text.bytes().enumerate().find(is_break).map_or(text.len(), |(at, _)| at)
}

/// The length of the regular expression that starts here, without its flags.
fn regular_expression(bytes: &[u8]) -> Option<usize> {
    let mut in_class = false;
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'\n' | b'\r' => return None,
            b'\\' => at += 1,
            b'[' => in_class = true,
            b']' => in_class = false,
            b'/' if !in_class => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
}
