//! The compiled guest and the pool of memories that programs run in.

use wasmtime::{Engine, InstanceAllocationStrategy, InstancePre, Linker, Module, PoolingAllocationConfig};

use crate::config;
use crate::imports::{self, Host, HostState};

/// The guest as machine code, made by the build script.
#[repr(align(16))]
struct Aligned<T: ?Sized>(T);
static MACHINE_CODE: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/guest.cwasm")));

/// Largest memory a program may be given.
pub const MEMORY_BYTES_CAP: usize = 256 << 20;

/// Bytes of a released memory that are reset in place instead of being given back, which saves page faults.
const KEEP_RESIDENT_BYTES: usize = 2 << 20;

/// What programs share: the compiled guest, and the pool of memories that they run in.
pub struct Sandbox<H: 'static> {
    pub(crate) guest: InstancePre<HostState<H>>,
    pub(crate) programs_max: u32,
}

impl<H> std::fmt::Debug for Sandbox<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").finish_non_exhaustive()
    }
}

/// Why there is no sandbox, or no room in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The operating system refused to reserve address space.
    #[error(
        "room for {programs} programs could not be reserved: {source}; lower the number of programs kept in memory"
    )]
    Pool {
        /// How many programs there should be room for.
        programs: u32,
        /// Why it refused.
        source: wasmtime::Error,
    },
    /// The machine code cannot be loaded.
    #[error("the compiled guest does not fit this machine: {0}; build dacapo on the machine that runs it")]
    Guest(wasmtime::Error),
    /// All memories are in use.
    #[error("all {0} places for programs are taken; try again when others have finished")]
    Full(u32),
}

impl<H: Host> Sandbox<H> {
    /// Reserves address space, not memory, for `programs_max` programs alive at the same time.
    pub fn new(programs_max: u32) -> Result<Sandbox<H>, SandboxError> {
        let engine = engine(programs_max)?;
        let module = load(&engine).map_err(SandboxError::Guest)?;
        let mut linker = Linker::new(&engine);
        imports::define(&mut linker).map_err(SandboxError::Guest)?;
        let guest = linker.instantiate_pre(&module).map_err(SandboxError::Guest)?;
        Ok(Sandbox { guest, programs_max })
    }
}

fn engine(programs_max: u32) -> Result<Engine, SandboxError> {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_core_instances(programs_max)
        .total_memories(programs_max)
        .total_tables(programs_max)
        // A store keeps the stack of its last call, so paused programs have one too.
        .total_stacks(programs_max)
        .max_memory_size(MEMORY_BYTES_CAP)
        .table_elements(4096)
        .max_core_instance_size(1 << 20)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES);
    let mut config = config::shared();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config).map_err(|source| SandboxError::Pool { programs: programs_max, source })
}

fn load(engine: &Engine) -> wasmtime::Result<Module> {
    // SAFETY: the bytes are the build script's own output, embedded in this binary.
    #[expect(unsafe_code, reason = "machine code cannot be checked, only trusted")]
    unsafe {
        Module::deserialize(engine, &MACHINE_CODE.0)
    }
}
