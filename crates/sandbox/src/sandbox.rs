//! The compiled guest and the pool of memories that programs run in.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use wasmtime::{Enabled, Engine, InstanceAllocationStrategy, InstancePre, Linker, PoolingAllocationConfig};

use crate::config::{self, AddressSpace};
use crate::guest_code;
use crate::hot_pages::HotPages;
use crate::imports::{self, Host, HostState};

/// Largest memory a program may be given.
pub const MEMORY_BYTES_CAP: usize = 256 << 20;

/// Bytes of a released memory that are reset in place instead of being given back, which saves page faults. Most
/// programs write to less.
const KEEP_RESIDENT_BYTES: usize = 1 << 20;
/// The same for the tables of the guest.
const TABLE_KEEP_RESIDENT_BYTES: usize = 64 << 10;
/// What all memories that are not in use may take, for the next programs to start faster.
const IDLE_BYTES_MAX: usize = 64 << 20;

/// With room for fewer programs a service is of no use.
const PROGRAMS_MIN: u32 = 4;

/// Fewer memories are not worth giving back.
const IDLE_PLACES_MIN: u32 = (IDLE_BYTES_MAX / KEEP_RESIDENT_BYTES) as u32;
/// Memories are given back when fewer than one in so many of them are in use.
const IDLE_SHARE: u32 = 8;

/// What programs share: the compiled guest, and the pool of memories that they run in.
pub struct Sandbox<H: 'static> {
    guest: RwLock<InstancePre<HostState<H>>>,
    pub(crate) programs_max: u32,
    space: AddressSpace,
    pub(crate) places: Arc<PlaceCount>,
    pub(crate) hot_pages: Arc<HotPages>,
}

/// Programs that are alive, and the most that were since memory was last released.
#[derive(Debug, Default)]
pub(crate) struct PlaceCount {
    alive: AtomicU32,
    most: AtomicU32,
}

/// One program that is alive.
#[derive(Debug)]
pub(crate) struct PlaceTaken(Arc<PlaceCount>);

impl PlaceTaken {
    pub(crate) fn new(count: &Arc<PlaceCount>) -> PlaceTaken {
        let alive = count.alive.fetch_add(1, Ordering::Relaxed) + 1;
        count.most.fetch_max(alive, Ordering::Relaxed);
        PlaceTaken(Arc::clone(count))
    }
}

impl Drop for PlaceTaken {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::Relaxed);
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
    /// Reserves address space, not memory, for `programs_max` programs alive at the same time. Where it is limited there
    /// is room for fewer, see [`programs_max`](Self::programs_max).
    pub fn new(programs_max: u32) -> Result<Sandbox<H>, SandboxError> {
        let EngineWithin { programs_max, space, engine } = EngineWithin::largest(programs_max)?;
        let guest = RwLock::new(link(&engine, space).map_err(SandboxError::Guest)?);
        Ok(Sandbox { guest, programs_max, space, places: Arc::default(), hot_pages: Arc::default() })
    }

    /// How many programs may be alive at the same time.
    pub fn programs_max(&self) -> u32 {
        self.programs_max
    }

    /// Whether most of the memories that were in use are not any more. They still take room, so that the next programs
    /// start faster.
    pub fn is_mostly_idle(&self) -> bool {
        let most = self.places.most.load(Ordering::Relaxed);
        most >= IDLE_PLACES_MIN && self.places.alive.load(Ordering::Relaxed) <= most / IDLE_SHARE
    }

    /// Gives back the memories that are not in use, once the programs that are alive now have ended.
    ///
    /// A pool keeps what its memories took, for the next programs to start faster, and has no setting against it.
    /// So new programs get a new pool, and the old one is dropped with the last program in it.
    pub fn release_memory(&self) -> Result<(), SandboxError> {
        let alive = self.places.alive.load(Ordering::Relaxed);
        self.places.most.store(alive, Ordering::Relaxed);
        let fresh = link(&engine(self.programs_max, self.space)?, self.space).map_err(SandboxError::Guest)?;
        let old = std::mem::replace(&mut *self.guest.write().unwrap_or_else(PoisonError::into_inner), fresh);
        // After the lock is released: the last one to drop it unmaps memory.
        drop(old);
        self.hot_pages.forget_memories();
        Ok(())
    }

    pub(crate) fn guest(&self) -> InstancePre<HostState<H>> {
        self.guest.read().unwrap_or_else(PoisonError::into_inner).clone()
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
    // Kernels before 6.7 cannot tell which pages were written to, and the first ones of a memory are a stack that hardly
    // any program needs.
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        pool.pagemap_scan(Enabled::Yes)
            .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
            .table_keep_resident(TABLE_KEEP_RESIDENT_BYTES);
    }
    let mut config = config::shared(space);
    guest_code::allow_in_place(&mut config);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config).map_err(|source| SandboxError::Pool { programs: programs_max, source })
}
