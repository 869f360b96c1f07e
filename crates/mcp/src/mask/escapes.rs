//! Escapes of URLs (`%22`), of HTML (`&quot;`, `&#34;`, `&#x22;`), and of JSON and JavaScript (`\"`, `\u0022`, `\x22`).
//!
//! All kinds are decoded together, because texts mix them, and each encoder has its own idea of what needs an escape.

use std::ops::Range;

/// A piece of a text.
struct Piece {
    source: Range<usize>,
    decoded: DecodedPiece,
}

enum DecodedPiece {
    /// No escape: as in the source.
    Plain,
    Escape {
        bytes: [u8; 4],
        len: usize,
    },
}

impl Piece {
    fn decoded_len(&self) -> usize {
        match self.decoded {
            DecodedPiece::Plain => self.source.len(),
            DecodedPiece::Escape { len, .. } => len,
        }
    }
}

/// The text with its escapes decoded, which need not be UTF-8. `None` if it has none.
pub(super) fn unescape(source: &[u8]) -> Option<Vec<u8>> {
    if !source.iter().any(|byte| is_introducer(*byte)) {
        return None;
    }
    let mut decoded = Vec::with_capacity(source.len());
    let mut has_escapes = false;
    for piece in pieces(source) {
        match piece.decoded {
            DecodedPiece::Plain => decoded.extend_from_slice(&source[piece.source]),
            DecodedPiece::Escape { bytes, len } => {
                has_escapes = true;
                decoded.extend_from_slice(&bytes[..len]);
            }
        }
    }
    has_escapes.then_some(decoded)
}

/// Where parts of the decoded text are in its source. The ranges are in order, not empty, and do not overlap.
pub(super) fn source_ranges(source: &[u8], decoded: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::with_capacity(decoded.len());
    let (mut at, mut ended) = (0, 0);
    for piece in pieces(source) {
        let end = at + piece.decoded_len();
        let is_plain = matches!(piece.decoded, DecodedPiece::Plain);
        while let Some(range) = decoded.get(ended) {
            if ranges.len() == ended {
                if range.start >= end {
                    break;
                }
                let start = piece.source.start + if is_plain { range.start - at } else { 0 };
                ranges.push(start..start);
            }
            if range.end > end {
                break;
            }
            ranges[ended].end = if is_plain { piece.source.start + range.end - at } else { piece.source.end };
            ended += 1;
        }
        at = end;
    }
    ranges
}

fn is_introducer(byte: u8) -> bool {
    matches!(byte, b'%' | b'&' | b'\\')
}

fn pieces(source: &[u8]) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = source.get(at..).filter(|rest| !rest.is_empty())?;
        let start = at;
        if let Some((length, decoded)) = escape(rest) {
            at += length;
            return Some(Piece { source: start..at, decoded });
        }
        // What is no escape after all is plain text.
        at += 1 + rest[1..].iter().position(|byte| is_introducer(*byte)).unwrap_or(rest.len() - 1);
        Some(Piece { source: start..at, decoded: DecodedPiece::Plain })
    })
}

/// The escape at the start of a text, and its length.
fn escape(text: &[u8]) -> Option<(usize, DecodedPiece)> {
    match text.first()? {
        b'%' => Some((3, byte(number(text.get(1..3)?, 16)?)?)),
        b'&' => entity(text),
        b'\\' => backslash(text),
        _ => None,
    }
}

fn entity(text: &[u8]) -> Option<(usize, DecodedPiece)> {
    let digits = |from: usize, is_digit: fn(&u8) -> bool| {
        let count = text.iter().skip(from).take(ENTITY_BYTES_MAX).take_while(|byte| is_digit(byte)).count();
        (from + count, &text[from.min(text.len())..from + count])
    };
    let (end, decoded) = match text.get(1..3)? {
        [b'#', b'x' | b'X'] => {
            let (end, digits) = digits(3, u8::is_ascii_hexdigit);
            (end, character(number(digits, 16)?)?)
        }
        [b'#', _] => {
            let (end, digits) = digits(2, u8::is_ascii_digit);
            (end, character(number(digits, 10)?)?)
        }
        _ => {
            let (end, name) = digits(1, u8::is_ascii_alphabetic);
            let (_, letter) = ENTITIES.iter().find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name))?;
            (text.get(end) == Some(&b';')).then_some(())?;
            (end, character(u32::from(*letter))?)
        }
    };
    // Browsers take numbers without the semicolon.
    Some((end + usize::from(text.get(end) == Some(&b';')), decoded))
}

fn backslash(text: &[u8]) -> Option<(usize, DecodedPiece)> {
    let one = |letter: u8| Some((2, byte(u32::from(letter))?));
    match text.get(1)? {
        b'n' => one(b'\n'),
        b'r' => one(b'\r'),
        b't' => one(b'\t'),
        b'b' => one(8),
        b'f' => one(12),
        letter @ (b'"' | b'\'' | b'\\' | b'/' | b'`') => one(*letter),
        b'x' => Some((4, byte(number(text.get(2..4)?, 16)?)?)),
        b'u' if text.get(2) == Some(&b'{') => {
            let digits = text[3..].iter().take(ENTITY_BYTES_MAX).take_while(|byte| byte.is_ascii_hexdigit()).count();
            (text.get(3 + digits) == Some(&b'}')).then_some(())?;
            Some((4 + digits, character(number(&text[3..3 + digits], 16)?)?))
        }
        b'u' => {
            let unit = number(text.get(2..6)?, 16)?;
            if let Some(decoded) = character(unit) {
                return Some((6, decoded));
            }
            // One half of a pair of surrogates.
            let low = number(text.get(6..12)?.strip_prefix(b"\\u")?, 16)?;
            let pair = (0xD800..0xDC00).contains(&unit) && (0xDC00..0xE000).contains(&low);
            pair.then_some(())?;
            Some((12, character(0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00))?))
        }
        _ => None,
    }
}

/// More than any name below has letters, and any character has digits.
const ENTITY_BYTES_MAX: usize = 8;

/// The names of HTML for characters that secrets may have.
const ENTITIES: [(&str, char); 36] = [
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
    ("quot", '"'),
    ("apos", '\''),
    ("excl", '!'),
    ("num", '#'),
    ("dollar", '$'),
    ("percnt", '%'),
    ("lpar", '('),
    ("rpar", ')'),
    ("ast", '*'),
    ("midast", '*'),
    ("plus", '+'),
    ("comma", ','),
    ("period", '.'),
    ("sol", '/'),
    ("colon", ':'),
    ("semi", ';'),
    ("equals", '='),
    ("quest", '?'),
    ("commat", '@'),
    ("lsqb", '['),
    ("lbrack", '['),
    ("bsol", '\\'),
    ("rsqb", ']'),
    ("rbrack", ']'),
    ("hat", '^'),
    ("lowbar", '_'),
    ("grave", '`'),
    ("lcub", '{'),
    ("lbrace", '{'),
    ("verbar", '|'),
    ("vert", '|'),
    ("rcub", '}'),
    ("rbrace", '}'),
];

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    // `from_str_radix` takes a sign.
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u32::from_str_radix(digits, radix).ok()
}

fn byte(value: u32) -> Option<DecodedPiece> {
    Some(DecodedPiece::Escape { bytes: [u8::try_from(value).ok()?, 0, 0, 0], len: 1 })
}

fn character(code: u32) -> Option<DecodedPiece> {
    let mut bytes = [0; 4];
    let len = char::from_u32(code)?.encode_utf8(&mut bytes).len();
    Some(DecodedPiece::Escape { bytes, len })
}
