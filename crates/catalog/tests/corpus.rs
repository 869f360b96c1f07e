//! Tools and schemas from real servers, kept beside the repository.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dacapo_catalog::{Catalog, Tool, ToolIndex, read_tools};
use serde_json::Value;

/// Where the data is, or nothing where it was not checked out.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn data(path: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(path);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {} is not here", path.display());
    None
}

fn json_lines(path: &Path) -> impl Iterator<Item = Value> {
    let text = std::fs::read_to_string(path).expect("the data is readable");
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect::<Vec<_>>().into_iter()
}

#[test]
fn every_tool_of_the_real_servers_is_callable_and_usable() {
    let Some(directory) = data("tool-lists") else {
        return;
    };
    let mut all = Vec::new();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let json = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let tools = read_tools(&json).unwrap();
        let server = path.file_stem().unwrap().to_str().unwrap();
        all.extend(tools.into_iter().map(|tool| Tool { server: Some(server.to_owned()), ..tool }));
    }
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
