//! Compresses the texts that ids carry: raw DEFLATE (RFC 1951) with a preset dictionary, in one block.
//!
//! A text here has a few kilobytes, and every new program waits until its own is compressed. General compressors prepare tables
//! of a quarter of a megabyte for each text, which takes longer than compressing it. The tables here take some 15 KB for such
//! a text, and the dictionary is entered into them once. Any inflater reads what comes out, and it is as short as
//! what zlib's highest level makes.

use crate::prefix_codes::{Code, Codes};

/// The farthest that a match may reach back, which is the size of the dictionary and a text together.
pub(crate) const WINDOW_BYTES_MAX: usize = 32 << 10;

const MATCH_MIN: usize = 3;
const MATCH_MAX: usize = 258;
/// A match of three bytes from farther away takes no fewer bits than the bytes.
const SHORT_MATCH_DISTANCE_MAX: usize = 4 << 10;
/// How many earlier places with the same three bytes are tried.
const PLACES_TRIED_MAX: usize = 64;

/// The literals and lengths of matches, and [`END_OF_BLOCK`]. The last two are never used, but have codes.
const LITERALS: usize = 288;
const END_OF_BLOCK: usize = 256;
const FIRST_LENGTH: usize = 257;
const DISTANCES: usize = 30;
/// The lengths of codes, and three ways to say that one is repeated.
const CODE_LENGTHS: usize = 19;
/// The order in which the lengths of their own codes are sent.
const CODE_LENGTHS_ORDER: [usize; CODE_LENGTHS] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// The text that every compressed text may refer to, with its places looked up beforehand.
pub(crate) struct Dictionary {
    bytes: &'static [u8],
    places: Places,
}

/// Where three bytes have been before. Places are counted from 1, so that 0 means none.
#[derive(Clone)]
struct Places {
    /// The last place, by a hash of the bytes there.
    last: Box<[u16; 1 << Places::HASH_BITS]>,
    /// The place before each place, with the same hash.
    before: Vec<u16>,
}

/// A text is literals and copies of what came before them.
#[derive(Clone, Copy)]
enum Token {
    Literal(u8),
    Match(Match),
}

#[derive(Clone, Copy, Default)]
struct Match {
    length: usize,
    distance: usize,
}

/// A symbol, and what is said more exactly by bits behind it.
struct Symbol {
    number: usize,
    extra: u32,
    extra_bits: u32,
}

impl Dictionary {
    /// It may have half of the window at the most.
    pub(crate) fn new(bytes: &'static [u8]) -> Dictionary {
        let mut places = Places { last: Box::new([0; 1 << Places::HASH_BITS]), before: vec![0; bytes.len()] };
        (0..bytes.len()).for_each(|at| places.enter(bytes, at));
        Dictionary { bytes, places }
    }

    /// Whether a text fits into the window together with the dictionary.
    pub(crate) fn has_room_for(&self, text: &[u8]) -> bool {
        self.bytes.len() + text.len() <= WINDOW_BYTES_MAX
    }

    /// Compresses a text that there is [room for](Dictionary::has_room_for).
    pub(crate) fn deflate(&self, text: &[u8]) -> Vec<u8> {
        let tokens = self.tokens(text);
        let (mut literals, mut distances) = ([0_u32; LITERALS], [0_u32; DISTANCES]);
        literals[END_OF_BLOCK] = 1;
        for token in &tokens {
            match token {
                Token::Literal(byte) => literals[usize::from(*byte)] += 1,
                Token::Match(found) => {
                    literals[FIRST_LENGTH + found.length_symbol().number] += 1;
                    distances[found.distance_symbol().number] += 1;
                }
            }
        }
        let mut bits = BitWriter { bytes: Vec::with_capacity(text.len() / 2 + 64), held: 0, held_bits: 0 };
        let (literals, distances) = put_header(&mut bits, &literals, &distances);
        for token in &tokens {
            match token {
                Token::Literal(byte) => bits.put_code(literals[usize::from(*byte)]),
                Token::Match(found) => {
                    let (length, distance) = (found.length_symbol(), found.distance_symbol());
                    bits.put_code(literals[FIRST_LENGTH + length.number]);
                    bits.put(length.extra, length.extra_bits);
                    bits.put_code(distances[distance.number]);
                    bits.put(distance.extra, distance.extra_bits);
                }
            }
        }
        bits.put_code(literals[END_OF_BLOCK]);
        bits.into_bytes()
    }

    /// A match gives way to a longer one that begins a byte later.
    fn tokens(&self, text: &[u8]) -> Vec<Token> {
        let window = [self.bytes, text].concat();
        let mut places = self.places.clone();
        places.before.resize(window.len(), 0);
        let mut tokens = Vec::with_capacity(text.len() / 2);
        let mut at = self.bytes.len();
        let mut waiting = Match::default();
        while at < window.len() {
            let found = places.longest_match(&window, at, waiting.length);
            places.enter(&window, at);
            let is_waiting = waiting.length >= MATCH_MIN;
            if is_waiting && waiting.length >= found.length {
                tokens.push(Token::Match(waiting));
                let end = at - 1 + waiting.length;
                (at + 1..end).for_each(|at| places.enter(&window, at));
                (at, waiting) = (end, Match::default());
                continue;
            }
            if is_waiting {
                tokens.push(Token::Literal(window[at - 1]));
            }
            waiting = found;
            if found.length < MATCH_MIN {
                tokens.push(Token::Literal(window[at]));
            }
            at += 1;
        }
        tokens
    }
}

impl Places {
    const HASH_BITS: u32 = 12;

    /// Looked up from now on, if there are three bytes.
    fn enter(&mut self, window: &[u8], at: usize) {
        if let Some(hash) = Places::hash(window, at) {
            self.before[at] = std::mem::replace(&mut self.last[hash], at as u16 + 1);
        }
    }

    fn hash(window: &[u8], at: usize) -> Option<usize> {
        let &[a, b, c] = window.get(at..)?.first_chunk()?;
        Some((u32::from_le_bytes([a, b, c, 0]).wrapping_mul(0x9e37_79b1) >> (32 - Places::HASH_BITS)) as usize)
    }

    /// The longest match, if it is longer than `known`; of those of the same length the nearest.
    fn longest_match(&self, window: &[u8], at: usize, known: usize) -> Match {
        let mut longest = Match::default();
        let limit = (window.len() - at).min(MATCH_MAX);
        let Some(hash) = Places::hash(window, at).filter(|_| known < limit) else { return longest };
        let mut to_beat = known.max(MATCH_MIN - 1);
        let mut place = usize::from(self.last[hash]);
        for _ in 0..PLACES_TRIED_MAX {
            let Some(from) = place.checked_sub(1) else { break };
            // Most places differ there.
            if window[from + to_beat] == window[at + to_beat] {
                let length = common_bytes(&window[from..from + limit], &window[at..at + limit]);
                if length > to_beat {
                    longest = Match { length, distance: at - from };
                    if length == limit {
                        break;
                    }
                    to_beat = length;
                }
            }
            place = usize::from(self.before[from]);
        }
        if longest.length == MATCH_MIN && longest.distance > SHORT_MATCH_DISTANCE_MAX {
            Match::default()
        } else {
            longest
        }
    }
}

/// How many bytes are the same at the beginning of two slices of the same length.
fn common_bytes(a: &[u8], b: &[u8]) -> usize {
    let (wide_a, wide_b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    for (number, (a, b)) in wide_a.iter().zip(wide_b).enumerate() {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return number * 8 + differing.trailing_zeros() as usize / 8;
        }
    }
    let rest = wide_a.len() * 8;
    rest + a[rest..].iter().zip(&b[rest..]).take_while(|(a, b)| a == b).count()
}

impl Match {
    fn length_symbol(self) -> Symbol {
        let length = self.length - MATCH_MIN;
        match length {
            0..8 => Symbol { number: length, extra: 0, extra_bits: 0 },
            // The longest one has a symbol of its own.
            255 => Symbol { number: 28, extra: 0, extra_bits: 0 },
            // Four symbols for each power of two.
            _ => {
                let extra_bits = length.ilog2() - 2;
                let number = 4 * (extra_bits as usize + 1) + ((length >> extra_bits) & 3);
                Symbol { number, extra: length as u32 & ((1 << extra_bits) - 1), extra_bits }
            }
        }
    }

    fn distance_symbol(self) -> Symbol {
        let distance = self.distance - 1;
        if distance < 4 {
            return Symbol { number: distance, extra: 0, extra_bits: 0 };
        }
        // Two symbols for each power of two.
        let extra_bits = distance.ilog2() - 1;
        let number = 2 * (extra_bits as usize + 1) + ((distance >> extra_bits) & 1);
        Symbol { number, extra: distance as u32 & ((1 << extra_bits) - 1), extra_bits }
    }
}

/// Begins the last block, with the codes that make it shortest.
fn put_header(
    bits: &mut BitWriter,
    literals: &[u32; LITERALS],
    distances: &[u32; DISTANCES],
) -> (Codes<LITERALS>, Codes<DISTANCES>) {
    const LENGTH_MAX: u8 = 15;
    let of_text = (Codes::shortest(literals, LENGTH_MAX), Codes::shortest(distances, LENGTH_MAX));
    let lengths = CodeLengths::of(&of_text.0, &of_text.1);
    let of_text_bits = lengths.bits() + of_text.0.bits(literals) + of_text.1.bits(distances);
    let fixed_bits = FIXED_LITERALS.bits(literals) + FIXED_DISTANCES.bits(distances);
    bits.put(1, 1);
    if fixed_bits <= of_text_bits {
        bits.put(1, 2);
        return (FIXED_LITERALS, FIXED_DISTANCES);
    }
    bits.put(2, 2);
    lengths.put(bits);
    of_text
}

/// The codes that every inflater knows.
const FIXED_LITERALS: Codes<LITERALS> = Codes::of_lengths(fixed_literal_lengths());
const FIXED_DISTANCES: Codes<DISTANCES> = Codes::of_lengths([5; DISTANCES]);

const fn fixed_literal_lengths() -> [u8; LITERALS] {
    let mut lengths = [8; LITERALS];
    let mut literal = 144;
    while literal < 280 {
        lengths[literal] = if literal < END_OF_BLOCK { 9 } else { 7 };
        literal += 1;
    }
    lengths
}

/// The lengths of a block's codes, as its header has them.
struct CodeLengths {
    literals: usize,
    distances: usize,
    symbols: Vec<Symbol>,
    counts: [u32; CODE_LENGTHS],
    codes: Codes<CODE_LENGTHS>,
}

impl CodeLengths {
    const LENGTH_MAX: u8 = 7;
    const REPEAT: usize = 16;
    const ZEROS: usize = 17;
    const MANY_ZEROS: usize = 18;

    fn of(literals: &Codes<LITERALS>, distances: &Codes<DISTANCES>) -> CodeLengths {
        let (literals, distances) = (literals.used_lengths(FIRST_LENGTH), distances.used_lengths(1));
        let lengths = [literals.as_slice(), distances.as_slice()].concat();
        let mut symbols = Vec::with_capacity(lengths.len());
        for run in lengths.chunk_by(|a, b| a == b) {
            put_run(&mut symbols, usize::from(run[0]), run.len());
        }
        let mut counts = [0; CODE_LENGTHS];
        for symbol in &symbols {
            counts[symbol.number] += 1;
        }
        let codes = Codes::shortest(&counts, CodeLengths::LENGTH_MAX);
        CodeLengths { literals: literals.len(), distances: distances.len(), symbols, counts, codes }
    }

    /// Lengths of the codes of lengths that are sent: at least four, and up to the last that is used.
    fn sent(&self) -> usize {
        CODE_LENGTHS_ORDER.iter().rposition(|symbol| self.codes[*symbol].length > 0).map_or(4, |last| (last + 1).max(4))
    }

    fn bits(&self) -> u32 {
        let extra: u32 = self.symbols.iter().map(|symbol| symbol.extra_bits).sum();
        5 + 5 + 4 + 3 * self.sent() as u32 + self.codes.bits(&self.counts) + extra
    }

    fn put(&self, bits: &mut BitWriter) {
        bits.put((self.literals - FIRST_LENGTH) as u32, 5);
        bits.put(self.distances as u32 - 1, 5);
        bits.put(self.sent() as u32 - 4, 4);
        for symbol in &CODE_LENGTHS_ORDER[..self.sent()] {
            bits.put(u32::from(self.codes[*symbol].length), 3);
        }
        for symbol in &self.symbols {
            bits.put_code(self.codes[symbol.number]);
            bits.put(symbol.extra, symbol.extra_bits);
        }
    }
}

/// The same length, so many times.
fn put_run(symbols: &mut Vec<Symbol>, length: usize, mut count: usize) {
    let once = |number| Symbol { number, extra: 0, extra_bits: 0 };
    if length > 0 {
        symbols.push(once(length));
        count -= 1;
    }
    while count > 0 {
        let (number, shortest, longest, extra_bits) = match length {
            _ if count < 3 => (length, 1, 1, 0),
            0 if count <= 10 => (CodeLengths::ZEROS, 3, 10, 3),
            0 => (CodeLengths::MANY_ZEROS, 11, 138, 7),
            _ => (CodeLengths::REPEAT, 3, 6, 2),
        };
        let taken = count.min(longest);
        symbols.push(Symbol { number, extra: (taken - shortest) as u32, extra_bits });
        count -= taken;
    }
}

/// Writes bits, the least significant first.
struct BitWriter {
    bytes: Vec<u8>,
    held: u64,
    held_bits: u32,
}

impl BitWriter {
    /// Thirty-two bits at the most.
    fn put(&mut self, value: u32, bits: u32) {
        self.held |= u64::from(value) << self.held_bits;
        self.held_bits += bits;
        if self.held_bits >= 32 {
            self.bytes.extend_from_slice(&(self.held as u32).to_le_bytes());
            self.held >>= 32;
            self.held_bits -= 32;
        }
    }

    fn put_code(&mut self, code: Code) {
        self.put(u32::from(code.bits), u32::from(code.length));
    }

    fn into_bytes(mut self) -> Vec<u8> {
        let rest = self.held_bits.div_ceil(8) as usize;
        self.bytes.extend_from_slice(&self.held.to_le_bytes()[..rest]);
        self.bytes
    }
}
