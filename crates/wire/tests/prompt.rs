//! What models are told, word for word. Whoever changes a word raises the version.

use std::collections::BTreeSet;
use std::sync::Arc;

use dacapo_replay::Toolbox;
use dacapo_wire::{ModelTools, PROMPT_VERSION, prompt_variants};

const TOOLS: &str = r#"[
  {"name": "web_search", "description": "Searches the web.", "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}},
  {"name": "create_issue", "server": "github", "description": "Opens an issue.", "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}},
  {"name": "close_issue", "server": "github"}
]"#;

fn told(declarations_tokens_max: usize) -> String {
    let toolbox = Arc::new(Toolbox::read(TOOLS).expect("tools"));
    let direct: BTreeSet<String> = ["search".to_owned()].into();
    let model_tools = ModelTools::new(toolbox, direct, &BTreeSet::new(), declarations_tokens_max);
    let tools = model_tools.tools().into_iter();
    let printed = tools
        .map(|(name, description, parameters)| [format!("── {name} {parameters}\n"), description, "\n".to_owned()]);
    printed.flatten().collect()
}

#[test]
fn the_prompt_is_what_it_is() {
    let variants = prompt_variants().into_iter().map(|(when, text)| format!("── {when}\n{text}\n"));
    insta::assert_snapshot!("prompt", format!("prompt version {PROMPT_VERSION}\n\n{}", variants.collect::<String>()));
    insta::assert_snapshot!("declared", told(1_000));
    insta::assert_snapshot!("searched", told(10));
}

/// The functions that fit are declared, in the client's order; the others are named, with a few words about each.
#[test]
fn of_too_many_functions_as_many_are_declared_as_fit() {
    let tool = |at: usize| {
        let description = format!("Does the thing number {at}. {}", "It has more to say about it. ".repeat(20));
        serde_json::json!({"name": format!("thing_{at}"), "description": description, "parameters": {"type": "object"}})
    };
    let tools: Vec<_> = (0..100).map(tool).collect();
    let toolbox = Arc::new(Toolbox::read(&serde_json::json!(tools).to_string()).expect("tools"));
    let tokens_max = 8_000;
    let model_tools = ModelTools::new(toolbox, BTreeSet::new(), &BTreeSet::new(), tokens_max);
    let tools = model_tools.tools();
    let (name, description, _) = &tools[0];

    assert_eq!((*name, tools[1].0), ("execute", "search"));
    let declared = description.matches("declare function").count();
    assert!((20..60).contains(&declared), "{declared}");
    assert!(description.contains(&format!("declare function thing_{}(", declared - 1)));
    assert!(
        description.contains(&format!(
            "{} functions:\n- thing_{declared}: Does the thing number {declared}\n",
            100 - declared
        ))
    );
    assert!(description.len() < tokens_max * 4 + 2_000, "{}", description.len());
    assert_eq!(model_tools.tools()[0].1, *description, "word for word, request after request");
}
