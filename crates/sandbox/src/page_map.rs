//! Which pages of its own memory a process has written to, as Linux tells it.

use std::fs::File;
use std::process;
use std::sync::OnceLock;

/// Size of a page of memory.
pub(crate) const PAGE_BYTES: usize = 4096;

/// An entry of `/proc/self/pagemap`, see proc(5).
const ENTRY_BYTES: usize = 8;
const PRESENT: u64 = 1 << 63;
/// Also while the page is moved to another place in RAM.
const SWAPPED: u64 = 1 << 62;
/// It belongs to a file, so that nothing was written to it since it was mapped privately.
const OF_FILE: u64 = 1 << 61;

const ENTRIES_AT_ONCE: usize = 512;

/// For each page from this address on, whether it may hold something else than when it was mapped. `None` if the system
/// does not tell.
pub(crate) fn written_pages(address: usize, count: usize) -> Option<Vec<bool>> {
    static PAGE_MAP: OnceLock<Option<(u32, File)>> = OnceLock::new();
    let opened = PAGE_MAP.get_or_init(|| open().map(|file| (process::id(), file)));
    // A process that was forked from the one that opened it would read about that one.
    let (_, page_map) = opened.as_ref().filter(|(process, _)| *process == process::id())?;
    let mut written = Vec::with_capacity(count);
    let mut entries = [0; ENTRIES_AT_ONCE * ENTRY_BYTES];
    while written.len() < count {
        let entries = &mut entries[..(count - written.len()).min(ENTRIES_AT_ONCE) * ENTRY_BYTES];
        let first = address / PAGE_BYTES + written.len();
        read_at(page_map, entries, (first * ENTRY_BYTES) as u64)?;
        let is_written = |entry: &[u8; ENTRY_BYTES]| {
            let entry = u64::from_ne_bytes(*entry);
            entry & (PRESENT | SWAPPED) != 0 && entry & OF_FILE == 0
        };
        written.extend(entries.as_chunks().0.iter().map(is_written));
    }
    Some(written)
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn open() -> Option<File> {
    File::open("/proc/self/pagemap").ok()
}

/// Pages may have another size.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn open() -> Option<File> {
    None
}

#[cfg(unix)]
fn read_at(file: &File, into: &mut [u8], offset: u64) -> Option<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, offset).ok()
}

#[cfg(not(unix))]
fn read_at(_: &File, _: &mut [u8], _: u64) -> Option<()> {
    None
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    use super::{PAGE_BYTES, written_pages};

    #[test]
    fn pages_that_were_written_to_are_told_from_others() {
        // So large that it is mapped for itself, and zero without being written.
        let mut bytes = vec![0_u8; 1_000 * PAGE_BYTES];
        let first = bytes.as_ptr().addr().next_multiple_of(PAGE_BYTES);
        let start = first - bytes.as_ptr().addr();
        for page in [3, 700] {
            bytes[start + page * PAGE_BYTES] = 1;
        }
        let written = written_pages(first, 900).expect("Linux tells");
        let pages = |range: std::ops::Range<usize>| range.filter(|page| written[*page]).collect::<Vec<_>>();
        assert_eq!((pages(1..899), written.len()), (vec![3, 700], 900));
    }
}
