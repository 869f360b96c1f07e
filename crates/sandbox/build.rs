//! Builds the guest: QuickJS from the registry crate's sources and our C, compiled to WebAssembly, booted once,
//! and compiled to machine code. The library embeds the outcome, so a start costs no compilation.

#![expect(clippy::disallowed_methods, reason = "cargo speaks to build scripts through the environment")]

#[path = "src/config.rs"]
mod config;
#[path = "build/engine.rs"]
mod engine;
#[path = "build/preinit.rs"]
mod preinit;
#[path = "build/toolchain.rs"]
mod toolchain;

use std::error::Error;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use config::AddressSpace;
use toolchain::Toolchain;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-changed=guest");
    println!("cargo:rerun-if-changed=src/config.rs");
    println!("cargo:rerun-if-env-changed=DACAPO_CLANG");
    println!("cargo:rerun-if-env-changed=DACAPO_WASM_LD");
    if let Err(error) = build() {
        println!("cargo::error=the guest could not be built: {error}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let sources = quickjs_sources(&here)?;
    fs::write(out.join("engine.c"), engine::changed(&fs::read_to_string(sources.join("quickjs/quickjs.c"))?)?)?;
    let wasm = compile(&Toolchain::find()?, &here, &sources, &out)?;
    let script = |name: &str| fs::read(here.join(format!("guest/{name}.js")));
    let booted = preinit::boot(&wasm, &script("prelude")?, &script("intl")?)?;
    let literal = |address: usize| format!("{:#06x}_{:04x}", address >> 16, address & 0xffff);
    for (name, address) in [("inbox", usize::try_from(booted.inbox)?), ("stack_start", booted.stack_start)] {
        fs::write(out.join(format!("{name}.in")), literal(address))?;
    }
    fs::write(out.join("memory.image"), &booted.image)?;
    let range = |range: &Range<usize>| format!("{}..{}", literal(range.start), literal(range.end));
    let ranges: Vec<String> = booted.image_ranges.iter().map(range).collect();
    fs::write(out.join("memory_ranges.in"), format!("[{}]", ranges.join(", ")))?;
    fs::write(out.join("built_ins.in"), format!("{:?}", booted.built_ins))?;
    // For those who compile it in another way: `dacapo-bench shares`.
    fs::write(out.join("booted.wasm"), &booted.module)?;
    for (name, space) in [("guest", AddressSpace::Ample), ("guest_scarce", AddressSpace::Scarce)] {
        fs::write(out.join(format!("{name}.cwasm")), machine_code(&booted.module, space)?)?;
    }
    Ok(())
}

/// The folder of the locked `rquickjs-sys`, which ships QuickJS-NG and a libc for WebAssembly.
fn quickjs_sources(here: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let output = Command::new(env::var("CARGO")?)
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
        .arg(here.join("Cargo.toml"))
        .output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == "rquickjs-sys")
        .and_then(|package| package["manifest_path"].as_str())
        .and_then(|manifest| Path::new(manifest).parent())
        .map(Path::to_path_buf)
        .ok_or_else(|| "Cargo.lock does not hold rquickjs-sys".into())
}

fn compile(tools: &Toolchain, here: &Path, sources: &Path, out: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let quickjs = sources.join("quickjs");
    let libc = sources.join("vendor/wasi-libc");
    let units = [
        here.join("guest/guest.c"),
        quickjs.join("libregexp.c"),
        quickjs.join("libunicode.c"),
        quickjs.join("dtoa.c"),
        sources.join("wasm-shim/shim.c"),
    ];
    let mut running = Vec::new();
    let mut objects = Vec::new();
    for unit in &units {
        let object = out.join(unit.file_name().ok_or("a source without a name")?).with_extension("o");
        let mut clang = Command::new(&tools.clang);
        clang
            .args(["--target=wasm32-unknown-unknown", "-nostdinc", "-O2", "-w", "-c"])
            .args(["-mbulk-memory", "-mnontrapping-fptoint", "-msign-ext"])
            // The engine's portable paths: no direct dispatch, no atomics, no host stack.
            .args(["-D_GNU_SOURCE", "-DNDEBUG", "-DEMSCRIPTEN=1", "-DFE_DOWNWARD=0", "-DFE_UPWARD=0"])
            .arg(format!("-DBOOT_STACK_BYTES={}", preinit::BOOT_STACK_BYTES))
            .arg("-isystem")
            .arg(libc.join("include"))
            .arg("-isystem")
            .arg(tools.resource_dir.join("include"))
            .args([Path::new("-I"), &quickjs, Path::new("-I"), out])
            .arg("-I")
            .arg(here.join("guest"))
            // Paths must not reach the image: the same sources give the same bytes in every folder.
            .arg(format!("-ffile-prefix-map={}=quickjs", sources.display()))
            .arg(unit)
            .arg("-o")
            .arg(&object);
        running.push((unit.clone(), clang.spawn()?));
        objects.push(object);
    }
    for (unit, mut child) in running {
        if !child.wait()?.success() {
            return Err(format!("{} failed on {}", tools.clang.display(), unit.display()).into());
        }
    }
    let linked = out.join("linked.wasm");
    let status = Command::new(&tools.wasm_ld)
        .args(&objects)
        .arg(libc.join("lib/libc.a"))
        .args([
            "--no-entry",
            "--stack-first",
            "-z",
            &format!("stack-size={}", preinit::BOOT_STACK_BYTES),
            "--export=__stack_pointer",
            "--export=inbox",
            "--strip-all",
        ])
        .arg("-o")
        .arg(&linked)
        .status()?;
    if !status.success() {
        return Err(format!("{} failed", tools.wasm_ld.display()).into());
    }
    Ok(fs::read(linked)?)
}

fn machine_code(image: &[u8], space: AddressSpace) -> Result<Vec<u8>, Box<dyn Error>> {
    let target = env::var("TARGET")?;
    let mut config = config::shared(space);
    // Naming the target keeps the build machine's own CPU features out.
    config.target(&target)?;
    config.cranelift_nan_canonicalization(true);
    if target.starts_with("x86_64") {
        for feature in ["has_sse3", "has_ssse3", "has_sse41", "has_sse42", "has_popcnt"] {
            // SAFETY: loading checks that the CPU has every feature that the code was compiled for.
            #[expect(unsafe_code, reason = "the only way to name x86-64-v2, which has fast rounding")]
            unsafe {
                config.cranelift_flag_enable(feature);
            }
        }
    }
    Ok(wasmtime::Engine::new(&config)?.precompile_module(image)?)
}
