//! The solutions that come with the tasks, in both modes, as a script for the scripted model.
//!
//! They show that a task can be solved with its tools, and what its calls cost; they say nothing about any model.

use anyhow::Context;
use dacapo_scripted::ScriptedModel;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::task::{Task, TaskTurn};

/// The messages of the model in classic mode.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClassicSolution {
    /// Messages of the model, each with its calls.
    #[serde(default)]
    calls: Vec<Vec<SolutionCall>>,
    says: String,
}

/// A call, or one for each of several values of an argument.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SolutionCall {
    tool: String,
    #[serde(default)]
    with: Map<String, Value>,
    #[serde(default)]
    each: Map<String, Value>,
}

/// The messages of the model in code mode: a search if there are too many tools, then programs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CodeSolution {
    search: Option<String>,
    #[serde(default)]
    programs: Vec<String>,
    /// What the last program returned, if this is not there.
    says: Option<String>,
}

/// A script of the scripted model.
#[derive(Serialize)]
struct Script<'a> {
    turn: Vec<SolutionTurn<'a>>,
}

#[derive(Serialize)]
struct SolutionTurn<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    search: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<ScriptCall<'a>>,
    when: When<'a>,
}

#[derive(Serialize)]
struct ScriptCall<'a> {
    name: &'a str,
    arguments: Map<String, Value>,
}

#[derive(Serialize)]
struct When<'a> {
    user: &'a str,
    step: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_tool: Option<&'static str>,
}

const EXECUTE: &str = "execute";

/// A model that solves the tasks as their files say.
pub(crate) fn scripted_model(tasks: &[Task]) -> anyhow::Result<ScriptedModel> {
    let turn = tasks.iter().flat_map(|task| &task.turns).flat_map(TaskTurn::script).collect();
    let script = toml::to_string(&Script { turn }).context("the solutions cannot be written as a script")?;
    ScriptedModel::parse(&script).context("the solutions are no script")
}

impl TaskTurn {
    fn script(&self) -> Vec<SolutionTurn<'_>> {
        let TaskTurn { classic, code, .. } = self;
        let user = self.question.as_str();
        let mut turns = Vec::new();
        let classic_steps = classic.calls.iter().map(|calls| SolutionTurn::calls(user, calls));
        for (step, turn) in classic_steps.chain([SolutionTurn::text(user, &classic.says)]).enumerate() {
            turns.push(SolutionTurn { when: When { step, no_tool: Some(EXECUTE), ..turn.when }, ..turn });
        }
        let search =
            code.search.as_deref().map(|query| SolutionTurn { search: Some(query), ..SolutionTurn::new(user) });
        let programs = code.programs.iter().map(|code| SolutionTurn { program: Some(code), ..SolutionTurn::new(user) });
        let says = code.says.as_deref().unwrap_or("{{result/data}}");
        let code_steps = search.into_iter().chain(programs).chain([SolutionTurn::text(user, says)]);
        for (step, turn) in code_steps.enumerate() {
            turns.push(SolutionTurn { when: When { step, tool: Some(EXECUTE), ..turn.when }, ..turn });
        }
        turns
    }
}

impl<'a> SolutionTurn<'a> {
    fn new(user: &'a str) -> SolutionTurn<'a> {
        let when = When { user, step: 0, tool: None, no_tool: None };
        SolutionTurn { text: None, program: None, search: None, calls: Vec::new(), when }
    }

    fn text(user: &'a str, text: &'a str) -> SolutionTurn<'a> {
        SolutionTurn { text: Some(text), ..SolutionTurn::new(user) }
    }

    fn calls(user: &'a str, calls: &'a [SolutionCall]) -> SolutionTurn<'a> {
        SolutionTurn { calls: calls.iter().flat_map(SolutionCall::expand).collect(), ..SolutionTurn::new(user) }
    }
}

impl SolutionCall {
    fn expand(&self) -> Vec<ScriptCall<'_>> {
        let name = self.tool.as_str();
        let mut calls = vec![ScriptCall { name, arguments: self.with.clone() }];
        for (argument, values) in &self.each {
            let with = |value: &Value| {
                let mut arguments = self.with.clone();
                arguments.insert(argument.clone(), value.clone());
                ScriptCall { name, arguments }
            };
            calls = values.as_array().into_iter().flatten().map(with).collect();
        }
        calls
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::SolutionCall;
    use crate::eval::table::Row;
    use crate::eval::task::Task;
    use crate::eval::world::World;

    type Rows = Vec<Row>;

    fn solve(task: &Task, world: &mut World) {
        for turn in &task.turns {
            for call in turn.classic.calls.iter().flatten().flat_map(SolutionCall::expand) {
                world.call(call.name, &Value::from(call.arguments));
            }
        }
    }

    fn solved(task: &Task) -> World {
        let mut world = World::new(&task.world);
        solve(task, &mut world);
        world
    }

    fn tasks() -> Vec<Task> {
        Task::all().expect("the tasks can be read")
    }

    #[test]
    fn the_calls_of_every_solution_leave_the_world_as_its_task_wants_it() {
        for task in tasks() {
            assert_eq!(task.world_mistakes(&solved(&task)), Vec::<String>::new(), "{}", task.name);
        }
    }

    #[test]
    fn every_checker_notices_a_row_too_much_too_few_or_changed() {
        let pop = |rows: &mut Rows| drop(rows.pop());
        let push = |rows: &mut Rows| rows.push(Row::new());
        let blank = |rows: &mut Rows| rows[0].values_mut().for_each(|cell| *cell = Value::Null);
        for task in tasks() {
            let mut world = solved(&task);
            for (table, right) in world.tables.clone() {
                let changes: [&dyn Fn(&mut Rows); 3] = [&push, &pop, &blank];
                // Nothing can be taken from an empty table.
                for change in changes.into_iter().take(if right.is_empty() { 1 } else { 3 }) {
                    change(world.tables.get_mut(&table).expect("it is there"));
                    assert_ne!(task.world_mistakes(&world), Vec::<String>::new(), "{}: {table}", task.name);
                    world.tables.insert(table.clone(), right.clone());
                }
            }
        }
    }

    #[test]
    fn every_checker_notices_what_was_done_twice_or_not_at_all() {
        let mut writing = 0;
        for task in tasks() {
            let untouched = World::new(&task.world);
            if task.world_mistakes(&untouched).is_empty() {
                continue;
            }
            writing += 1;
            let mut twice = solved(&task);
            let once = twice.tables.clone();
            solve(&task, &mut twice);
            // What is set twice is as if it was set once.
            assert_eq!(task.world_mistakes(&twice).is_empty(), twice.tables == once, "{}", task.name);
        }
        assert!(writing >= 12, "{writing} tasks change their world");
    }

    #[test]
    fn every_answer_is_checked() {
        for task in tasks() {
            for turn in &task.turns {
                for wrong in ["I do not know.", "The tools did not help me; 0 or -1, maybe."] {
                    assert_ne!(turn.answer.mistakes(wrong), Vec::<String>::new(), "{}: {}", task.name, turn.question);
                }
            }
        }
    }
}
