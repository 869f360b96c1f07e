//! Boots the guest once and writes the memory that it leaves behind into the module's data, so that a program starts with
//! an engine that is already initialised.

use std::error::Error;

use wasmtime::{Caller, Engine, Extern, ExternType, Linker, Module, Store, Val};

use crate::config;

const PAGE: usize = 4096;
const WASM_PAGE: usize = 65536;

const SECTION_CUSTOM: u8 = 0;
const SECTION_MEMORY: u8 = 5;
const SECTION_DATA: u8 = 11;
const SECTION_DATA_COUNT: u8 = 12;

pub(crate) struct Booted {
    pub(crate) module: Vec<u8>,
    /// Where the guest expects small messages.
    pub(crate) inbox: i32,
}

pub(crate) fn boot(wasm: &[u8]) -> Result<Booted, Box<dyn Error>> {
    let (memory, inbox) = memory_after_boot(wasm)?;
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
            SECTION_MEMORY => memory_section(body, memory.len())?,
            SECTION_DATA => data_section(&memory, &segments),
            SECTION_DATA_COUNT => unsigned(segments.len()),
            _ => body.to_vec(),
        };
        baked.push(id);
        baked.extend(unsigned(body.len()));
        baked.extend(body);
    }
    Ok(Booted { module: baked, inbox })
}

fn memory_after_boot(wasm: &[u8]) -> Result<(Vec<u8>, i32), Box<dyn Error>> {
    let mut config = config::shared(config::AddressSpace::Ample);
    config.consume_fuel(false);
    let engine = Engine::new(&config)?;
    let module = Module::new(&engine, wasm)?;
    let mut linker: Linker<Vec<String>> = Linker::new(&engine);
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
                    _ => format!("boot asked the host for `{name}`"),
                };
                caller.data_mut().push(said);
                Ok(())
            },
        )?;
    }
    let mut store = Store::new(&engine, Vec::new());
    let instance = linker.instantiate(&mut store, &module)?;
    let boot = instance.get_typed_func::<(), i32>(&mut store, "boot")?;
    let outcome = boot.call(&mut store, ());
    if !matches!(outcome, Ok(0)) || !store.data().is_empty() {
        return Err(format!("booting the guest gave {outcome:?}: {}", store.data().join("; ")).into());
    }
    let mut address = |name| match instance.get_global(&mut store, name).map(|global| global.get(&mut store)) {
        Some(Val::I32(address)) => Ok(address),
        _ => Err(format!("the guest does not tell its {name}")),
    };
    let (stack_top, inbox) = (address("__stack_pointer")?, address("inbox")?);
    let memory = instance.get_memory(&mut store, "memory").ok_or("no memory")?;
    let mut memory = memory.data(&store).to_vec();
    // The stack comes first in memory, and all of it is dead between two entries.
    memory[..usize::try_from(stack_top)?].fill(0);
    Ok((memory, inbox))
}

fn text(caller: &mut Caller<'_, Vec<String>>, at: i32, length: i32) -> String {
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else { return String::new() };
    let start = usize::try_from(at).unwrap_or_default();
    let end = start + usize::try_from(length).unwrap_or_default();
    String::from_utf8_lossy(&memory.data(&*caller)[start..end]).into_owned()
}

/// Runs of pages that hold anything but zeros.
fn touched(memory: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
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

fn data_section(memory: &[u8], segments: &[std::ops::Range<usize>]) -> Vec<u8> {
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
