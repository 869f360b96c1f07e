//! The tools of one program, with everything that is derived from them once.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::answer::{self, Decoded};
use crate::arguments::{self, InvalidArguments, PlacedArguments};
use crate::closest;
use crate::effect::{Effect, EffectRules};
use crate::function::{Function, functions_of, qualified_names};
use crate::mentions::Mentions;
use crate::repair::Fault;
use crate::schema::{CompiledSchema, Schema};
use crate::tool::Tool;
use crate::typescript::Declarations;
use crate::work::{OutOfBudget, WorkBudget};

/// Position of a tool in its catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolIndex(
    /// Counted from zero, in the order of the tool list.
    pub u32,
);

/// The tools of one program. It never changes, so share it in an `Arc`.
///
/// ```
/// use dacapo_catalog::{Catalog, read_tools};
/// use serde_json::json;
/// let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
/// let catalog = Catalog::new(read_tools(&json!([{"name": "get-weather", "input_schema": schema}])).unwrap());
/// let tool = catalog.find("get-weather").unwrap();
/// assert_eq!(catalog.functions()[0].expression(), "get_weather");
/// assert!(catalog.check(tool, &json!({"city": 5})).is_err());
/// ```
///
/// Methods that take a [`ToolIndex`] panic if it is of another catalog.
#[derive(Debug)]
pub struct Catalog {
    tools: Arc<Vec<Tool>>,
    functions: Arc<Vec<Function>>,
    qualified_names: Vec<String>,
    /// Sorted by qualified name, for binary search.
    by_qualified_name: Vec<ToolIndex>,
    input_schemas: Vec<Schema>,
    output_schemas: Vec<Schema>,
    /// Made when it is first needed.
    mentions: OnceLock<Mentions>,
    effects: Arc<EffectRules>,
}

/// A schema that could not be used, or not all of it, and what that means for its tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The tool whose schema it is.
    pub tool: ToolIndex,
    /// What is wrong with the schema, and what happens without it.
    pub message: String,
}

impl Catalog {
    /// Names the tools as functions. Schemas are compiled when they are first needed.
    pub fn new(tools: Vec<Tool>) -> Catalog {
        Catalog::with_effects(tools, EffectRules::default())
    }

    /// Like [`new`](Self::new), where an operator has said what calls of some tools may do.
    pub fn with_effects(mut tools: Vec<Tool>, effects: impl Into<Arc<EffectRules>>) -> Catalog {
        let effects = effects.into();
        let qualified_names = qualified_names(&tools);
        for (tool, name) in tools.iter_mut().zip(&qualified_names) {
            tool.effect = effects.of(name).or(tool.effect);
        }
        let mut by_qualified_name: Vec<ToolIndex> = (0..tools.len() as u32).map(ToolIndex).collect();
        by_qualified_name.sort_by_key(|tool| &qualified_names[tool.0 as usize]);
        Catalog {
            functions: Arc::new(functions_of(&tools)),
            by_qualified_name,
            qualified_names,
            input_schemas: tools.iter().map(|_| Schema::default()).collect(),
            output_schemas: tools.iter().map(|_| Schema::default()).collect(),
            tools: Arc::new(tools),
            mentions: OnceLock::new(),
            effects,
        }
    }

    /// The tools, in the order in which they were given.
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// What an operator has said of tools.
    pub fn effects(&self) -> &Arc<EffectRules> {
        &self.effects
    }

    /// One function per tool, in the order of the tools.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Finds a tool by its exact name, or `server.name`.
    pub fn find(&self, exact_name: &str) -> Option<ToolIndex> {
        let found = self.by_qualified_name.binary_search_by_key(&exact_name, |tool| self.qualified_name(*tool));
        found.ok().map(|position| self.by_qualified_name[position])
    }

    /// Finds a tool by any name that a program may use: the exact one, the function's, or another of the same function.
    pub fn find_written(&self, name: &str) -> Option<ToolIndex> {
        let function = || self.functions.iter().find(|function| function.answers_to(name));
        self.find(name).or_else(|| function().map(|function| function.tool))
    }

    /// Qualified names of the tools that a program mentions, by any name of their functions, in the order of the tools.
    pub fn mentioned_in(&self, code: &str) -> impl Iterator<Item = &str> {
        let mentions = self.mentions.get_or_init(|| Mentions::new(&self.functions));
        mentions.in_code(code, &self.functions).into_iter().map(|tool| self.qualified_name(tool))
    }

    /// What calls of a tool of this qualified name may do. Of a tool that is gone only the name is known.
    pub fn effect_of(&self, qualified_name: &str) -> Effect {
        match self.find(qualified_name) {
            Some(tool) => self.tools[tool.0 as usize].effect(),
            None => self.effects.of(qualified_name).unwrap_or_else(|| Effect::of_name(qualified_name)),
        }
    }

    /// The name by which journals and calls know the tool: `name`, or `server.name`.
    pub fn qualified_name(&self, tool: ToolIndex) -> &str {
        &self.qualified_names[tool.0 as usize]
    }

    /// Validates the arguments of a call against the tool's input schema.
    pub fn check(&self, tool: ToolIndex, args: &Value) -> Result<(), InvalidArguments> {
        let verdict = self.check_within(tool, args, &mut WorkBudget::UNLIMITED.clone());
        verdict.expect("the budget has no end")
    }

    /// Like [`check`](Self::check), for a caller who pays for the work.
    pub fn check_within(
        &self,
        tool: ToolIndex,
        args: &Value,
        budget: &mut WorkBudget,
    ) -> Result<Result<(), InvalidArguments>, OutOfBudget> {
        let index = tool.0 as usize;
        let function = || self.functions[index].expression();
        arguments::check(&self.input_schemas[index], &self.tools[index].input_schema, args, function, budget)
    }

    /// The object to call a tool with whose arguments a program wrote one by one. Each value must fit its property.
    pub fn place_within(
        &self,
        tool: ToolIndex,
        values: &[Value],
        budget: &mut WorkBudget,
    ) -> Result<Result<PlacedArguments, InvalidArguments>, OutOfBudget> {
        let index = tool.0 as usize;
        let function = || self.functions[index].expression();
        arguments::place(&self.input_schemas[index], &self.tools[index].input_schema, values, function, budget)
    }

    /// Decides whether an answer that came as text is JSON, by the tool's output schema if there is one.
    ///
    /// ```
    /// use dacapo_catalog::{Catalog, Decoded, ToolIndex, read_tools};
    /// use serde_json::json;
    /// let tools = json!([{"name": "count"}, {"name": "zip_code", "outputSchema": {"type": "string"}}]);
    /// let catalog = Catalog::new(read_tools(&tools).unwrap());
    /// assert_eq!(catalog.decode(ToolIndex(0), "10115"), Decoded::Json("10115"));
    /// assert_eq!(catalog.decode(ToolIndex(1), "10115"), Decoded::Text);
    /// ```
    pub fn decode<'a>(&self, tool: ToolIndex, text: &'a str) -> Decoded<'a> {
        self.decode_within(tool, text, &mut WorkBudget::UNLIMITED.clone()).expect("the budget has no end")
    }

    /// Like [`decode`](Self::decode), for a caller who pays for the work.
    pub fn decode_within<'a>(
        &self,
        tool: ToolIndex,
        text: &'a str,
        budget: &mut WorkBudget,
    ) -> Result<Decoded<'a>, OutOfBudget> {
        let index = tool.0 as usize;
        let Some(json) = &self.tools[index].output_schema else {
            return Ok(answer::decode(text));
        };
        match self.output_schemas[index].compiled(json) {
            Ok(schema) => answer::decode_as(schema, text, budget),
            Err(_) => Ok(answer::decode(text)),
        }
    }

    /// Expressions that call the tools most like `name`, best first.
    ///
    /// ```
    /// use dacapo_catalog::{Catalog, read_tools};
    /// let tools = serde_json::json!([{"name": "get_weather"}, {"name": "send_mail"}]);
    /// let catalog = Catalog::new(read_tools(&tools).unwrap());
    /// assert_eq!(catalog.closest("getWether", 1), ["get_weather"]);
    /// ```
    pub fn closest(&self, name: &str, limit: usize) -> Vec<String> {
        closest::closest(&self.functions, name, limit)
    }

    /// The tools as TypeScript, for a model to read.
    pub fn declarations(&self) -> Declarations {
        Declarations::new(Arc::clone(&self.tools), Arc::clone(&self.functions))
    }

    /// Compiles every schema and names what cannot be used.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for (index, tool) in self.tools.iter().enumerate() {
            let name = &self.qualified_names[index];
            let mut warn = |side: &str, compiled: Result<&CompiledSchema, &str>, without: &str| match compiled {
                Ok(compiled) => {
                    for Fault { at, reason } in compiled.losses() {
                        let message = format!("the {side} schema of `{name}` is used without {at}: {reason}");
                        warnings.push(Warning { tool: ToolIndex(index as u32), message });
                    }
                }
                Err(reason) => {
                    let message = format!("the {side} schema of `{name}` cannot be used, so {without}: {reason}");
                    warnings.push(Warning { tool: ToolIndex(index as u32), message });
                }
            };
            warn("input", self.input_schemas[index].compiled(&tool.input_schema), "any object is accepted");
            if let Some(json) = &tool.output_schema {
                warn("output", self.output_schemas[index].compiled(json), "answers are read without it");
            }
        }
        warnings
    }
}
