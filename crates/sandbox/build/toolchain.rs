//! The C compiler and linker for WebAssembly.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Older linkers do not define `__heap_end`, which the libc needs.
const CLANG_VERSION_MIN: u32 = 16;

const ADVICE: &str = "clang 16 or newer with wasm-ld is needed to build the guest; run scripts/setup, \
    or install it (Debian: apt-get install clang-19 lld-19; macOS: brew install llvm lld; Fedora: dnf install clang lld), \
    or point DACAPO_CLANG and DACAPO_WASM_LD at it";

pub(crate) struct Toolchain {
    pub(crate) clang: PathBuf,
    pub(crate) wasm_ld: PathBuf,
    pub(crate) resource_dir: PathBuf,
}

impl Toolchain {
    /// Debian's clang 19 first: the same compiler gives the same image everywhere.
    pub(crate) fn find() -> Result<Toolchain, Box<dyn Error>> {
        if let Some(clang) = env::var_os("DACAPO_CLANG") {
            let wasm_ld = env::var_os("DACAPO_WASM_LD").unwrap_or_else(|| "wasm-ld".into());
            return Toolchain::usable(Path::new(&clang), Path::new(&wasm_ld)).ok_or_else(|| ADVICE.into());
        }
        let suffixes = [19, 20, 21, 22, 18, 17, 16].map(|version| format!("-{version}"));
        suffixes
            .iter()
            .map(String::as_str)
            .chain([""])
            .find_map(|suffix| {
                let clang = format!("clang{suffix}");
                let linkers = [format!("wasm-ld{suffix}"), "wasm-ld".to_owned()];
                linkers.iter().find_map(|wasm_ld| Toolchain::usable(Path::new(&clang), Path::new(wasm_ld)))
            })
            .ok_or_else(|| ADVICE.into())
    }

    fn usable(clang: &Path, wasm_ld: &Path) -> Option<Toolchain> {
        let version: u32 = output(clang, "-dumpversion")?.split('.').next()?.parse().ok()?;
        output(wasm_ld, "--version")?;
        let resource_dir = PathBuf::from(output(clang, "-print-resource-dir")?);
        (version >= CLANG_VERSION_MIN).then(|| Toolchain {
            clang: clang.to_path_buf(),
            wasm_ld: wasm_ld.to_path_buf(),
            resource_dir,
        })
    }
}

fn output(program: &Path, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
