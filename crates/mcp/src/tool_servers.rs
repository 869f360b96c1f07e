//! The fleet as the servers of a tool host.

use std::collections::BTreeSet;
use std::time::Duration;

use dacapo_replay::{Program, undefined_functions};
use dacapo_runner::{Availability, BoxFuture, LogSeverity, ServerLogs, ServerStatus, ToolHost, ToolServers};
use futures_util::FutureExt;

use crate::fleet::{Fleet, ServerPhase};

/// How long a search or a program waits for servers to start. The tools of a server that takes longer are missing from it.
const READY_MAX: Duration = Duration::from_secs(15);

impl ToolServers for Fleet {
    fn statuses(&self) -> Vec<ServerStatus> {
        let statuses = self.states().into_iter().filter_map(|state| {
            let availability = match state.phase {
                ServerPhase::Disabled => return None,
                ServerPhase::Ready => Availability::Ready,
                ServerPhase::Connecting if state.cached => Availability::StartingKnown,
                ServerPhase::Connecting => Availability::Starting,
                ServerPhase::Failed { reason, .. } => Availability::Failed(reason),
            };
            Some(ServerStatus { name: state.name, availability })
        });
        statuses.collect()
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        self.listed(READY_MAX).boxed()
    }

    fn logs(&self, severity_min: LogSeverity) -> Option<ServerLogs> {
        Some(Fleet::logs(self, severity_min))
    }

    fn ready_for<'a>(&'a self, program: &'a str) -> BoxFuture<'a, ()> {
        let names = WrittenNames::of(program);
        let toolbox = self.toolbox();
        let is_known = |name: &str| toolbox.catalog().find_written(name).is_some();
        let needs_all =
            names.looks_for_tools || undefined_functions(&Program::new(program)).iter().any(|name| !is_known(name));
        self.listed_where(READY_MAX, move |server| needs_all || names.has(server)).boxed()
    }
}

/// What a program may write instead of the name of a server.
const LOOKUPS: [&str; 7] = ["search", "describe", "calltool", "alltools", "tools", "codemode", "mcp"];

/// The names in a program, by their letters and digits: `sequentialThinking` is the server `sequential-thinking`.
struct WrittenNames {
    names: BTreeSet<String>,
    /// The program may reach any tool by a name that it computes.
    looks_for_tools: bool,
}

impl WrittenNames {
    fn of(program: &str) -> WrittenNames {
        let is_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$' | '-');
        let words = program.split(|letter| !is_word(letter)).filter(|word| !word.is_empty());
        let names: BTreeSet<String> = words.map(plain).collect();
        let looks_for_tools = LOOKUPS.iter().any(|name| names.contains(*name));
        WrittenNames { names, looks_for_tools }
    }

    fn has(&self, server: &str) -> bool {
        self.names.contains(&plain(server))
    }
}

fn plain(name: &str) -> String {
    name.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::WrittenNames;

    #[test]
    fn a_server_is_named_in_any_spelling() {
        let names = WrittenNames::of("await sequentialThinking.think({}); return await my_files['read']({})");
        assert!(names.has("sequential-thinking") && names.has("my files") && names.has("my-files"));
        assert!(!names.has("github") && !names.looks_for_tools);
        assert!(WrittenNames::of("return await tools[name]({})").looks_for_tools);
    }
}
