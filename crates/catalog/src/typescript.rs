//! Schemas as TypeScript: what a model reads to know how a tool is called and what it answers.
//!
//! A type never promises what its schema does not: where TypeScript cannot say a thing, the type
//! is the narrowest that still holds, and a comment says the rest.

mod comment;
mod constraints;
mod declarations;
mod definitions;
mod kinds;
mod literals;
mod meet;
mod printer;
mod reader;
mod repeats;
mod shape;
mod type_text;

pub use declarations::Declarations;
pub use type_text::{TypeText, type_of};
