//! MCP both ways: programs over the tools of any number of MCP servers, offered as one MCP server.

mod ask;

pub use ask::{Ask, Attachment, Owners, Refusal, Told};
