//! What models are told, word for word. Whoever changes a word raises the version.

use std::collections::BTreeSet;
use std::sync::Arc;

use dacapo_replay::Toolbox;
use dacapo_wire::{ModelTools, print_prompt};

const TOOLS: &str = r#"[
  {"name": "web_search", "description": "Searches the web.", "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}},
  {"name": "create_issue", "server": "github", "description": "Opens an issue.", "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}},
  {"name": "close_issue", "server": "github"}
]"#;

fn told(declarations_tokens_max: usize) -> String {
    let toolbox = Arc::new(Toolbox::read(TOOLS).expect("tools"));
    let direct: BTreeSet<String> = ["search".to_owned()].into();
    let model_tools = ModelTools::new(toolbox, direct, declarations_tokens_max);
    let tools = model_tools.tools().into_iter();
    let printed = tools
        .map(|(name, description, parameters)| [format!("── {name} {parameters}\n"), description, "\n".to_owned()]);
    printed.flatten().collect()
}

#[test]
fn the_prompt_is_what_it_is() {
    insta::assert_snapshot!("prompt", print_prompt());
    insta::assert_snapshot!("declared", told(1_000));
    insta::assert_snapshot!("searched", told(10));
}
