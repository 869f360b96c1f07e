//! Tools and schemas as servers send them: the corpus of this repository, and the data beside it.

mod support;

use std::collections::BTreeMap;

use dacapo_catalog::{Catalog, Tool, ToolIndex};
use serde_json::Value;
use support::{DataSource, json_lines, text};

#[test]
fn every_tool_of_the_real_servers_is_callable_and_usable() {
    for source in DataSource::present() {
        let all: Vec<Tool> = source.tool_lists().into_iter().flat_map(|list| list.tools).collect();
        let count = all.len();
        assert!(count > 100, "{source:?} has only {count} tools");
        let catalog = Catalog::new(all);

        let mut expressions: Vec<String> =
            catalog.functions().iter().map(dacapo_catalog::Function::expression).collect();
        for expression in &expressions {
            let mut names = expression.split('.');
            assert!(
                names.all(|name| !name.is_empty() && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())),
                "{expression}"
            );
        }
        expressions.sort();
        expressions.dedup();
        assert_eq!(expressions.len(), count);
        assert_eq!(catalog.warnings(), []);
    }
}

#[test]
fn the_tools_of_every_provider_are_read_as_they_were_written() {
    let written: BTreeMap<String, Value> = json_lines(&DataSource::Corpus.path("search/catalog.jsonl"))
        .into_iter()
        .map(|tool| (text(&tool["name"]).to_owned(), tool))
        .collect();
    let lists = DataSource::Corpus.tool_lists();
    let servers: Vec<&str> = lists.iter().map(|list| list.server.as_str()).collect();
    assert_eq!(servers, ["anthropic", "mcp", "openai-chat", "openai-responses"]);

    let mut read = 0;
    for list in lists {
        for tool in list.tools {
            read += 1;
            let written = &written[&tool.name];
            let expected = Tool {
                name: tool.name.clone(),
                description: Some(text(&written["description"]).to_owned()),
                input_schema: written["input_schema"].clone().into(),
                output_schema: None,
                observed_answer: None,
                server: Some(list.server.clone()),
                // Only MCP's shape has annotations.
                effect: tool.effect,
            };
            assert_eq!(tool, expected);
        }
    }
    assert_eq!(read, written.len());
}

#[test]
fn labelled_arguments_get_the_verdict_of_their_label() {
    for (source, verdicts_min) in DataSource::present().into_iter().zip([1_000, 4_000]) {
        let mut verdicts = 0;
        let mut disagreements = Vec::new();
        for labelled in source.labelled_schemas() {
            let catalog = Catalog::new(vec![Tool {
                name: labelled.id.clone(),
                description: None,
                input_schema: labelled.schema.into(),
                output_schema: None,
                observed_answer: None,
                server: None,
                effect: None,
            }]);
            let valid = labelled.valid.iter().map(|args| (args, true));
            let invalid = labelled.invalid.iter().chain(&labelled.invalid_beyond_types).map(|args| (args, false));
            for (args, label) in valid.chain(invalid) {
                verdicts += 1;
                let verdict = catalog.check(ToolIndex(0), args);
                if verdict.is_ok() != label {
                    disagreements.push(format!("{}: {args}: {verdict:?} {:?}", labelled.id, catalog.warnings()));
                }
            }
        }
        assert!(verdicts > verdicts_min, "{source:?}: only {verdicts} labels were read");
        assert_eq!(disagreements, [""; 0]);
    }
}
