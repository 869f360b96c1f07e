//! `dacapo types`: the declarations that a model would see.

use std::io::{self, Write};
use std::process::ExitCode;

use dacapo_replay::{Tool, Toolbox};
use serde_json::json;

use crate::tools::ToolSources;

const EXAMPLE: &str = r#"Example:
  echo '[{"name": "web_search", "description": "Searches the web.", "input_schema": {"type": "object",
         "properties": {"query": {"type": "string"}}, "required": ["query"]}}]' > tools.json
  dacapo types --tools tools.json

With --json it also counts tokens (o200k): what the declarations cost a model, and what the tools' own JSON would."#;

/// Print the TypeScript declarations of tools, as a model would see them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct TypesOptions {
    #[command(flatten)]
    sources: ToolSources,

    /// Print one line of JSON with the declarations, token counts and warnings
    #[arg(long)]
    json: bool,
}

pub(crate) fn types(options: &TypesOptions) -> anyhow::Result<ExitCode> {
    let tools = options.sources.read()?;
    let as_json: Vec<String> = tools.iter().map(tool_json).collect();
    let toolbox = Toolbox::new(tools)?;
    let declarations = toolbox.declarations();
    let warnings: Vec<&str> = declarations.warnings().iter().map(|warning| warning.message.as_str()).collect();
    if options.json {
        let tokenizer = tiktoken_rs::o200k_base_singleton();
        let count = |text: &str| tokenizer.encode_ordinary(text).len();
        let report = json!({
            "tools": as_json.len(),
            "declarations": declarations.text(),
            "tokens": { "declarations": count(declarations.text()), "json": count(&format!("[{}]", as_json.join(","))) },
            "warnings": warnings,
        });
        writeln!(io::stdout(), "{report}")?;
    } else {
        for warning in warnings {
            writeln!(io::stderr(), "warning: {warning}")?;
        }
        write!(io::stdout(), "{}", declarations.text())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A tool as a request would carry it, without spaces.
pub(crate) fn tool_json(tool: &Tool) -> String {
    let mut json = json!({ "name": tool.name, "description": tool.description, "input_schema": tool.input_schema });
    if let Some(schema) = &tool.output_schema {
        json["output_schema"] = json!(schema);
    }
    json.to_string()
}
