//! The guest's machine code, which is part of this executable.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wasmtime::{Config, CustomCodeMemory, Engine, Module};

use crate::config::AddressSpace;

/// Pages can be made executable only as a whole.
#[repr(C, align(4096))]
struct Aligned<T: ?Sized>(T);
static AMPLE: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/guest.cwasm")));
static SCARCE: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/guest_scarce.cwasm")));

/// Whether the code runs where it is in the executable. A copy of it takes 4 MB, and a third of the time that a process
/// takes to start. Elsewhere pages may have another size, or the processor may have to be told of new code.
const RUNS_IN_PLACE: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));

/// Lets an engine run code in place.
pub(crate) fn allow_in_place(config: &mut Config) {
    if RUNS_IN_PLACE {
        config.with_custom_code_memory(Some(Arc::new(ExecutablePages)));
    }
}

/// Loads the guest: in place for the first engine of a process, as a copy for those that follow. The tables for unwinding
/// the stack of a piece of code can be registered only once.
pub(crate) fn load(engine: &Engine, space: AddressSpace) -> wasmtime::Result<Module> {
    static IS_TAKEN: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];
    let (code, is_taken) = match space {
        AddressSpace::Ample => (&AMPLE.0, &IS_TAKEN[0]),
        AddressSpace::Scarce => (&SCARCE.0, &IS_TAKEN[1]),
    };
    // SAFETY: the bytes are the build script's own output, and those of the executable never change.
    #[expect(unsafe_code, reason = "machine code cannot be checked, only trusted")]
    unsafe {
        if RUNS_IN_PLACE && !is_taken.swap(true, Ordering::Relaxed) {
            Module::deserialize_raw(engine, NonNull::from(code))
        } else {
            Module::deserialize(engine, code)
        }
    }
}

/// Makes pages executable, and leaves them so.
struct ExecutablePages;

impl CustomCodeMemory for ExecutablePages {
    fn required_alignment(&self) -> usize {
        align_of::<Aligned<[u8; 0]>>()
    }

    #[expect(unsafe_code, reason = "the engine cannot do it for memory that it does not own")]
    fn publish_executable(&self, code: *const u8, bytes: usize) -> wasmtime::Result<()> {
        unsafe extern "C" {
            fn mprotect(address: *mut c_void, bytes: usize, protection: c_int) -> c_int;
        }
        const PROT_READ: c_int = 1;
        const PROT_EXEC: c_int = 4;
        // SAFETY: the pages hold only code of the guest, and nobody writes to them.
        let result = unsafe { mprotect(code.cast_mut().cast(), bytes, PROT_READ | PROT_EXEC) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
    }

    fn unpublish_executable(&self, _code: *const u8, _bytes: usize) -> wasmtime::Result<()> {
        // A copy is unmapped next, and the code of the executable may serve again.
        Ok(())
    }
}
