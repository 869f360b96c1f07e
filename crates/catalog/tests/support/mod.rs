//! What several tests need: test data, and the TypeScript compiler.
#![expect(dead_code, reason = "each test uses its part")]
#![expect(clippy::unwrap_used, reason = "what cannot be read fails the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use dacapo_catalog::{Tool, read_tools};
use serde_json::Value;

/// Set where `../shared/data` is missing on purpose, such as in a public clone.
const WITHOUT_SHARED_DATA: &str = "DACAPO_WITHOUT_SHARED_DATA";

/// Where test data comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataSource {
    /// `tests/corpus`, part of the repository.
    Corpus,
    /// `../shared/data`, beside the repository: larger, from real servers and public benchmarks.
    Shared,
}

impl DataSource {
    /// Those that are here: always the corpus, and the shared data where it was checked out. In CI its absence is a
    /// failure, so that the tests on it cannot be lost unnoticed.
    pub(crate) fn present() -> Vec<DataSource> {
        let shared = DataSource::Shared.path("");
        if shared.exists() {
            return vec![DataSource::Corpus, DataSource::Shared];
        }
        let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
        let is_meant = std::env::var_os(WITHOUT_SHARED_DATA).is_some_and(|value| value == "1");
        assert!(
            is_meant || !is_ci,
            "{} is missing in CI; check it out, or set {WITHOUT_SHARED_DATA}=1 if it is missing on purpose",
            shared.display()
        );
        vec![DataSource::Corpus]
    }

    pub(crate) fn path(self, path: &str) -> PathBuf {
        let root = match self {
            DataSource::Corpus => "tests/corpus",
            DataSource::Shared => "../../../shared/data",
        };
        Path::new(env!("CARGO_MANIFEST_DIR")).join(root).join(path)
    }

    /// The tool lists, each as the tools of a server that is named like its file.
    pub(crate) fn tool_lists(self) -> Vec<CorpusTools> {
        let files = std::fs::read_dir(self.path("tool-lists")).expect("the tool lists are readable");
        let mut paths: Vec<PathBuf> = files.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| CorpusTools::read(path)).collect()
    }

    /// The schemas with values that they accept and refuse.
    pub(crate) fn labelled_schemas(self) -> Vec<LabelledSchema> {
        match self {
            DataSource::Corpus => {
                let files = ["schemas/written.jsonl", "schemas/generated.jsonl"];
                let lines = files.iter().flat_map(|file| json_lines(&self.path(file)));
                lines.map(|line| LabelledSchema::new(line["schema"].clone(), &line)).collect()
            }
            DataSource::Shared => {
                let labels: BTreeMap<String, Value> = json_lines(&self.path("schemas/instances.jsonl"))
                    .into_iter()
                    .map(|line| (text(&line["id"]).to_owned(), line))
                    .collect();
                let schemas = json_lines(&self.path("schemas/corpus.jsonl")).into_iter();
                let labelled = schemas.map(|line| {
                    let labels = labels.get(text(&line["id"])).unwrap_or(&line);
                    LabelledSchema::new(line["schema"].clone(), labels)
                });
                labelled.collect()
            }
        }
    }
}

/// What a server offers.
pub(crate) struct CorpusTools {
    pub(crate) server: String,
    /// As it was sent, without what is around the array.
    pub(crate) json: Value,
    pub(crate) tools: Vec<Tool>,
}

impl CorpusTools {
    fn read(path: &Path) -> CorpusTools {
        let server = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let json: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let tools = read_tools(&json).unwrap().into_iter();
        let tools = tools.map(|tool| Tool { server: Some(server.clone()), ..tool }).collect();
        let array = [json.pointer("/result/tools"), json.get("tools")].into_iter().flatten().next();
        CorpusTools { server, json: array.unwrap_or(&json).clone(), tools }
    }
}

/// The input schema of a tool, and values that a validator of JSON Schema accepts or refuses.
pub(crate) struct LabelledSchema {
    pub(crate) id: String,
    pub(crate) schema: Value,
    pub(crate) valid: Vec<Value>,
    /// Refused, and a type can say so.
    pub(crate) invalid: Vec<Value>,
    /// Refused for what no type can say: ranges, lengths, patterns.
    pub(crate) invalid_beyond_types: Vec<Value>,
}

impl LabelledSchema {
    fn new(schema: Value, labels: &Value) -> LabelledSchema {
        let values = |label: &str| labels[label].as_array().cloned().unwrap_or_default();
        let refused = |label: &str| values(label).into_iter().map(|mut case| case["value"].take()).collect();
        LabelledSchema {
            id: text(&labels["id"]).to_owned(),
            schema,
            valid: values("valid"),
            invalid: refused("invalid"),
            invalid_beyond_types: refused("invalid_beyond_types"),
        }
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().expect("the value is text")
}

pub(crate) fn json_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
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
