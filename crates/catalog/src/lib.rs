//! The tools that a program may call: their names as functions, their arguments, their answers, and how to find them.
//!
//! [`read_tools`] reads tool lists in every provider's format. A [`Catalog`] is made from them once and then only read:
//!
//! - [`Catalog::check`] validates the arguments of a call against the tool's input schema.
//! - [`Catalog::decode`] turns an answer that came as text into a value.
//! - [`Catalog::declarations`] writes the tools as TypeScript, which is what a model reads of them.
//! - A [`SearchIndex`] finds tools by what they do, and explains its ranking.
//!
//! The crate calls no tool, fetches nothing and keeps no state between two calls. The same tools give the same names,
//! verdicts and messages, in whatever order they arrived. What cannot be used in a schema costs only itself: a keyword is
//! left out, a schema that is unusable as a whole accepts any object, and [`Catalog::warnings`] names both.
//!
//! Start reading at [`Catalog`].

#![warn(missing_docs)]

mod answer;
mod arguments;
mod catalog;
mod closest;
mod effect;
mod function;
mod identifier;
mod mentions;
mod observed_shape;
mod pattern;
mod references;
mod repair;
mod schema;
mod search;
mod search_answer;
mod text;
mod tokens;
mod tool;
mod tool_schema;
mod typescript;
mod violation;
mod work;

pub use answer::Decoded;
pub use arguments::{InvalidArguments, PlacedArguments, RestOfArguments};
pub use catalog::{Catalog, ToolIndex, Warning};
pub use effect::{Effect, EffectRules};
pub use function::Function;
pub use observed_shape::ObservedShape;
pub use pattern::matches_pattern;
pub use search::{
    Explanation, Hit, Likeness, Match, Producer, SearchIndex, SearchPart, SearchResults, SearchText, SearchTextError,
    ToolField,
};
pub use search_answer::{ANSWER_TOKENS_DEFAULT, SearchAnswer};
pub use text::shorten;
pub use tokens::BYTES_PER_TOKEN;
pub use tool::{Tool, ToolsError, ToolsProblem, json_type_name, read_tool_list, read_tools};
pub use tool_schema::ToolSchema;
pub use typescript::{Declarations, DeclaredTools, TypeText, type_of};
pub use violation::Violation;
pub use work::{OutOfBudget, WorkBudget};
