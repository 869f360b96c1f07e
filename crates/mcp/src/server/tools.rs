//! The two tools that a client sees, and the texts that explain them to a model.

use std::sync::{Arc, LazyLock};

use dacapo_replay::SearchText;
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

pub(super) const SEARCH: &str = "search";
pub(super) const EXECUTE: &str = "execute";

pub(super) const LIMIT_DEFAULT: usize = 10;
/// For each of several queries.
pub(super) const LIMIT_EACH_DEFAULT: usize = 5;
pub(super) const LIMIT_MAX: usize = 50;

const SEARCH_DESCRIPTION: &str = "\
Finds functions by what they do and answers with their TypeScript declarations, ready to use in `execute`. Ask for everything that the task needs at once, with one query for each step of it, in plain words: [\"list open issues\", \"read a file\", \"send a message\"]. An empty query lists what there is.";

const EXECUTE_DESCRIPTION: &str = "\
Runs a TypeScript program that calls functions, and answers with what it returns. Find the functions with `search` first.

- Write the body of an async function: `await` the calls and `return` what you need to see. Only the returned value and console.log lines come back, so filter, join, sort, count and compute in the program, and return little.
- Do the whole task in one program where you can, with loops and conditions. Make independent calls together: `await Promise.all([...])`.
- A function is called as declared, `server.tool({...})`, with one object. A failed call rejects with a ToolError: catch it if you can do without. Where the declaration says `unknown`, look at one answer before relying on its shape.
- `store(name, value)` keeps a value for your later programs, `load(name)` gives it back.
- Images and files are objects with a `handle`: return the object to show it.
- There is no network, file system or import; only the functions and standard JavaScript. `await search(\"...\")` and `await describe(\"server.tool\")` work inside too.
- If a program fails, the error shows where, and which calls were completed. They have taken effect: your next program gets their answers without executing them again; f({...}, {fresh: true}) does.";

const INSTRUCTIONS: &str = "\
The tools of many MCP servers, as functions for programs. Work in two steps: `search` once for all that the task needs, then `execute` one TypeScript program that does the whole task and returns only what matters. Do not call `execute` once per function: a program with loops and Promise.all is faster and keeps data out of the conversation. Calls that change or delete things may need the user's approval; a declined call rejects with a message that says why.";

/// For the names of the servers in the instructions, which must not grow with their number.
const NAMES_CHARS_MAX: usize = 400;

static TOOLS: LazyLock<[Tool; 2]> = LazyLock::new(|| [search(), execute()]);

/// Both tools.
pub(super) fn tools() -> Vec<Tool> {
    TOOLS.to_vec()
}

/// How to work with the tools, and which servers are behind them.
pub(super) fn instructions(servers: &[String]) -> String {
    if servers.is_empty() {
        return INSTRUCTIONS.to_owned();
    }
    let mut chars = 0;
    let fits = |server: &&String| {
        chars += server.chars().count() + ", ".len();
        chars <= NAMES_CHARS_MAX
    };
    let listed: Vec<&str> = servers.iter().take_while(fits).map(String::as_str).collect();
    let names = listed.join(", ");
    match servers.len() - listed.len() {
        0 => format!("{INSTRUCTIONS}\n\nServers: {names}."),
        more => format!("{INSTRUCTIONS}\n\nServers: {names} and {more} more."),
    }
}

/// All that a client puts into a model's context because of us, as JSON.
pub fn context_cost_text(servers: &[String]) -> String {
    json!({ "instructions": instructions(servers), "tools": tools() }).to_string()
}

fn search() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "queries": { "type": "array", "items": { "type": "string" }, "maxItems": SearchText::QUERIES_MAX, "description": "One for each step of the task: what the function should do." },
            "query": { "type": "string", "description": "Instead of `queries`, if there is one step." },
            "limit": { "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "description": "Functions to find at most for each query; 5 if left out, 10 for a single query." },
        },
        "additionalProperties": false,
    });
    let output = json!({
        "type": "object",
        "properties": {
            "declarations": { "type": "string" },
            "functions": { "type": "array", "items": { "type": "string" } },
            "total": { "type": "integer", "description": "Functions that match, shown or not." },
            "unavailable": { "type": "array", "items": { "type": "string" }, "description": "ToolServers whose functions are missing, and why." },
        },
        "required": ["declarations", "functions", "total"],
    });
    let annotations = ToolAnnotations::new().read_only(true).idempotent(true).open_world(false);
    tool(SEARCH, "Search functions", SEARCH_DESCRIPTION, input, output, annotations)
}

fn execute() -> Tool {
    let input = json!({
        "type": "object",
        "properties": { "code": { "type": "string", "description": "The program: the body of an async TypeScript function." } },
        "required": ["code"],
        "additionalProperties": false,
    });
    // An empty object accepts any value; `true` would mean the same, but old peers take only objects for schemas.
    let output = json!({
        "type": "object",
        "properties": {
            "status": { "type": "string", "enum": ["success", "error"] },
            "data": { "description": "What the program returned." },
            "error": { "type": "object", "description": "Why it failed: name, message, line, frame, completed and unfinished calls." },
            "logs": { "type": "array", "items": { "type": "object" } },
            "shapes": { "type": "array", "items": { "type": "string" }, "description": "What answers looked like, once for each function." },
            "calls": { "type": "object", "additionalProperties": { "type": "integer" }, "description": "How often each function was called." },
            "refused": { "type": "array", "items": { "type": "object" }, "description": "Calls that were not made, as not allowed." },
            "reused": { "type": "array", "items": { "type": "object" } },
            "unfinished": { "type": "array", "items": { "type": "object" }, "description": "Calls that were sent and not waited for." },
            "missing": { "type": "string", "description": "What was cut or left out." },
            "unavailable": { "type": "array", "items": { "type": "string" } },
        },
        "required": ["status", "calls"],
    });
    let annotations = ToolAnnotations::new().read_only(false).destructive(true).idempotent(false).open_world(true);
    tool(EXECUTE, "Run a program", EXECUTE_DESCRIPTION, input, output, annotations)
}

fn tool(
    name: &'static str,
    title: &str,
    description: &'static str,
    input: Value,
    output: Value,
    annotations: ToolAnnotations,
) -> Tool {
    Tool::new(name, description, Arc::new(object(input)))
        .with_title(title)
        .with_raw_output_schema(Arc::new(object(output)))
        .with_annotations(annotations)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
