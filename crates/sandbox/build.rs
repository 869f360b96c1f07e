//! Builds the guest: QuickJS from the registry crate's sources and our C, compiled to WebAssembly, booted once,
//! and compiled to machine code. The library embeds the outcome, so a start costs no compilation.

#![expect(clippy::disallowed_methods, reason = "cargo speaks to build scripts through the environment")]

#[path = "src/config.rs"]
mod config;
#[path = "build/preinit.rs"]
mod preinit;
#[path = "build/toolchain.rs"]
mod toolchain;

use std::error::Error;
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
    fs::write(out.join("engine.c"), engine(&fs::read_to_string(sources.join("quickjs/quickjs.c"))?)?)?;
    let wasm = compile(&Toolchain::find()?, &here, &sources, &out)?;
    let script = |name: &str| fs::read(here.join(format!("guest/{name}.js")));
    let booted = preinit::boot(&wasm, &script("prelude")?, &script("intl")?)?;
    for (name, address) in [("inbox", usize::try_from(booted.inbox)?), ("stack_start", booted.stack_start)] {
        fs::write(out.join(format!("{name}.in")), format!("{:#06x}_{:04x}", address >> 16, address & 0xffff))?;
    }
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

/// Changes to the engine's source. The first two report errors and programs that ran out of fuel at the right position:
/// unchanged, the engine updates the position of a function only at calls, and has lines for few kinds of expressions.
const CHANGES: [(&str, &str); 9] = [
    ("switch (opcode = *pc++)", "sf->cur_pc = pc + 1; switch (opcode = *pc++)"),
    ("/* specific label handling */", "emit_source_loc(s);"),
    // There are no modules here; namespaces of tools are made when they are first read.
    ("js_module_ns_autoinit, /* JS_AUTOINIT_ID_MODULE_NS */", "namespace_autoinit,"),
    ("js_dynamic_import(ctx, sp[-2], sp[-1]);", "import_tools(ctx, sp[-2]);"),
    // JSON is read by ours, and by the engine's own parser if it is not well formed or a reviver wants to know its source.
    ("static JSValue JS_ParseJSON_internal(", "#include \"json_read.h\"\nstatic JSValue JS_ParseJSON_internal("),
    (
        "js_parse_init(ctx, s, buf, buf_len, filename, 1);",
        "if (!pr && !JS_IsUninitialized(val = json_read(ctx, buf, buf_len, filename))) return val;\n    val = JS_UNDEFINED;\n    \
         js_parse_init(ctx, s, buf, buf_len, filename, 1);",
    ),
    ("static JSValue js_string_toLowerCase(JSContext *ctx, JSValueConst this_val,\n", CASE),
    (
        "if (p->len == 0)\n        return val;\n    if (string_buffer_init(ctx, b, p->len))",
        "if (p->len == 0) return val;\n    JSValue ascii = ascii_case(ctx, p, to_lower);\n    \
         if (!JS_IsUninitialized(ascii)) { JS_FreeValue(ctx, val); return ascii; }\n    \
         if (string_buffer_init(ctx, b, p->len))",
    ),
    // A promise knows the tool whose answer it waits for.
    (
        "bool is_handled;\n    JSValue promise_result;",
        "bool is_handled;\n    uint32_t tool;\n    JSValue promise_result;",
    ),
];

const CASE: &str =
    "#include \"ascii_case.h\"\nstatic JSValue js_string_toLowerCase(JSContext *ctx, JSValueConst this_val,\n";

fn engine(source: &str) -> Result<String, Box<dyn Error>> {
    CHANGES.iter().try_fold(source.to_owned(), |source, (from, to)| match source.matches(from).count() {
        1 => Ok(source.replace(from, to)),
        count => Err(format!("expected `{from}` once in quickjs.c, found it {count} times").into()),
    })
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
