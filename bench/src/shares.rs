//! What share of a program's CPU is the engine, WebAssembly and fuel counting: the guest as the library has it, and compiled
//! without fuel, beside native QuickJS.

use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use anyhow::{Context as _, anyhow};
use wasmtime::{Config, Engine, InstancePre, Linker, Module, Store};

use crate::{native, sample::Sample, work};

/// Fuel that no program here uses up.
const FUEL: u64 = 1 << 40;
/// As in the sandbox.
const FUEL_PER_CHECK: u64 = 4_000_000;
const INBOX_BYTES: usize = 65536;
const STACK_BYTES: u32 = 256 << 10;

pub(crate) fn run(guest: &Path, quick: bool) -> anyhow::Result<()> {
    let runs = if quick { 10 } else { 50 };
    let (metered, unmetered) = (Guest::read(guest, Fuel::Counted)?, Guest::read(guest, Fuel::NotCounted)?);
    println!("CPU, microseconds (minima of {runs}); ratio to native QuickJS (rquickjs 0.14)\n");
    println!("{:44} {:>8} {:>18} {:>18} {:>8}", "", "native", "in WebAssembly", "and fuel counted", "fuel");
    let (big_answer, ones) = (work::big_answer(), vec!["1"; work::CHAIN_CALLS]);
    for (name, code, answers) in [
        ("1 MB answer: parse, filter, sort", work::BIG_ANSWER, &[big_answer.as_str()][..]),
        ("sorting 20,000 objects", work::SORTING, &["1"]),
        ("1 MB of text, put together and apart", work::TEXT, &["1"]),
        ("1,000 sequential calls", work::CHAIN, &ones),
    ] {
        let engine = native::answered(code, answers, runs)?.min();
        let [wasm, all] =
            [unmetered.answered(code, answers, runs)?.min(), metered.answered(code, answers, runs)?.min()];
        println!(
            "{name:44} {engine:>8.0} {:>18} {:>18} {:>7.0}%",
            format!("{wasm:.0}, {:.2} ×", wasm / engine),
            format!("{all:.0}, {:.2} ×", all / engine),
            100.0 * (all - wasm) / all
        );
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fuel {
    Counted,
    NotCounted,
}

struct Guest {
    instance: InstancePre<()>,
    inbox: u32,
    fuel: Fuel,
}

impl Guest {
    /// Compiles the guest that the build of `dacapo-sandbox` has left in its folder.
    fn read(folder: &Path, fuel: Fuel) -> anyhow::Result<Guest> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path).with_context(|| format!("{}: name the `out` folder of dacapo-sandbox", path.display()))
        };
        let inbox = String::from_utf8(read("inbox.in")?)?.replace('_', "");
        let mut config = Config::new();
        config.consume_fuel(fuel == Fuel::Counted);
        config.cranelift_nan_canonicalization(true);
        config.memory_may_move(false);
        let engine = Engine::new(&config).map_err(|error| anyhow!("{error:?}"))?;
        let module = Module::new(&engine, read("booted.wasm")?).map_err(|error| anyhow!("{error:?}"))?;
        let instance = link(&engine, &module).map_err(|error| anyhow!("{error:?}"))?;
        Ok(Guest { instance, inbox: u32::from_str_radix(inbox.trim_start_matches("0x"), 16)?, fuel })
    }

    /// A program whose calls are answered one after another.
    fn answered(&self, code: &str, answers: &[&str], runs: usize) -> anyhow::Result<Sample> {
        Sample::cpu(runs, || self.run(code, answers).map_err(|error| anyhow!("{error:?}")))
    }

    fn run(&self, code: &str, answers: &[&str]) -> wasmtime::Result<()> {
        let mut store = Store::new(self.instance.module().engine(), ());
        if self.fuel == Fuel::Counted {
            store.set_fuel(FUEL)?;
            store.fuel_async_yield_interval(Some(FUEL_PER_CHECK))?;
        }
        let instance = finish(self.instance.instantiate_async(&mut store))?;
        let memory = instance.get_memory(&mut store, "memory").ok_or_else(|| wasmtime::Error::msg("no memory"))?;
        let room = instance.get_typed_func::<u32, u32>(&mut store, "room")?;
        let start = instance.get_typed_func::<u32, i32>(&mut store, "start")?;
        let settle = instance.get_typed_func::<(u32, u32, u32, u32), i32>(&mut store, "settle")?;
        memory.write(&mut store, self.inbox as usize, &start_message(code))?;
        let mut state = finish(start.call_async(&mut store, self.inbox))?;
        for (call, answer) in (0..).zip(answers) {
            wasmtime::ensure!(state == PENDING, "the program did not wait for call {call}: {state}");
            let text = [answer.as_bytes(), &[0]].concat();
            let is_small = text.len() <= INBOX_BYTES;
            let at = if is_small { self.inbox } else { finish(room.call_async(&mut store, text.len() as u32))? };
            memory.write(&mut store, at as usize, &text)?;
            state = finish(settle.call_async(&mut store, (call, 0, at, answer.len() as u32)))?;
        }
        wasmtime::ensure!(state == FULFILLED, "the program did not end: {state}");
        Ok(())
    }
}

/// As in guest.c.
const PENDING: i32 = 0;
const FULFILLED: i32 = 2;

/// The guest's imports; these programs need none but that their calls are taken.
fn link(engine: &Engine, module: &Module) -> wasmtime::Result<InstancePre<()>> {
    let mut linker: Linker<()> = Linker::new(engine);
    linker.func_wrap("host", "call", |_: u32, _: u32, _: u32| -> i32 { 0 })?;
    linker.define_unknown_imports_as_traps(module)?;
    linker.instantiate_pre(module)
}

/// `Start` in guest.c, one function as its names, and the program.
fn start_message(code: &str) -> Vec<u8> {
    let javascript = format!("(async () => {{\n{code}\n}})()");
    let name = "weather";
    let mut names = vec![1, 0, 0, 0, 0];
    names.extend((name.len() as u32).to_le_bytes());
    names.extend(name.as_bytes());
    let mut message = 1.76e12_f64.to_le_bytes().to_vec();
    message.extend([7; 40]);
    for number in [STACK_BYTES, names.len() as u32, javascript.len() as u32, 0] {
        message.extend(number.to_le_bytes());
    }
    message.extend(names);
    message.extend(javascript.as_bytes());
    message.push(0);
    message
}

/// Polls until it is done: the guest gives way when it has used some fuel.
fn finish<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
}
