//! A memory with the guest in it. Programs use it one after the other: what one of them wrote is undone before the next.

use std::ops::Range;

use wasmtime::{Global, Instance, InstancePre, Memory, Store, TypedFunc};

use crate::imports::{Host, HostState};
use crate::page_map::{PAGE_BYTES, written_pages};
use crate::vm::{FUEL_PER_CHECK, STACK_START, drive};

/// What every program finds in its memory: the bytes of these ranges, one after the other. All else is zero.
static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/memory.image"));
static IMAGE_RANGES: &[Range<usize>] = &include!(concat!(env!("OUT_DIR"), "/memory_ranges.in"));

/// What a memory takes besides its pages: what describes it, and the stack that its guest has on the host.
const BYTES_BESIDE: usize = 64 << 10;
/// How much of the guest's stack a program may have written to, so that another one follows it. One that recursed deeply has
/// used as much of the host's stack, which is given back only as a whole.
const STACK_BYTES_KEPT_MAX: usize = 64 << 10;

pub(crate) struct GuestMemory<H: 'static> {
    pub store: Store<HostState<H>>,
    pub memory: Memory,
    pub exports: Exports,
    stack_pointer: Global,
    /// Before a program let it grow.
    bytes: usize,
    /// Its pages that are not shared with the image, at the most.
    pages: usize,
}

pub(crate) struct Exports {
    pub room: TypedFunc<u32, u32>,
    pub start: TypedFunc<u32, i32>,
    pub settle: TypedFunc<(u32, u32, u32, u32), i32>,
    pub tick: TypedFunc<(), i32>,
    pub finish: TypedFunc<(), ()>,
    pub locate: TypedFunc<(), ()>,
}

/// Why a pool has no memory for a program.
pub(crate) enum PoolError {
    Full,
    Guest(wasmtime::Error),
}

impl From<wasmtime::Error> for PoolError {
    fn from(error: wasmtime::Error) -> PoolError {
        if error.is::<wasmtime::PoolConcurrencyLimitError>() { PoolError::Full } else { PoolError::Guest(error) }
    }
}

impl<H: Host> GuestMemory<H> {
    /// A memory of the pool that this guest belongs to.
    pub(crate) fn of_pool(guest: &InstancePre<HostState<H>>, state: HostState<H>) -> Result<GuestMemory<H>, PoolError> {
        let mut store = Store::new(guest.module().engine(), state);
        store.limiter(|state| state);
        let instance = drive(guest.instantiate_async(&mut store), &|| true).expect("it is never given up")?;
        let exports = Exports::of(&instance, &mut store)?;
        let missing = || wasmtime::Error::msg("it does not export its memory and its stack pointer");
        let memory = instance.get_memory(&mut store, "memory").ok_or_else(missing)?;
        let stack_pointer = instance.get_global(&mut store, "__stack_pointer").ok_or_else(missing)?;
        let bytes = memory.data_size(&store);
        let mut made = GuestMemory { store, memory, exports, stack_pointer, bytes, pages: bytes / PAGE_BYTES };
        made.prepare()?;
        Ok(made)
    }

    /// The same memory for another program, after [`GuestMemory::reset`].
    pub(crate) fn reuse(mut self, state: HostState<H>) -> wasmtime::Result<GuestMemory<H>> {
        *self.store.data_mut() = state;
        self.prepare()?;
        Ok(self)
    }

    fn prepare(&mut self) -> wasmtime::Result<()> {
        let state = self.store.data_mut();
        state.memory = Some(self.memory);
        let fuel = state.fuel_at_check;
        self.store.set_fuel(fuel)?;
        self.store.fuel_async_yield_interval(Some(FUEL_PER_CHECK))
    }
}

impl<H> GuestMemory<H> {
    /// The pages that its program has changed, by their numbers; `None` if the guest was stopped within a function.
    pub(crate) fn changed_pages(&mut self) -> Option<Vec<(u32, &[u8])>> {
        let stack_top = self.stack_pointer.get(&mut self.store);
        if stack_top.i32() != i32::try_from(self.bytes).ok() {
            return None;
        }
        let bytes = self.memory.data(&self.store);
        let written = written_pages(bytes.as_ptr().addr(), bytes.len() / PAGE_BYTES);
        let written = written.unwrap_or_else(|| all_pages(bytes));
        let pages = bytes.chunks(PAGE_BYTES).zip(image_pages()).zip(0..).zip(written);
        let changed = pages.filter(|(((page, as_new), _), is_written)| *is_written && page != as_new);
        Some(changed.map(|(((page, _), number), _)| (number, page)).collect())
    }

    /// Makes all that a program can see what it was before the program that ended, and drops what the host kept of that.
    /// `false` if the memory has to be dropped as well: it has grown, or much of its stack was used, or the guest was stopped
    /// within a function.
    pub(crate) fn reset(&mut self) -> bool {
        *self.store.data_mut() = HostState::between_programs(0, 0);
        // The guest has no other variables outside of its memory: `build/preinit.rs` makes sure of that.
        let stack_top = self.stack_pointer.get(&mut self.store);
        let bytes = self.memory.data_mut(&mut self.store);
        if bytes.len() != self.bytes || stack_top.i32() != i32::try_from(self.bytes).ok() {
            return false;
        }
        let written = written_pages(bytes.as_ptr().addr(), bytes.len() / PAGE_BYTES);
        let stack_pages = |written: &Vec<bool>| written[STACK_START / PAGE_BYTES..].iter().filter(|it| **it).count();
        if written.as_ref().map_or(0, stack_pages) * PAGE_BYTES > STACK_BYTES_KEPT_MAX {
            return false;
        }
        let written = written.unwrap_or_else(|| all_pages(bytes));
        self.pages = written.iter().filter(|is_written| **is_written).count();
        restore(bytes, &written);
        true
    }

    /// The pages before its stack that programs wrote to; none where the system does not tell.
    pub(crate) fn written_pages(&self) -> Vec<bool> {
        let address = self.memory.data(&self.store).as_ptr().addr();
        written_pages(address, STACK_START / PAGE_BYTES).unwrap_or_default()
    }

    /// Makes these pages of a new memory its own, as a program would that writes to them.
    pub(crate) fn take_pages(&mut self, pages: &[bool]) {
        let bytes = self.memory.data_mut(&mut self.store);
        for (page, _) in bytes.chunks_mut(PAGE_BYTES).zip(pages).filter(|(_, is_taken)| **is_taken) {
            // The compiler may not know that it is what was there.
            page[0] = std::hint::black_box(page[0]);
        }
        self.pages = pages.iter().filter(|is_taken| **is_taken).count();
    }

    /// What it takes while no program uses it.
    pub(crate) fn kept_bytes(&self) -> usize {
        BYTES_BESIDE + self.pages * PAGE_BYTES
    }
}

/// Where the system does not tell what was written, all may have been.
fn all_pages(bytes: &[u8]) -> Vec<bool> {
    vec![true; bytes.len() / PAGE_BYTES]
}

/// Makes the pages that may have been written to what programs find in them.
fn restore(bytes: &mut [u8], written: &[bool]) {
    let pages = bytes.chunks_mut(PAGE_BYTES).zip(image_pages()).zip(written);
    for ((page, as_new), _) in pages.filter(|(_, is_written)| **is_written) {
        // Writing what is there already would give the memory a page of its own.
        if page != as_new {
            page.copy_from_slice(as_new);
        }
    }
}

/// The pages of a memory as programs find it, without end.
pub(crate) fn image_pages() -> impl Iterator<Item = &'static [u8]> {
    const ZEROS: &[u8] = &[0; PAGE_BYTES];
    let mut image = IMAGE.chunks(PAGE_BYTES);
    let mut ranges = IMAGE_RANGES.iter().peekable();
    (0..).step_by(PAGE_BYTES).map(move |start: usize| {
        while ranges.next_if(|range| range.end <= start).is_some() {}
        let is_in_image = ranges.peek().is_some_and(|range| range.contains(&start));
        if is_in_image { image.next().unwrap_or(ZEROS) } else { ZEROS }
    })
}

impl Exports {
    fn of(instance: &Instance, store: &mut Store<impl Send>) -> wasmtime::Result<Exports> {
        Ok(Exports {
            room: instance.get_typed_func(&mut *store, "room")?,
            start: instance.get_typed_func(&mut *store, "start")?,
            settle: instance.get_typed_func(&mut *store, "settle")?,
            tick: instance.get_typed_func(&mut *store, "tick")?,
            finish: instance.get_typed_func(&mut *store, "finish")?,
            locate: instance.get_typed_func(&mut *store, "where")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{GuestMemory, PAGE_BYTES, restore};
    use crate::{ProgramNames, Sandbox, Stop, Vm, VmConfig};

    /// What programs may leave behind: objects, changed built-ins, text, timers, rejections, a used stack.
    const PROGRAMS: [&str; 5] = [
        "globalThis.secret = 'a secret'.repeat(99); Array.prototype.map = () => 'mine'; return secret.length",
        "const all = new Map(); for (let i = 0; i < 200; i++) all.set(`key ${i}`, { i, at: [i] }); return all.size",
        "const deep = (n) => n === 0 ? 0 : 1 + deep(n - 1); return deep(90)",
        "setTimeout(() => Promise.reject(new Error('late')), 1); await new Promise((done) => setTimeout(done, 2))",
        "Object.defineProperty(Object.prototype, 'x', { get() { return 7 } }); throw new TypeError({}.x)",
    ];
    const RECURSES: &str = "const deep = (n) => n === 0 ? 0 : 1 + deep(n - 1); return deep(1000)";
    const GROWS: &str = "return new Uint8Array(1 << 20).fill(1).length";
    const NEVER_ENDS: &str = "for (;;);";

    fn config() -> VmConfig {
        VmConfig { entropy: [7; 40], started_at_ms: 0.0, fuel: 1 << 26, memory_bytes: 64 << 20, stack_bytes: 256 << 10 }
    }

    fn run(vm: &mut Vm<()>, body: &str) -> Result<(), Stop> {
        let code = format!("(async () => {{ {body} }})()");
        let mut state = vm.start(&config(), &ProgramNames::default(), &code, &|| true)?;
        while state == crate::IdleState::WaitingForTimer {
            state = vm.tick(&|| true)?;
        }
        vm.finish(&|| true).map(drop)
    }

    fn bytes(vm: &Vm<()>) -> Vec<u8> {
        let guest = vm.guest();
        guest.memory.data(&guest.store).to_vec()
    }

    fn idle(sandbox: &Sandbox<()>) -> usize {
        sandbox.idle().count()
    }

    #[test]
    fn a_memory_that_programs_used_is_as_a_new_one() {
        let fresh = bytes(&Sandbox::new(1).expect("a sandbox").new_vm(&config(), ()).expect("a memory"));
        let sandbox = Sandbox::new(1).expect("a sandbox");
        for program in PROGRAMS {
            let mut vm = sandbox.new_vm(&config(), ()).expect("a memory");
            run(&mut vm, program).expect("it ends by itself");
            // Reading all of it would make all of it count as written.
            drop(vm);
            assert_eq!(idle(&sandbox), 1, "the memory after {program} is used again");
            let vm = sandbox.new_vm(&config(), ()).expect("a memory");
            assert_eq!(idle(&sandbox), 0);
            assert!(bytes(&vm) == fresh, "nothing is left of {program}");
            assert_eq!(vm.fuel_used(), 0);
        }
    }

    #[test]
    fn all_of_a_memory_is_compared_where_the_system_does_not_tell_what_was_written() {
        let sandbox = Sandbox::new(1).expect("a sandbox");
        let mut vm = sandbox.new_vm(&config(), ()).expect("a memory");
        let fresh = bytes(&vm);
        run(&mut vm, PROGRAMS[0]).expect("it ends by itself");
        let GuestMemory { store, memory, .. } = vm.guest_mut();
        restore(memory.data_mut(store), &vec![true; fresh.len() / PAGE_BYTES]);
        assert!(bytes(&vm) == fresh);
    }

    #[test]
    fn a_new_memory_takes_the_place_of_one_that_cannot_be_made_as_new() {
        let sandbox = Sandbox::new(1).expect("a sandbox");
        let fresh = bytes(&sandbox.new_vm(&config(), ()).expect("a memory"));
        for program in [GROWS, RECURSES] {
            let mut vm = sandbox.new_vm(&config(), ()).expect("a memory");
            run(&mut vm, program).expect("it ends by itself");
            assert!(!vm.guest_mut().reset(), "{program}");
            drop(vm);
            assert_eq!(idle(&sandbox), 1, "{program}");
            let vm = sandbox.new_vm(&config(), ()).expect("a memory");
            assert!(bytes(&vm) == fresh, "{program}");
        }
    }

    /// The guest was stopped within a function.
    #[test]
    fn a_memory_whose_program_did_not_end_is_given_back() {
        let sandbox = Sandbox::new(1).expect("a sandbox");
        let mut vm = sandbox.new_vm(&config(), ()).expect("a memory");
        assert!(run(&mut vm, NEVER_ENDS).is_err());
        drop(vm);
        assert_eq!(idle(&sandbox), 0);
        let mut vm = sandbox.new_vm(&config(), ()).expect("a memory");
        let never = format!("(async () => {{ {NEVER_ENDS} }})()");
        let interrupted = vm.start(&config(), &ProgramNames::default(), &never, &|| false);
        assert_eq!(interrupted, Err(Stop::Interrupted));
        drop(vm);
        assert_eq!(idle(&sandbox), 0);
    }

    #[test]
    fn no_more_memories_are_kept_than_their_bytes_and_their_use_allow() {
        const PROGRAMS_MAX: u32 = 200;
        let sandbox = Sandbox::new(PROGRAMS_MAX).expect("a sandbox");
        let run_at_once = |count: u32| {
            let mut vms: Vec<_> = (0..count).map(|_| sandbox.new_vm(&config(), ()).expect("a memory")).collect();
            for vm in &mut vms {
                run(vm, PROGRAMS[0]).expect("it ends");
            }
        };
        run_at_once(PROGRAMS_MAX);
        let kept = idle(&sandbox);
        assert!((20..PROGRAMS_MAX as usize).contains(&kept), "{kept}");
        sandbox.release_unused();
        assert_eq!(idle(&sandbox), kept, "they were used before this call");
        run_at_once(3);
        sandbox.release_unused();
        assert_eq!(idle(&sandbox), 3, "and only three since");
        sandbox.release_memory();
        assert_eq!(idle(&sandbox), 0);
    }
}
