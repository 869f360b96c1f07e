//! Tool lists as clients and servers send them.

use dacapo_catalog::{Tool, ToolSchema, read_tool_list, read_tools};
use serde_json::{Value, json};

fn tool(name: &str) -> Tool {
    Tool {
        name: name.to_owned(),
        description: Some("Finds pages".to_owned()),
        input_schema: json!({"type": "object"}).into(),
        output_schema: None,
        observed_answer: None,
        server: None,
        effect: None,
    }
}

fn error(json: &Value) -> String {
    read_tools(json).expect_err("the list has a mistake").to_string()
}

#[test]
fn every_shape_in_use_means_the_same_tool() {
    let schema = json!({"type": "object"});
    let shapes = json!([
        {"type": "function", "function": {"name": "chat", "description": "Finds pages", "parameters": schema, "strict": true}},
        {"type": "function", "name": "responses", "description": "Finds pages", "parameters": schema, "output_schema": {"type": "array"}},
        {"name": "anthropic", "description": "Finds pages", "input_schema": schema, "cache_control": {"type": "ephemeral"}},
        {"name": "mcp", "title": "Search", "description": "Finds pages", "inputSchema": schema, "outputSchema": {"type": "array"}, "annotations": {}},
        {"name": "ours", "description": "Finds pages", "inputSchema": schema, "server": "web"},
    ]);
    let output_schema = Some(json!({"type": "array"}).into());
    let expected = vec![
        tool("chat"),
        Tool { output_schema: output_schema.clone(), ..tool("responses") },
        tool("anthropic"),
        Tool { output_schema, ..tool("mcp") },
        Tool { server: Some("web".to_owned()), ..tool("ours") },
    ];

    assert_eq!(read_tools(&shapes).unwrap(), expected);
    assert_eq!(read_tools(&json!({"tools": shapes, "nextCursor": "x"})).unwrap(), expected);
    let response = json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": shapes}});
    assert_eq!(read_tools(&response).unwrap(), expected);
}

#[test]
fn a_tool_without_a_schema_takes_any_object() {
    let tools =
        read_tools(&json!([{"name": "a"}, {"name": "b", "parameters": null}, {"name": "c", "inputSchema": true}]));

    let schemas: Vec<ToolSchema> = tools.unwrap().into_iter().map(|tool| tool.input_schema).collect();
    assert_eq!(schemas, [json!({}), json!({}), json!(true)].map(ToolSchema::from));
}

#[test]
fn a_long_list_holds_schemas_as_text_and_they_are_the_same() {
    let deep = (0..300).fold(json!(true), |inner, _| json!({"not": inner}));
    let list = json!([
        {"name": "a", "inputSchema": {"required": ["b"], "type": "object", "minProperties": 1.50, "title": "\u{1f3bc} \"a\""}},
        {"name": "b", "inputSchema": {"not": deep}, "outputSchema": {"type": "array"}},
    ]);

    let held = read_tool_list(list.as_array().unwrap().clone()).unwrap();

    let tools = read_tools(&list).unwrap();
    assert_eq!(held, tools);
    for (held, tool) in held.iter().zip(&tools) {
        assert_eq!(held.input_schema.to_string(), tool.input_schema.to_string());
        assert_eq!(*held.input_schema, *tool.input_schema);
    }
}

#[test]
fn a_mistake_in_a_tool_list_is_reported_with_its_place() {
    let good = json!({"name": "good"});
    insta::assert_snapshot!(error(&json!("tools")), @"expected an array of tools or an object with `tools`, found a string");
    insta::assert_snapshot!(error(&json!({"tools": {}})), @"expected an array of tools or an object with `tools`, found an object");
    insta::assert_snapshot!(error(&json!([good, "bad"])), @"tools[1]: expected an object, found a string");
    insta::assert_snapshot!(error(&json!([good, {"function": {"name": 3}}])), @"tools[1].function.name: expected a string, found a number");
    insta::assert_snapshot!(error(&json!([{"type": "function", "function": "f"}])), @"tools[0].function: expected an object, found a string");
    insta::assert_snapshot!(error(&json!([{"description": "no name"}])), @"tools[0].name: expected a string, found nothing");
    insta::assert_snapshot!(error(&json!([{"name": ""}])), @"tools[0].name: expected a name, found an empty string");
    insta::assert_snapshot!(error(&json!([{"name": "a", "inputSchema": "object"}])), @"tools[0].inputSchema: expected a JSON Schema, found a string");
    insta::assert_snapshot!(error(&json!([{"name": "a", "server": 1}])), @"tools[0].server: expected a string, found a number");
    insta::assert_snapshot!(error(&json!([good, {"name": "good", "server": "s"}, good])), @"tools[2].name: `good` is already the name of tools[0]; give each tool its own name");
}
