//! The tools a program may call: how it may write their names, which arguments they take, and
//! how a textual answer becomes a value.
//!
//! [`read_tools`] accepts tool lists in every shape in use; a [`Catalog`] is made from them once
//! and then only read. It calls nothing, fetches nothing and keeps no state between two calls:
//! the same tools give the same names, verdicts and messages, in whatever order they arrived.
//!
//! [`Catalog::declarations`] writes the tools as TypeScript, which is what a model reads of them.
//!
//! A [`SearchIndex`] finds tools by what is asked for, and says why.
//!
//! A schema that cannot be used costs only its own tool: that tool takes any object, and
//! [`Catalog::warnings`] says so.
//!
//! Start reading at [`Catalog`].

mod answer;
mod arguments;
mod catalog;
mod closest;
mod function;
mod identifier;
mod references;
mod schema;
mod search;
mod search_answer;
mod tool;
mod typescript;
mod violation;

pub use answer::Decoded;
pub use arguments::InvalidArguments;
pub use catalog::{Catalog, ToolIndex, Warning};
pub use function::Function;
pub use search::{Explanation, Hit, Likeness, Match, SearchIndex, SearchResults, ToolField};
pub use search_answer::{ANSWER_TOKENS_DEFAULT, SearchAnswer};
pub use tool::{Tool, ToolsError, noun, read_tools};
pub use typescript::{Declarations, TypeText, type_of};
pub use violation::Violation;
