//! Compressed texts in ids: raw DEFLATE with a preset dictionary.

use std::cell::RefCell;
use std::sync::LazyLock;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::deflate::Dictionary;

/// Part of the format: a new dictionary needs a new version.
const DICTIONARY: &[u8] = include_bytes!("dictionary_1.txt");
static PREPARED_DICTIONARY: LazyLock<Dictionary> = LazyLock::new(|| Dictionary::new(DICTIONARY));

/// Decompressed. There is room for the largest program that the step function accepts, and for its reasoning.
const INFLATED_BYTES_MAX: usize = 1 << 20;

thread_local! {
    // Its window takes 32 KB, which need not be cleared for every text.
    static DECOMPRESS: RefCell<Decompress> = RefCell::new(Decompress::new(false));
}

/// A pure function of the text.
pub(crate) fn deflate(text: &[u8]) -> Vec<u8> {
    if PREPARED_DICTIONARY.has_room_for(text) { PREPARED_DICTIONARY.deflate(text) } else { deflate_large(text) }
}

/// Preparing this compressor takes longer than compressing a text of a few kilobytes.
fn deflate_large(text: &[u8]) -> Vec<u8> {
    let mut compress = Compress::new(Compression::best(), false);
    compress.set_dictionary(DICTIONARY).expect("nothing was compressed before");
    // Enough for bytes that do not compress at all.
    let mut compressed = Vec::with_capacity(text.len() + text.len() / 8 + 64);
    loop {
        let read = compress.total_in() as usize;
        let status = compress.compress_vec(&text[read..], &mut compressed, FlushCompress::Finish);
        match status.expect("the stream is in order") {
            Status::StreamEnd => return compressed,
            Status::Ok | Status::BufError => compressed.reserve(compressed.capacity().max(64)),
        }
    }
}

/// `None` for what [`deflate`] did not make.
pub(crate) fn inflate(compressed: &[u8]) -> Option<Vec<u8>> {
    DECOMPRESS.with_borrow_mut(|decompress| {
        decompress.reset(false);
        inflate_with(decompress, compressed)
    })
}

fn inflate_with(decompress: &mut Decompress, compressed: &[u8]) -> Option<Vec<u8>> {
    decompress.set_dictionary(DICTIONARY).ok()?;
    let mut bytes = Vec::with_capacity((compressed.len() * 4).clamp(64, INFLATED_BYTES_MAX));
    loop {
        let read = decompress.total_in() as usize;
        match decompress.decompress_vec(&compressed[read..], &mut bytes, FlushDecompress::Finish).ok()? {
            Status::StreamEnd => return (decompress.total_in() as usize == compressed.len()).then_some(bytes),
            Status::Ok | Status::BufError if bytes.len() < bytes.capacity() => return None,
            Status::Ok | Status::BufError if bytes.capacity() >= INFLATED_BYTES_MAX => return None,
            Status::Ok | Status::BufError => bytes.reserve(bytes.capacity().min(INFLATED_BYTES_MAX - bytes.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What programs look like to a compressor: words again and again, with something new in between.
    fn texts() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            4 => prop::sample::select(vec!["const ", "await ", "items", ".map((item) => ", "return ", "{ id, name }", ";\n", "\"s\":"])
                .prop_map(|word| word.as_bytes().to_vec()),
            2 => prop::collection::vec(any::<u8>(), 0..9),
            1 => (any::<u8>(), 1..900_usize).prop_map(|(byte, times)| vec![byte; times]),
        ];
        prop::collection::vec(word, 0..120).prop_map(|words| words.concat())
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(text in texts()) {
            prop_assert_eq!(inflate(&deflate(&text)), Some(text));
        }
    }

    #[test]
    fn texts_of_all_sizes_come_back() {
        let room = crate::deflate::WINDOW_BYTES_MAX - DICTIONARY.len();
        let words: Vec<u8> = (0_u32..40_000)
            .flat_map(|number| (number.wrapping_mul(2_654_435_761) >> 24).to_string().into_bytes())
            .collect();
        for length in [0, 1, 2, 3, 4, 300, room - 1, room, room + 1, 60_000] {
            for text in [&words[..length], &vec![b'a'; length]] {
                assert_eq!(inflate(&deflate(text)).as_deref(), Some(text), "{length} bytes");
            }
        }
    }

    #[test]
    fn programs_are_as_short_as_with_the_best_level_of_zlib() {
        let programs = [
            include_str!("../../../bench/programs/five_rounds.ts"),
            include_str!("../../../bench/programs/fifty_lines.ts"),
            include_str!("../../../bench/programs/two_tools.js"),
            "return await get_order({ id: 7 });",
        ];
        for program in programs {
            let (ours, zlib) = (deflate(program.as_bytes()).len(), deflate_large(program.as_bytes()).len());
            assert!(ours * 100 <= zlib * 101, "{ours} bytes instead of {zlib}");
        }
    }
}
