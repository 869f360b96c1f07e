//! Tools and schemas from real servers, kept beside the repository.

mod support;

use std::collections::BTreeMap;

use dacapo_catalog::{Catalog, Tool, ToolIndex};
use serde_json::Value;
use support::{data, json_lines, tool_lists};

#[test]
fn every_tool_of_the_real_servers_is_callable_and_usable() {
    let all: Vec<Tool> = tool_lists().into_iter().flat_map(|(_, _, tools)| tools).collect();
    let count = all.len();
    let catalog = Catalog::new(all);

    let mut expressions: Vec<String> = catalog.functions().iter().map(dacapo_catalog::Function::expression).collect();
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

#[test]
fn labelled_arguments_get_the_verdict_of_their_label() {
    let Some(directory) = data("schemas") else {
        return;
    };
    let mut schemas: BTreeMap<String, Value> = json_lines(&directory.join("corpus.jsonl"))
        .into_iter()
        .map(|mut line| (line["id"].as_str().unwrap().to_owned(), line["schema"].take()))
        .collect();
    let mut verdicts = 0;
    let mut disagreements = Vec::new();
    for line in json_lines(&directory.join("instances.jsonl")) {
        let id = line["id"].as_str().unwrap();
        let catalog = Catalog::new(vec![Tool {
            name: id.to_owned(),
            description: None,
            input_schema: schemas.remove(id).unwrap(),
            output_schema: None,
            server: None,
        }]);
        let valid = line["valid"].as_array().unwrap().iter().map(|args| (args, true));
        let invalid = line["invalid"].as_array().unwrap().iter().map(|case| (&case["value"], false));
        for (args, label) in valid.chain(invalid) {
            verdicts += 1;
            let verdict = catalog.check(ToolIndex(0), args);
            if verdict.is_ok() != label {
                disagreements.push(format!("{id}: {args}: {verdict:?} {:?}", catalog.warnings()));
            }
        }
    }
    assert!(verdicts > 4_000, "only {verdicts} labels were read");
    assert_eq!(disagreements, [""; 0]);
}
