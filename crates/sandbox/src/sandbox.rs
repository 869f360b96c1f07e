//! The memories that programs run in.

use std::sync::Arc;

use wasmtime::{Engine, InstanceAllocationStrategy, InstancePre, Linker, PoolingAllocationConfig};

use crate::config::{self, AddressSpace};
use crate::guest_code;
use crate::guest_memory::{GuestMemory, PoolError};
use crate::idle_memories::IdleMemories;
use crate::imports::{self, Host, HostState};
use crate::vm::{Vm, VmConfig};

/// Largest memory a program may be given.
pub const MEMORY_BYTES_CAP: usize = 256 << 20;

/// With room for fewer programs a service is of no use.
const PROGRAMS_MIN: u32 = 4;

/// What programs share: the compiled guest, and a pool of memories that they run in.
pub struct Sandbox<H: 'static> {
    guest: InstancePre<HostState<H>>,
    idle: Arc<IdleMemories<H>>,
    programs_max: u32,
    shortage: Option<Shortage>,
}

/// What a sandbox has to do without because address space is limited. Programs run all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// How many programs there is room for.
    pub programs_max: u32,
    /// How many there should have been room for.
    pub programs_wanted: u32,
    space: AddressSpace,
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shortage { programs_max, programs_wanted, space } = self;
        write!(f, "address space is limited, so ")?;
        if programs_max < programs_wanted {
            write!(f, "there is room for {programs_max} programs instead of {programs_wanted}")?;
        }
        match space {
            AddressSpace::Scarce if programs_max < programs_wanted => write!(f, ", and programs run more slowly")?,
            AddressSpace::Scarce => write!(f, "programs run more slowly")?,
            AddressSpace::Ample => {}
        }
        write!(f, "; `ulimit -v unlimited` (systemd: `LimitAS=infinity`) lifts the limit")
    }
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
        "address space for {programs} programs could not be reserved: {source}; it is not memory, so lift the limit with \
         `ulimit -v unlimited` (systemd: `LimitAS=infinity`), or allow at least 2 GiB"
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
    /// Reserves address space, not memory, for so many programs alive at the same time. Where it is limited there may be
    /// room for fewer, and they may run more slowly: see [`shortage`](Self::shortage).
    pub fn new(programs_wanted: u32) -> Result<Sandbox<H>, SandboxError> {
        let EngineWithin { programs_max, space, engine } = EngineWithin::largest(programs_wanted)?;
        let guest = link(&engine, space).map_err(SandboxError::Guest)?;
        let is_short = programs_max < programs_wanted || space == AddressSpace::Scarce;
        let shortage = is_short.then_some(Shortage { programs_max, programs_wanted, space });
        let of_idle = guest.clone();
        // Memories that wait for a program have no limit of their own yet.
        let make = move || GuestMemory::of_pool(&of_idle, HostState::between_programs(usize::MAX, 0)).ok();
        Ok(Sandbox { guest, idle: Arc::new(IdleMemories::new(make)), programs_max, shortage })
    }

    /// A memory in which nothing has run yet, or of which nothing is left; `Err` if all are taken.
    pub fn new_vm(&self, config: &VmConfig, host: H) -> Result<Vm<H>, SandboxError> {
        let memory = self.guest_memory(HostState::new(host, config.memory_bytes, config.fuel))?;
        Ok(Vm::new(config.fuel, memory, Arc::clone(&self.idle)))
    }

    pub(crate) fn guest_memory(&self, state: HostState<H>) -> Result<GuestMemory<H>, SandboxError> {
        match self.idle.take() {
            Some(memory) => memory.reuse(state).map_err(SandboxError::Guest),
            None => GuestMemory::of_pool(&self.guest, state).map_err(|error| match error {
                PoolError::Full => SandboxError::Full(self.programs_max),
                PoolError::Guest(error) => SandboxError::Guest(error),
            }),
        }
    }

    /// How many programs may be alive at the same time.
    pub fn programs_max(&self) -> u32 {
        self.programs_max
    }

    /// Set if address space is limited. The crate logs nothing: the caller warns the person who can lift the limit.
    pub fn shortage(&self) -> Option<Shortage> {
        self.shortage
    }

    /// Gives back the memories that are kept for the next programs.
    pub fn release_memory(&self) {
        self.idle.release();
    }

    /// Gives back those that no program has needed since the last call of this method. To be called from time to time:
    /// there is no clock here.
    pub fn release_unused(&self) {
        self.idle.release_unused();
    }

    pub(crate) fn idle(&self) -> &Arc<IdleMemories<H>> {
        &self.idle
    }
}

fn link<H: Host>(engine: &Engine, space: AddressSpace) -> wasmtime::Result<InstancePre<HostState<H>>> {
    let mut linker = Linker::new(engine);
    imports::define(&mut linker)?;
    linker.instantiate_pre(&guest_code::load(engine, space)?)
}

/// An engine, and what it has room for.
struct EngineWithin {
    programs_max: u32,
    space: AddressSpace,
    engine: Engine,
}

impl EngineWithin {
    /// The engine with the largest pool that there is address space for. If that is not enough for memories that need no
    /// checks, smaller ones have to do, in half of the space: threads and the heap need some too.
    fn largest(programs_max: u32) -> Result<EngineWithin, SandboxError> {
        let mut programs = programs_max;
        loop {
            match engine(programs, AddressSpace::Ample) {
                Ok(engine) => return Ok(EngineWithin { programs_max: programs, space: AddressSpace::Ample, engine }),
                Err(SandboxError::Pool { .. }) if programs / 2 >= PROGRAMS_MIN => programs /= 2,
                Err(SandboxError::Pool { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        let space = AddressSpace::Scarce;
        let mut programs = programs_max;
        while let Err(error) = engine(programs, space) {
            if programs / 2 < 2 * PROGRAMS_MIN {
                return Err(error);
            }
            programs /= 2;
        }
        let programs_max = programs / 2;
        Ok(EngineWithin { programs_max, space, engine: engine(programs_max, space)? })
    }
}

/// An engine whose pool gives everything back. Memories that are kept for the next program never return to it.
fn engine(programs_max: u32, space: AddressSpace) -> Result<Engine, SandboxError> {
    let memory_bytes_cap = match space {
        AddressSpace::Ample => MEMORY_BYTES_CAP,
        AddressSpace::Scarce => config::SCARCE_MEMORY_BYTES_CAP,
    };
    let mut pool = PoolingAllocationConfig::default();
    pool.total_core_instances(programs_max)
        .total_memories(programs_max)
        .total_tables(programs_max)
        // A store keeps the stack of its last call, so paused programs have one too.
        .total_stacks(programs_max)
        .max_memory_size(memory_bytes_cap)
        .table_elements(4096)
        .max_core_instance_size(1 << 20);
    let mut config = config::shared(space);
    guest_code::allow_in_place(&mut config);
    // Else every stack that was ever used keeps its pages, however many there are.
    config.async_stack_zeroing(true);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config).map_err(|source| SandboxError::Pool { programs: programs_max, source })
}
