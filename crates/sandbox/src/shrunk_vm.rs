//! A program that waits for long, in a fraction of the memory that it had.

use std::sync::Arc;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::guest_memory::{GuestMemory, image_pages};
use crate::imports::{Host, HostState};
use crate::page_map::PAGE_BYTES;
use crate::sandbox::{Sandbox, SandboxError};
use crate::vm::Vm;

/// A program that has changed more is not shrunk: to bring it back would take longer than others may wait.
const PAGES_MAX: usize = (4 << 20) / PAGE_BYTES;

/// A [`Vm`] without its memory: only what differs from a new one, compressed. [`Sandbox::restore`] makes it a `Vm` again,
/// which goes on as if nothing had happened.
pub struct ShrunkVm<H: 'static> {
    state: HostState<H>,
    /// Numbers of the pages that differ.
    pages: Vec<u32>,
    /// How they differ from those of a new memory, bit by bit, compressed: programs change little of most of them.
    differences: Box<[u8]>,
    memory_bytes: usize,
    fuel_left: u64,
    fuel_max: u64,
}

impl<H> std::fmt::Debug for ShrunkVm<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShrunkVm").finish_non_exhaustive()
    }
}

impl<H: Host> Vm<H> {
    /// Gives its memory back. What is left of it takes `bytes_max` at the most; `None` if it would take more, or much time
    /// to bring back, so that the program was given up.
    pub fn shrink(mut self, bytes_max: usize) -> Option<ShrunkVm<H>> {
        let fuel_left = self.fuel_left();
        let mut memory = self.take_between_runs()?;
        let changed = memory.changed_pages().filter(|changed| changed.len() <= PAGES_MAX)?;
        let pages: Vec<u32> = changed.iter().map(|(number, _)| *number).collect();
        let mut differences = changed.iter().map(|(_, page)| *page).collect::<Vec<_>>().concat();
        subtract_image(&pages, &mut differences);
        let bytes_left = bytes_max.checked_sub(pages.len() * size_of::<u32>())?;
        let differences = compressed(&differences, bytes_left)?;
        let memory_bytes = memory.memory.data_size(&memory.store);
        let state = memory.store.data_mut();
        let empty = HostState::between_programs(state.memory_bytes_max, 0);
        let state = std::mem::replace(state, empty);
        // The memory is not kept for the next program: it is to be given back.
        Some(ShrunkVm { state, pages, differences, memory_bytes, fuel_left, fuel_max: self.fuel_max() })
    }
}

impl<H> ShrunkVm<H> {
    /// What it takes, besides what the host keeps.
    pub fn bytes(&self) -> usize {
        self.pages.len() * size_of::<u32>() + self.differences.len() + self.state.reported_bytes()
    }

    /// The host that was given to [`Sandbox::new_vm`].
    pub fn host(&self) -> &H {
        self.state.host()
    }
}

impl<H: Host> Sandbox<H> {
    /// The program in a memory again, as it was; `Err` if all are taken.
    pub fn restore(&self, shrunk: ShrunkVm<H>) -> Result<Vm<H>, SandboxError> {
        let ShrunkVm { state, pages, differences, memory_bytes, fuel_left, fuel_max } = shrunk;
        let mut memory = self.guest_memory(state)?;
        let wrong = || SandboxError::Guest(wasmtime::Error::msg("a shrunk program cannot be restored"));
        let mut changed = decompressed(&differences, pages.len() * PAGE_BYTES).ok_or_else(wrong)?;
        subtract_image(&pages, &mut changed);
        let GuestMemory { store, memory: bytes, .. } = &mut memory;
        let missing = memory_bytes.saturating_sub(bytes.data_size(&mut *store)) as u64;
        let page_bytes = bytes.page_size(&mut *store);
        bytes.grow(&mut *store, missing / page_bytes).map_err(SandboxError::Guest)?;
        for (number, page) in pages.into_iter().zip(changed.chunks(PAGE_BYTES)) {
            let start = number as usize * PAGE_BYTES;
            let place = bytes.data_mut(&mut *store).get_mut(start..start + PAGE_BYTES).ok_or_else(wrong)?;
            place.copy_from_slice(page);
        }
        store.set_fuel(fuel_left).map_err(SandboxError::Guest)?;
        Ok(Vm::new(fuel_max, memory, Arc::clone(self.idle())))
    }
}

/// Makes pages their differences from the image, and the other way round.
fn subtract_image(numbers: &[u32], pages: &mut [u8]) {
    let mut numbers = numbers.iter().peekable();
    let mut pages = pages.chunks_mut(PAGE_BYTES);
    for (image, number) in image_pages().zip(0..) {
        match numbers.peek() {
            None => return,
            Some(next) if **next == number => _ = numbers.next(),
            Some(_) => continue,
        }
        for (byte, as_new) in pages.next().into_iter().flatten().zip(image) {
            *byte ^= as_new;
        }
    }
}

/// `None` if that takes more than `bytes_max`.
fn compressed(bytes: &[u8], bytes_max: usize) -> Option<Box<[u8]>> {
    let mut compressed = Vec::with_capacity(bytes_max);
    let mut compress = Compress::new(Compression::fast(), false);
    let status = compress.compress_vec(bytes, &mut compressed, FlushCompress::Finish).ok()?;
    // A copy, because a vector that is shrunk would leave a hole of its own behind it.
    (status == Status::StreamEnd).then(|| compressed.as_slice().into())
}

fn decompressed(compressed: &[u8], bytes: usize) -> Option<Vec<u8>> {
    // One more, so that the end of the stream is seen.
    let mut decompressed = Vec::with_capacity(bytes + 1);
    let status = Decompress::new(false).decompress_vec(compressed, &mut decompressed, FlushDecompress::Finish).ok()?;
    (status == Status::StreamEnd && decompressed.len() == bytes).then_some(decompressed)
}
