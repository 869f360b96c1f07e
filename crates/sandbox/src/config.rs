//! The engine's settings that compiled code depends on: shared by the build script, which compiles the guest,
//! and the library, which loads it.

use wasmtime::Config;

/// Room on the host's stack for one running guest. Ample for the deepest recursion that the guest's own stack
/// limit allows, so that the limit is hit at the same depth on every CPU.
pub(crate) const HOST_STACK_BYTES: usize = 16 << 20;

/// Largest memory a program may be given where address space is scarce.
pub(crate) const SCARCE_MEMORY_BYTES_CAP: usize = 64 << 20;

/// How much address space the memory of a program takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressSpace {
    /// The whole 32-bit range, so that memory accesses need no bounds checks.
    Ample,
    /// No more than the memory itself. Every access is checked, which takes some time.
    Scarce,
}

pub(crate) fn shared(space: AddressSpace) -> Config {
    let mut config = Config::new();
    config.consume_fuel(true);
    config.wasm_relaxed_simd(false);
    config.wasm_memory64(false);
    config.wasm_multi_memory(false);
    match space {
        AddressSpace::Ample => _ = config.memory_reservation(4 << 30),
        AddressSpace::Scarce => {
            config.memory_reservation(SCARCE_MEMORY_BYTES_CAP as u64);
            config.memory_guard_size(64 << 10);
            config.guard_before_linear_memory(false);
        }
    }
    config.memory_may_move(false);
    config.memory_init_cow(true);
    config.max_wasm_stack(HOST_STACK_BYTES);
    config.async_stack_size(HOST_STACK_BYTES + (1 << 20));
    config
}
