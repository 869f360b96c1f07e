//! What several tests need: the data beside the repository, and the TypeScript compiler.
#![expect(dead_code, reason = "each test uses its part")]
#![expect(clippy::unwrap_used, reason = "what cannot be read fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use dacapo_catalog::{Tool, read_tools};
use serde_json::Value;

/// Where the data is, or nothing where it was not checked out.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub(crate) fn data(path: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(path);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {} is not here", path.display());
    None
}

pub(crate) fn json_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("the data is readable");
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

/// The tool lists of real servers: server, JSON, tools.
pub(crate) fn tool_lists() -> Vec<(String, Value, Vec<Tool>)> {
    let Some(directory) = data("tool-lists") else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let lists = paths.iter().map(|path| {
        let server = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let json: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let tools = read_tools(&json).unwrap().into_iter();
        let tools = tools.map(|tool| Tool { server: Some(server.clone()), ..tool }).collect();
        (server, json, tools)
    });
    lists.collect()
}

/// What `tsc --strict` finds wrong: file, line and message.
pub(crate) fn compile(files: &[(String, String)]) -> Vec<(String, usize, String)> {
    static INSTALLED: LazyLock<bool> = LazyLock::new(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test-tools");
        Command::new(script).status().expect("scripts/test-tools runs").success()
    });
    assert!(*INSTALLED, "scripts/test-tools could not install TypeScript");

    let name = format!("dacapo-tsc-{}-{}", std::process::id(), files.first().map_or("", |(name, _)| name));
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).unwrap();
    for (name, text) in files {
        std::fs::write(directory.join(name), text).unwrap();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(root.join("target/test-tools/node_modules/.bin/tsc"))
        .args(["--strict", "--noEmit", "--pretty", "false", "--lib", "es2022", "--types", ""])
        .args(files.iter().map(|(name, _)| name))
        .current_dir(&directory)
        .output()
        .expect("tsc runs");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let findings: Vec<(String, usize, String)> = report.lines().filter_map(finding).collect();
    assert!(
        output.status.success() || !findings.is_empty(),
        "tsc failed: {report}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::remove_dir_all(&directory).unwrap();
    findings
}

/// `file.ts(12,3): error TS2322: …`
fn finding(line: &str) -> Option<(String, usize, String)> {
    let (place, message) = line.split_once("): error ")?;
    let (file, position) = place.rsplit_once('(')?;
    let (line, _) = position.split_once(',')?;
    Some((file.to_owned(), line.parse().ok()?, message.to_owned()))
}
