//! The pools of memories that programs run in.

use std::sync::{OnceLock, PoisonError, RwLock};

use wasmtime::{Engine, InstanceAllocationStrategy, InstancePre, Linker, PoolingAllocationConfig};

use crate::config::{self, AddressSpace};
use crate::guest_code;
use crate::imports::{self, Host, HostState};
use crate::vm::STACK_START;

/// Largest memory a program may be given.
pub const MEMORY_BYTES_CAP: usize = 256 << 20;

/// Bytes of a memory in the quick pool that are reset in place when its program has ended, which saves the next one the
/// page faults: all but the stack. Most programs take no more.
const KEEP_RESIDENT_BYTES: usize = STACK_START;
/// What the quick pool may take when none of its memories is in use.
const IDLE_BYTES_MAX: usize = 38 << 20;
/// So many memories are reset when their program has ended. Others are given back.
pub const QUICK_PLACES: u32 = (IDLE_BYTES_MAX / KEEP_RESIDENT_BYTES) as u32;

/// With room for fewer programs a service is of no use.
const PROGRAMS_MIN: u32 = 4;

/// What programs share: the compiled guest, and two pools of memories that they run in.
pub struct Sandbox<H: 'static> {
    /// A few memories that keep what they took, so that programs start faster. There are none where address space is
    /// limited, which [`Sandbox::shortage`] tells.
    quick: Option<RwLock<InstancePre<HostState<H>>>>,
    /// Many memories that give everything back. Programs get one if all quick ones are taken. There are none if the quick
    /// ones are enough.
    large: Option<LargePool<H>>,
    programs_max: u32,
    shortage: Option<Shortage>,
    space: AddressSpace,
}

/// What a sandbox has to do without because address space is limited. Programs run all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// How many programs there is room for.
    pub programs_max: u32,
    /// How many there should have been room for.
    pub programs_wanted: u32,
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shortage { programs_max, programs_wanted } = self;
        write!(f, "address space is limited, so ")?;
        if programs_max < programs_wanted {
            write!(f, "there is room for {programs_max} programs instead of {programs_wanted}, and ")?;
        }
        write!(f, "programs start more slowly; `ulimit -v unlimited` (systemd: `LimitAS=infinity`) lifts the limit")
    }
}

struct LargePool<H: 'static> {
    engine: Engine,
    /// Loaded when it is needed for the first time.
    guest: OnceLock<InstancePre<HostState<H>>>,
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
    /// Reserves address space, not memory, for so many programs alive at the same time. Where it is limited they start
    /// more slowly, and there may be room for fewer: see [`shortage`](Self::shortage).
    pub fn new(programs_wanted: u32) -> Result<Sandbox<H>, SandboxError> {
        let quick_places = QUICK_PLACES.min(programs_wanted);
        let large_places = programs_wanted - quick_places;
        let is_ample =
            |within: &EngineWithin| within.space == AddressSpace::Ample && within.programs_max == large_places;
        let large = (large_places > 0).then(|| EngineWithin::largest(large_places)).transpose()?;
        if large.as_ref().is_none_or(is_ample)
            && let Ok(quick) = quick_engine(quick_places)
        {
            let space = AddressSpace::Ample;
            let quick = RwLock::new(link(&quick, space).map_err(SandboxError::Guest)?);
            let large = large.map(|within| LargePool { engine: within.engine, guest: OnceLock::new() });
            return Ok(Sandbox { quick: Some(quick), large, programs_max: programs_wanted, shortage: None, space });
        }
        drop(large);
        let EngineWithin { programs_max, space, engine } = EngineWithin::largest(programs_wanted)?;
        let guest = OnceLock::from(link(&engine, space).map_err(SandboxError::Guest)?);
        let shortage = Some(Shortage { programs_max, programs_wanted });
        Ok(Sandbox { quick: None, large: Some(LargePool { engine, guest }), programs_max, shortage, space })
    }

    /// How many programs may be alive at the same time.
    pub fn programs_max(&self) -> u32 {
        self.programs_max
    }

    /// Set if address space is limited. The crate logs nothing: the caller warns the person who can lift the limit.
    pub fn shortage(&self) -> Option<Shortage> {
        self.shortage
    }

    /// Gives back what the quick pool keeps, once the programs that are alive now have ended.
    ///
    /// A pool has no setting for that. So new programs get a new pool, and the old one is dropped with the last program in
    /// it.
    pub fn release_memory(&self) -> Result<(), SandboxError> {
        let Some(quick) = &self.quick else { return Ok(()) };
        let engine = quick_engine(QUICK_PLACES.min(self.programs_max))?;
        let fresh = link(&engine, self.space).map_err(SandboxError::Guest)?;
        let old = std::mem::replace(&mut *quick.write().unwrap_or_else(PoisonError::into_inner), fresh);
        // After the lock is released: the last one to drop it unmaps memory.
        drop(old);
        Ok(())
    }

    /// The guest in the quick pool.
    pub(crate) fn quick_guest(&self) -> Option<InstancePre<HostState<H>>> {
        self.quick.as_ref().map(|quick| quick.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// The guest in the large pool.
    pub(crate) fn large_guest(&self) -> Result<Option<&InstancePre<HostState<H>>>, SandboxError> {
        let Some(LargePool { engine, guest }) = &self.large else { return Ok(None) };
        if guest.get().is_none() {
            let loaded = link(engine, self.space).map_err(SandboxError::Guest)?;
            guest.get_or_init(|| loaded);
        }
        Ok(guest.get())
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

fn engine(programs_max: u32, space: AddressSpace) -> Result<Engine, SandboxError> {
    engine_keeping(0, programs_max, space)
}

fn quick_engine(programs_max: u32) -> Result<Engine, SandboxError> {
    engine_keeping(KEEP_RESIDENT_BYTES, programs_max, AddressSpace::Ample)
}

/// An engine whose memories keep this much for the next program. The other way to know what a program has written to is to
/// ask the kernel for the pages that are present, which leaves out those that are swapped out or on the move: the next
/// program would see them.
fn engine_keeping(resident_bytes: usize, programs_max: u32, space: AddressSpace) -> Result<Engine, SandboxError> {
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
        .max_core_instance_size(1 << 20)
        .linear_memory_keep_resident(resident_bytes);
    let mut config = config::shared(space);
    guest_code::allow_in_place(&mut config);
    // Else every stack that was ever used keeps its pages, however many there are.
    config.async_stack_zeroing(resident_bytes == 0);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config).map_err(|source| SandboxError::Pool { programs: programs_max, source })
}
