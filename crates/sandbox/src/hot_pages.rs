//! The pages of its memory that every program writes to.
//!
//! A new memory shares its pages with the image of the guest, and the first write to each of them costs a page fault. A
//! memory that is used again keeps the pages that were written to, as long as they lie in few ranges: the pool looks at
//! 32 of them and gives the rest back. Programs write here and there, so the gaps between the pages that all of them write
//! to are closed: those pages are copied as well when a program is the first one in its memory. This changes when a page
//! is copied, and nothing that a program sees.

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Other architectures have pages of other sizes.
const IS_SUPPORTED: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));
const PAGE_BYTES: usize = 4096;
/// Programs that are looked at.
const PROGRAMS: u32 = 4;
/// Only the beginning of a memory is looked at: what lies behind it differs from program to program.
const PAGES_MAX: usize = (4 << 20) / PAGE_BYTES;
/// What is left of the pool's 32 ranges is for what single programs write to.
const RANGES_MAX: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct HotPages {
    /// Ranges of bytes, once enough programs have shown them.
    ranges: OnceLock<Vec<Range<usize>>>,
    learning: Mutex<Learning>,
    /// Addresses of memories that have them.
    copied: Mutex<HashSet<usize>>,
}

#[derive(Debug, Default)]
struct Learning {
    programs: u32,
    /// Whether all programs so far have written to the page.
    written: Vec<bool>,
}

impl HotPages {
    /// Looks at the memory of a program that has ended.
    pub(crate) fn learn(&self, memory: &[u8]) {
        if !IS_SUPPORTED || self.ranges.get().is_some() {
            return;
        }
        let written = written_pages(memory).unwrap_or_default();
        let mut learning = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        if learning.programs == 0 {
            learning.written = written;
        } else {
            learning.written.truncate(written.len());
            learning.written.iter_mut().zip(written).for_each(|(all, this)| *all &= this);
        }
        learning.programs += 1;
        if learning.programs >= PROGRAMS {
            self.ranges.get_or_init(|| ranges(&learning.written));
        }
    }

    /// Copies the pages for a program that is about to start, if its memory does not have them yet.
    pub(crate) fn copy(&self, memory: &mut [u8]) {
        let Some(ranges) = self.ranges.get() else { return };
        if !self.copied().insert(memory.as_ptr().addr()) {
            return;
        }
        for range in ranges {
            if let Some(pages) = memory.get_mut(range.clone())
                && !populate(pages)
            {
                // Older kernels cannot do this.
                return;
            }
        }
    }

    /// All memories are new ones.
    pub(crate) fn forget_memories(&self) {
        self.copied().clear();
    }

    fn copied(&self) -> MutexGuard<'_, HashSet<usize>> {
        self.copied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which pages of a memory are not shared with its image any more.
fn written_pages(memory: &[u8]) -> Option<Vec<bool>> {
    const ENTRY_BYTES: usize = 8;
    const IS_PRESENT: u64 = 1 << 63;
    const IS_OF_FILE: u64 = 1 << 61;
    let pages = (memory.len() / PAGE_BYTES).min(PAGES_MAX);
    let mut entries = vec![0; pages * ENTRY_BYTES];
    let first = memory.as_ptr().addr() / PAGE_BYTES * ENTRY_BYTES;
    File::open("/proc/self/pagemap").ok()?.read_exact_at(&mut entries, first as u64).ok()?;
    let (entries, _) = entries.as_chunks::<ENTRY_BYTES>();
    let is_written = |entry: &[u8; ENTRY_BYTES]| {
        let entry = u64::from_le_bytes(*entry);
        entry & IS_PRESENT != 0 && entry & IS_OF_FILE == 0
    };
    Some(entries.iter().map(is_written).collect())
}

/// Ranges of bytes with all of these pages, and few others.
fn ranges(written: &[bool]) -> Vec<Range<usize>> {
    let pages = || written.iter().enumerate().filter(|(_, is_written)| **is_written).map(|(page, _)| page);
    let joined = |gap_max: usize| {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for page in pages() {
            let bytes = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
            match ranges.last_mut() {
                Some(last) if bytes.start - last.end <= gap_max * PAGE_BYTES => last.end = bytes.end,
                _ => ranges.push(bytes),
            }
        }
        ranges
    };
    (0..PAGES_MAX).map(joined).find(|ranges| ranges.len() <= RANGES_MAX).unwrap_or_default()
}

/// Makes pages private and writable; false if the kernel cannot.
#[expect(unsafe_code, reason = "there is no other way to ask for several pages at once")]
fn populate(pages: &mut [u8]) -> bool {
    unsafe extern "C" {
        fn madvise(address: *mut c_void, bytes: usize, advice: c_int) -> c_int;
    }
    const MADV_POPULATE_WRITE: c_int = 23;
    // SAFETY: the pages are ours, and their content stays the same.
    let result = unsafe { madvise(pages.as_mut_ptr().cast(), pages.len(), MADV_POPULATE_WRITE) };
    result == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_that_all_programs_write_to_are_copied() {
        let hot = HotPages::default();
        let mut memory = vec![0_u8; 64 * PAGE_BYTES];
        let start = memory.as_ptr().align_offset(PAGE_BYTES);
        let memory = &mut memory[start..start + 16 * PAGE_BYTES];
        memory[3 * PAGE_BYTES] = 1;
        memory[4 * PAGE_BYTES] = 1;
        memory[9 * PAGE_BYTES] = 1;
        for _ in 0..PROGRAMS {
            hot.learn(memory);
        }
        let Some(ranges) = hot.ranges.get().filter(|_| IS_SUPPORTED) else { return };
        assert_eq!(*ranges, [3 * PAGE_BYTES..5 * PAGE_BYTES, 9 * PAGE_BYTES..10 * PAGE_BYTES]);
        hot.copy(memory);
        assert_eq!(memory.iter().filter(|byte| **byte == 1).count(), 3);
    }

    #[test]
    fn the_smallest_gaps_are_closed() {
        let mut written = vec![false; 300];
        // 40 pages with gaps of one page, and one far away.
        (0..40).for_each(|page| written[2 * page] = true);
        written[200] = true;
        let ranges = ranges(&written);
        assert_eq!(ranges, [0..79 * PAGE_BYTES, 200 * PAGE_BYTES..201 * PAGE_BYTES]);
    }
}
