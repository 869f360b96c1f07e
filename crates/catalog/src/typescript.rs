//! Schemas as TypeScript: what a model reads to know how a tool is called and what it answers.
//!
//! A type never promises more than its schema. Where TypeScript cannot express a constraint, the type is the narrowest one
//! that accepts all valid values, and a comment states the constraint.

mod comment;
mod constraints;
mod declarations;
mod definitions;
mod fingerprint;
mod keywords;
mod kinds;
mod literals;
mod meet;
mod printer;
mod reader;
mod repeats;
mod shape;
mod type_text;

pub use declarations::{Declarations, DeclaredTools};
pub use type_text::{TypeText, type_of};
