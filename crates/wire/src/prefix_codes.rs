//! Huffman codes, as DEFLATE has them.

use std::ops::Index;

/// The code of one symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code {
    /// In the order in which they are written, the first one lowest.
    pub bits: u16,
    /// 0 for a symbol that has no code.
    pub length: u8,
}

/// Codes have up to 15 bits.
const LENGTHS: usize = 16;

/// The codes of `N` symbols. Their lengths alone say which they are.
pub(crate) struct Codes<const N: usize>([Code; N]);

impl<const N: usize> Index<usize> for Codes<N> {
    type Output = Code;

    fn index(&self, symbol: usize) -> &Code {
        &self.0[symbol]
    }
}

impl<const N: usize> Codes<N> {
    /// Codes that make a text with so many of each symbol as short as possible, with none longer than `length_max`. At least two
    /// symbols get one, because some inflaters do not take fewer.
    pub(crate) fn shortest(counts: &[u32; N], length_max: u8) -> Codes<N> {
        let mut counts = *counts;
        let used = counts.iter().filter(|count| **count > 0).count();
        counts.iter_mut().filter(|count| **count == 0).take(2_usize.saturating_sub(used)).for_each(|count| *count = 1);
        loop {
            let lengths = shortest_lengths(&counts);
            if lengths.iter().all(|length| *length <= length_max) {
                return Codes::of_lengths(lengths);
            }
            // Counts that differ less make lengths that differ less.
            for count in &mut counts {
                *count = count.div_ceil(2);
            }
        }
    }

    /// Codes of these lengths: of the same length in the order of their symbols, and the shorter ones first.
    pub(crate) const fn of_lengths(lengths: [u8; N]) -> Codes<N> {
        let mut next = [0_u16; LENGTHS];
        let mut symbol = 0;
        while symbol < N {
            next[lengths[symbol] as usize] += 1;
            symbol += 1;
        }
        let (mut length, mut first) = (1, 0);
        while length < LENGTHS {
            let count = next[length];
            next[length] = first;
            first = (first + count) << 1;
            length += 1;
        }
        let mut codes = [Code { bits: 0, length: 0 }; N];
        symbol = 0;
        while symbol < N {
            let length = lengths[symbol];
            if length > 0 {
                let bits = next[length as usize].reverse_bits() >> (u16::BITS - length as u32);
                codes[symbol] = Code { bits, length };
                next[length as usize] += 1;
            }
            symbol += 1;
        }
        Codes(codes)
    }

    /// What a text with so many of each symbol takes.
    pub(crate) fn bits(&self, counts: &[u32; N]) -> u32 {
        self.0.iter().zip(counts).map(|(code, count)| u32::from(code.length) * count).sum()
    }

    /// The lengths up to the last symbol that has a code, and at least so many.
    pub(crate) fn used_lengths(&self, least: usize) -> Vec<u8> {
        let used = self.0.iter().rposition(|code| code.length > 0).map_or(0, |last| last + 1);
        self.0[..used.max(least)].iter().map(|code| code.length).collect()
    }
}

/// The lengths of a Huffman code of two or more symbols.
fn shortest_lengths<const N: usize>(counts: &[u32; N]) -> [u8; N] {
    const SYMBOL_BITS: u32 = 9;
    const { assert!(N <= 1 << SYMBOL_BITS) };
    // The weights of the tree's nodes, in ascending order: first of all symbols, then of pairs of nodes as they are made.
    let mut weights = [0_u32; 2 << SYMBOL_BITS];
    let mut leaves = 0;
    for (symbol, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        weights[leaves] = count << SYMBOL_BITS | symbol as u32;
        leaves += 1;
    }
    weights[..leaves].sort_unstable();
    let mut symbols = [0_u16; N];
    for (weight, symbol) in weights[..leaves].iter_mut().zip(&mut symbols) {
        *symbol = *weight as u16 & ((1 << SYMBOL_BITS) - 1);
        *weight >>= SYMBOL_BITS;
    }
    let root = 2 * leaves - 2;
    let mut parents = [0_u16; 2 << SYMBOL_BITS];
    let (mut leaf, mut pair) = (0, leaves);
    for node in leaves..=root {
        for _ in 0..2 {
            let is_leaf = leaf < leaves && (pair == node || weights[leaf] <= weights[pair]);
            let lightest = if is_leaf { &mut leaf } else { &mut pair };
            weights[node] += weights[*lightest];
            parents[*lightest] = node as u16;
            *lightest += 1;
        }
    }
    // Every node comes before its parent.
    let mut depths = [0_u8; 2 << SYMBOL_BITS];
    for node in (0..root).rev() {
        depths[node] = depths[usize::from(parents[node])] + 1;
    }
    let mut lengths = [0; N];
    for (symbol, depth) in symbols[..leaves].iter().zip(&depths) {
        lengths[usize::from(*symbol)] = *depth;
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many bits a code of these lengths leaves unused, in units of its longest code; 0 if every text of bits means something.
    fn unused<const N: usize>(codes: &Codes<N>, length_max: u8) -> i64 {
        let used: i64 = codes.0.iter().filter(|code| code.length > 0).map(|code| 1 << (length_max - code.length)).sum();
        (1 << length_max) - used
    }

    #[test]
    fn frequent_symbols_have_short_codes() {
        let counts = [40, 1, 0, 9, 2];
        let codes = Codes::shortest(&counts, 15);
        assert_eq!(codes.0.map(|code| code.length), [1, 3, 0, 2, 3]);
        assert_eq!(codes.bits(&counts), 40 + 3 + 2 * 9 + 3 * 2);
    }

    #[test]
    fn one_symbol_gets_company() {
        let codes = Codes::shortest(&[0, 0, 7], 15);
        assert_eq!(codes.0.map(|code| code.length), [1, 0, 1]);
        let codes = Codes::<3>::shortest(&[0; 3], 15);
        assert_eq!(codes.0.map(|code| code.length), [1, 1, 0]);
    }

    #[test]
    fn no_code_is_longer_than_allowed() {
        // Counts that make a tree as deep as there are symbols.
        let mut counts = [1_u32; 19];
        for at in 2..19 {
            counts[at] = counts[at - 1] + counts[at - 2];
        }
        assert_eq!(shortest_lengths(&counts).into_iter().max(), Some(18));
        let codes = Codes::shortest(&counts, 7);
        assert!(codes.0.iter().all(|code| (1..=7).contains(&code.length)));
        assert_eq!(unused(&codes, 7), 0);
    }
}
