//! The engine's settings that compiled code depends on: shared by the build script, which compiles the guest,
//! and the library, which loads it.

use wasmtime::Config;

/// Room on the host's stack for one running guest. Ample for the deepest recursion that the guest's own stack
/// limit allows, so that the limit is hit at the same depth on every CPU.
pub(crate) const HOST_STACK_BYTES: usize = 16 << 20;

pub(crate) fn shared() -> Config {
    let mut config = Config::new();
    config.consume_fuel(true);
    config.wasm_relaxed_simd(false);
    config.wasm_memory64(false);
    config.wasm_multi_memory(false);
    // With the whole 32-bit range reserved, memory accesses need no bounds checks.
    config.memory_reservation(4 << 30);
    config.memory_may_move(false);
    config.memory_init_cow(true);
    config.max_wasm_stack(HOST_STACK_BYTES);
    config.async_stack_size(HOST_STACK_BYTES + (1 << 20));
    config
}
