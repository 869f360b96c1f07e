//! Real MCP servers, something for them to work on, and `dacapo` with both. `scripts/test-tools` installs the servers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Map, Value, json};
use tempfile::TempDir;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// A tool that the tests cannot do without.
pub(crate) fn installed(path: &str) -> PathBuf {
    let path = root().join("target/test-tools").join(path);
    assert!(path.exists(), "run scripts/test-tools first: {} is missing", path.display());
    path
}

/// A directory of one test: files, a repository, room for a graph and a table, and the servers file.
pub(crate) struct World {
    directory: TempDir,
}

impl World {
    /// With some of the servers, or all.
    pub(crate) fn new(servers: Option<&BTreeSet<String>>) -> World {
        let directory = tempfile::tempdir().expect("a directory");
        let made = Command::new(root().join("tests-tools/mcp/make-work")).arg(directory.path()).output();
        let made = made.expect("make-work starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let file = std::fs::read(root().join("tests-tools/mcp/servers.json")).expect("the servers file");
        let file: Value = serde_json::from_slice(&file).expect("JSON");
        let all = file["mcpServers"].as_object().expect("servers");
        for server in all.values() {
            let command = server["command"].as_str().expect("a command");
            installed(command.trim_start_matches("${TEST_TOOLS}/"));
        }
        let wanted: Map<String, Value> = (all.iter())
            .filter(|(name, _)| servers.is_none_or(|servers| servers.contains(*name)))
            .map(|(name, server)| (name.clone(), server.clone()))
            .collect();
        let world = World { directory };
        std::fs::write(world.servers_file(), json!({ "mcpServers": wanted }).to_string()).expect("a file");
        world
    }

    pub(crate) fn servers_file(&self) -> PathBuf {
        self.directory.path().join("servers.json")
    }

    /// What `dacapo` needs in its environment.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        vec![
            ("TEST_TOOLS", path(&root().join("target/test-tools"))),
            ("WORK", path(self.directory.path())),
            ("XDG_CACHE_HOME", path(&self.directory.path().join("cache"))),
        ]
    }

    pub(crate) fn dacapo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dacapo"));
        command.args(arguments).envs(self.environment());
        command
    }

    /// `dacapo mcp` as the words of a command line, for those who start it themselves. Some of them would take
    /// `--config` for themselves.
    pub(crate) fn dacapo_mcp(&self) -> Vec<String> {
        let file = ("DACAPO_MCP_CONFIG", self.servers_file().display().to_string());
        let environment = self.environment().into_iter().chain([file]).map(|(name, value)| format!("{name}={value}"));
        let dacapo = [env!("CARGO_BIN_EXE_dacapo"), "mcp"].map(str::to_owned);
        ["env".to_owned()].into_iter().chain(environment).chain(dacapo).collect()
    }
}

/// A program of `tests-tools/mcp/programs`, and what it should come to.
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) file: PathBuf,
    pub(crate) code: String,
    pub(crate) expected: Value,
}

impl Story {
    pub(crate) fn read(name: &'static str) -> Story {
        let file = root().join(format!("tests-tools/mcp/programs/{name}.ts"));
        let code = std::fs::read_to_string(&file).expect("a program");
        let expected = std::fs::read(file.with_extension("expected.json")).expect("what it should come to");
        Story { name, file, code, expected: serde_json::from_slice(&expected).expect("JSON") }
    }

    /// The servers that it names behind what it does: `// Thinks. (filesystem, memory)`
    pub(crate) fn servers(&self) -> BTreeSet<String> {
        let head = self.code.lines().take_while(|line| line.starts_with("//")).last().expect("a comment");
        let named = head.rsplit_once('(').expect("servers").1.trim_end_matches(')');
        named.split(", ").map(str::to_owned).collect()
    }
}

/// Handles are as good as random.
pub(crate) fn without_handles(value: &Value) -> Value {
    match value {
        Value::String(text) if text.starts_with("attachment:") => json!("attachment"),
        Value::Array(items) => items.iter().map(without_handles).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), without_handles(value))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

/// The last line of stdout, which is JSON.
pub(crate) fn report(output: &Output) -> Result<Value, String> {
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().last().unwrap_or_default();
    serde_json::from_str(last)
        .map_err(|error| format!("{error}, {}: {said}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}
