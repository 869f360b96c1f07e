//! A task: what the user asks in which world, what must have happened in the end, and one solution. Tasks are data
//! files.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, ensure};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::checker::{AnswerCheck, ExpectedChange, world_mistakes};
use super::solution::{ClassicSolution, CodeSolution};
use super::world::{FILES as WORLDS, World, WorldTemplate};

#[derive(Debug)]
pub(crate) struct Task {
    pub name: String,
    /// What makes it hard: the name of its file.
    pub kind: String,
    pub world: Arc<WorldTemplate>,
    pub turns: Vec<TaskTurn>,
    changes: Vec<ExpectedChange>,
    /// Of everything above: results of a task that has changed are not reused.
    pub digest: String,
}

/// A question of the user.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskTurn {
    pub question: String,
    #[serde(default)]
    pub answer: AnswerCheck,
    /// One way to answer it, in each mode.
    pub classic: ClassicSolution,
    pub code: CodeSolution,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskFile {
    task: Vec<TaskData>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskData {
    name: String,
    world: String,
    turn: Vec<TaskTurn>,
    #[serde(default)]
    changes: Vec<ExpectedChange>,
}

/// The tasks that are part of this command, by kind.
const FILES: [(&str, &str); 11] = [
    ("lookup", include_str!("tasks/lookup.toml")),
    ("join", include_str!("tasks/join.toml")),
    ("loop", include_str!("tasks/loop.toml")),
    ("pages", include_str!("tasks/pages.toml")),
    ("failure", include_str!("tasks/failure.toml")),
    ("large", include_str!("tasks/large.toml")),
    ("image", include_str!("tasks/image.toml")),
    ("schema", include_str!("tasks/schema.toml")),
    ("search", include_str!("tasks/search.toml")),
    ("follow-up", include_str!("tasks/follow-up.toml")),
    ("once", include_str!("tasks/once.toml")),
];

impl Task {
    /// All tasks, in the order of their files.
    pub(crate) fn all() -> anyhow::Result<Vec<Task>> {
        let mut worlds = BTreeMap::new();
        for (name, toml) in WORLDS {
            let world = WorldTemplate::parse(toml).with_context(|| format!("worlds/{name}.toml"))?;
            worlds.insert(name, (Arc::new(world), toml));
        }
        let mut tasks: Vec<Task> = Vec::new();
        for (kind, toml) in FILES {
            let file: TaskFile = toml::from_str(toml).with_context(|| format!("tasks/{kind}.toml"))?;
            for TaskData { name, world, turn, changes } in file.task {
                ensure!(!tasks.iter().any(|task| task.name == name), "there are two tasks `{name}`");
                let (world, world_toml) = worlds.get(world.as_str()).with_context(|| format!("no world `{world}`"))?;
                let mut digest = Sha256::new();
                digest.update(world_toml);
                digest.update(format!("{name} {turn:?} {changes:?}"));
                let digest = u64::from_be_bytes(digest.finalize()[..8].try_into().expect("there are 32 bytes"));
                let digest = format!("{digest:016x}");
                tasks.push(Task {
                    name,
                    kind: kind.to_owned(),
                    world: Arc::clone(world),
                    turns: turn,
                    changes,
                    digest,
                });
            }
        }
        Ok(tasks)
    }

    /// What is wrong with the world, in the end.
    pub(crate) fn world_mistakes(&self, world: &World) -> Vec<String> {
        world_mistakes(&self.world.tables, &self.changes, &world.tables)
    }

    /// What is wrong with the answers to the questions so far.
    pub(crate) fn answer_mistakes(&self, answers: &[String]) -> Vec<String> {
        self.turns.iter().zip(answers).flat_map(|(turn, answer)| turn.answer.mistakes(answer)).collect()
    }
}
