//! Boots the guest once and writes the memory that it leaves behind into the module's data, so that a program starts with
//! an engine that is already initialised.

use std::error::Error;
use std::ops::Range;

use wasmtime::{Caller, Engine, Extern, ExternType, Instance, Linker, Memory, Module, OptLevel, Store, Val};

use crate::config;

const PAGE: usize = 4096;
const WASM_PAGE: usize = 65536;

/// Stack of the guest while it boots.
pub(crate) const BOOT_STACK_BYTES: usize = 64 << 10;
/// Stack of the guest while it runs a program. It comes last in memory.
const STACK_BYTES: usize = 1 << 20;

const SECTION_CUSTOM: u8 = 0;
const SECTION_MEMORY: u8 = 5;
const SECTION_GLOBAL: u8 = 6;
const SECTION_DATA: u8 = 11;
const SECTION_DATA_COUNT: u8 = 12;

pub(crate) struct Booted {
    pub(crate) module: Vec<u8>,
    /// What the memory holds before the stack: the bytes of these ranges, one after the other.
    pub(crate) image: Vec<u8>,
    pub(crate) image_ranges: Vec<Range<usize>>,
    /// Where the guest expects small messages.
    pub(crate) inbox: i32,
    /// Where its stack begins, and what programs write to most ends.
    pub(crate) stack_start: usize,
    /// The names of the globals that programs find, sorted.
    pub(crate) built_ins: Vec<String>,
}

/// The two scripts are part of what programs find.
pub(crate) fn boot(wasm: &[u8], prelude: &[u8], intl: &[u8]) -> Result<Booted, Box<dyn Error>> {
    let BootedMemory { memory, boot_stack_top, inbox, built_ins } = memory_after_boot(wasm, [prelude, intl])?;
    let stack_start = memory.len();
    let segments = touched(&memory);
    let mut baked = wasm[..8].to_vec();
    let mut rest = &wasm[8..];
    while let Some((&id, after)) = rest.split_first() {
        rest = after;
        let length = read_unsigned(&mut rest)?;
        let (body, after) = rest.split_at_checked(length).ok_or("a section runs past the end of the module")?;
        rest = after;
        let body = match id {
            SECTION_CUSTOM => continue,
            SECTION_MEMORY => memory_section(body, stack_start + STACK_BYTES)?,
            SECTION_GLOBAL => global_section(body, boot_stack_top, stack_start + STACK_BYTES)?,
            SECTION_DATA => data_section(&memory, &segments),
            SECTION_DATA_COUNT => unsigned(segments.len()),
            _ => body.to_vec(),
        };
        baked.push(id);
        baked.extend(unsigned(body.len()));
        baked.extend(body);
    }
    let image = segments.iter().flat_map(|range| &memory[range.clone()]).copied().collect();
    Ok(Booted { module: baked, image, image_ranges: segments, inbox, stack_start, built_ins })
}

struct BootedMemory {
    memory: Vec<u8>,
    boot_stack_top: usize,
    inbox: i32,
    built_ins: Vec<String>,
}

fn memory_after_boot(wasm: &[u8], scripts: [&[u8]; 2]) -> Result<BootedMemory, Box<dyn Error>> {
    let mut config = config::shared(config::AddressSpace::Ample);
    config.consume_fuel(false);
    // It runs for a moment, and compiling it well takes longer.
    config.cranelift_opt_level(OptLevel::None);
    let engine = Engine::new(&config)?;
    let module = Module::new(&engine, wasm)?;
    let mut boot = Guest::new(&engine, &module)?;
    let mut params = Vec::new();
    for script in scripts {
        let compiled = Guest::new(&engine, &module)?.compile(script)?;
        params.push(Val::I32(boot.write(&compiled)?));
        params.push(Val::I32(i32::try_from(compiled.len())?));
    }
    let outcome = boot.call("boot", &params)?;
    if outcome != 0 {
        return Err(format!("booting the guest gave {outcome}").into());
    }
    let (boot_stack_top, inbox) = (usize::try_from(boot.address("__stack_pointer")?)?, boot.address("inbox")?);
    let mut memory = boot.memory.data(&boot.store).to_vec();
    // The stack of the boot comes first in memory, and nobody reads it again.
    memory[..boot_stack_top].fill(0);
    let built_ins = boot.call("built_ins", &[])?;
    let names = boot.memory.data(&boot.store).get(usize::try_from(built_ins)?..).unwrap_or_default();
    let names = String::from_utf8_lossy(names.split(|byte| *byte == 0).next().unwrap_or_default());
    let mut built_ins: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
    built_ins.sort();
    Ok(BootedMemory { memory, boot_stack_top, inbox, built_ins })
}

/// A guest that has no host: what it logs is an error.
struct Guest {
    store: Store<Vec<String>>,
    instance: Instance,
    memory: Memory,
}

impl Guest {
    fn new(engine: &Engine, module: &Module) -> Result<Guest, Box<dyn Error>> {
        let mut linker: Linker<Vec<String>> = Linker::new(engine);
        for import in module.imports() {
            let ExternType::Func(signature) = import.ty() else { continue };
            let name = import.name().to_owned();
            linker.func_new(
                import.module(),
                import.name(),
                signature,
                move |mut caller: Caller<'_, Vec<String>>, args, _| {
                    let said = match args {
                        [_, Val::I32(at), Val::I32(length)] if name == "log" => text(&mut caller, *at, *length),
                        _ => format!("it asked the host for `{name}`"),
                    };
                    caller.data_mut().push(said);
                    Ok(())
                },
            )?;
        }
        let mut store = Store::new(engine, Vec::new());
        let instance = linker.instantiate(&mut store, module)?;
        let memory = instance.get_memory(&mut store, "memory").ok_or("the guest has no memory")?;
        Ok(Guest { store, instance, memory })
    }

    fn call(&mut self, export: &str, params: &[Val]) -> Result<i32, Box<dyn Error>> {
        let function = self.instance.get_func(&mut self.store, export).ok_or("the guest lacks an export")?;
        let mut results = [Val::I32(0)];
        let outcome = function.call(&mut self.store, params, &mut results);
        match (outcome, &results) {
            (Ok(()), [Val::I32(result)]) if self.store.data().is_empty() => Ok(*result),
            (outcome, _) => Err(format!("`{export}` gave {outcome:?}: {}", self.store.data().join("; ")).into()),
        }
    }

    fn address(&mut self, global: &str) -> Result<i32, Box<dyn Error>> {
        match self.instance.get_global(&mut self.store, global).map(|global| global.get(&mut self.store)) {
            Some(Val::I32(address)) => Ok(address),
            _ => Err(format!("the guest does not tell its {global}").into()),
        }
    }

    /// Copies bytes into memory that the guest allocates, with a zero behind them, which the engine expects of scripts.
    fn write(&mut self, bytes: &[u8]) -> Result<i32, Box<dyn Error>> {
        let at = self.call("room", &[Val::I32(i32::try_from(bytes.len() + 1)?)])?;
        self.memory.write(&mut self.store, usize::try_from(at)?, &[bytes, &[0]].concat())?;
        Ok(at)
    }

    fn compile(mut self, script: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
        let source = self.write(script)?;
        let at = self.call("compile", &[Val::I32(source), Val::I32(i32::try_from(script.len())?)])?;
        let length = self.call("compiled_len", &[])?;
        let mut compiled = vec![0; usize::try_from(length)?];
        self.memory.read(&self.store, usize::try_from(at)?, &mut compiled)?;
        Ok(compiled)
    }
}

fn text(caller: &mut Caller<'_, Vec<String>>, at: i32, length: i32) -> String {
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else { return String::new() };
    let start = usize::try_from(at).unwrap_or_default();
    let end = start + usize::try_from(length).unwrap_or_default();
    String::from_utf8_lossy(&memory.data(&*caller)[start..end]).into_owned()
}

/// Runs of pages that hold anything but zeros.
fn touched(memory: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (page, bytes) in memory.chunks(PAGE).enumerate() {
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        let start = page * PAGE;
        match runs.last_mut() {
            Some(run) if run.end == start => run.end += bytes.len(),
            _ => runs.push(start..start + bytes.len()),
        }
    }
    runs
}

fn memory_section(body: &[u8], bytes: usize) -> Result<Vec<u8>, Box<dyn Error>> {
    let (&[count, flags], mut rest) = body.split_first_chunk::<2>().ok_or("an empty memory section")?;
    read_unsigned(&mut rest)?;
    let mut section = vec![count, flags];
    section.extend(unsigned(bytes / WASM_PAGE));
    section.extend(rest);
    Ok(section)
}

/// The first global is the stack pointer, and points to another stack now.
fn global_section(body: &[u8], old_top: usize, new_top: usize) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut rest = body;
    let count = read_unsigned(&mut rest)?;
    let mut expected = vec![0x7f, 1, 0x41]; // a mutable i32 that is a constant first
    expected.extend(signed(old_top));
    let rest = rest.strip_prefix(&expected[..]).ok_or("the first global is not the stack pointer")?;
    // Between two programs only the memory is reset.
    let others_are_constant = match count {
        1 => rest == [0x0b],
        2 => rest.starts_with(&[0x0b, 0x7f, 0]),
        _ => false,
    };
    if !others_are_constant {
        return Err("the guest has variables that are not in its memory".into());
    }
    let mut section = unsigned(count);
    section.extend([0x7f, 1, 0x41]);
    section.extend(signed(new_top));
    section.extend(rest);
    Ok(section)
}

fn data_section(memory: &[u8], segments: &[Range<usize>]) -> Vec<u8> {
    let mut section = unsigned(segments.len());
    for segment in segments {
        section.extend([0, 0x41]); // active in memory 0, at i32.const
        section.extend(signed(segment.start));
        section.push(0x0b);
        section.extend(unsigned(segment.len()));
        section.extend(&memory[segment.clone()]);
    }
    section
}

fn read_unsigned(bytes: &mut &[u8]) -> Result<usize, Box<dyn Error>> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or("the module ends in a number")?;
        *bytes = rest;
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number in the module is too long".into())
}

fn unsigned(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A non-negative number in signed LEB128.
fn signed(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x40 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}
