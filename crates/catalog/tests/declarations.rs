//! What a model reads of the tools.

mod support;

use dacapo_catalog::{Catalog, Declarations, Tool, ToolIndex, read_tools};
use serde_json::{Value, json};
use support::{DataSource, compile};

fn tokens(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton().encode_ordinary(text).len()
}

fn declared(tools: &Value) -> Declarations {
    Catalog::new(read_tools(tools).expect("the tools are well formed")).declarations()
}

/// The declaration of one tool of a server.
fn declaration_of(source: DataSource, server: &str, name: &str) -> String {
    let lists = source.tool_lists();
    let list = lists.into_iter().find(|list| list.server == server).expect("the server is there");
    let catalog = Catalog::new(list.tools);
    let tool = catalog.find(&format!("{server}.{name}")).expect("the tool is there");
    catalog.declarations().of(tool).to_owned()
}

#[test]
fn a_tool_reads_like_a_function_that_someone_wrote() {
    let declarations = declared(&json!([
        {
            "type": "function",
            "function": {
                "name": "webSearch",
                "description": "Searches the web.\n\n    Returns the best pages first.\n      - no ads\n",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "query": {"type": "string", "description": "What to look for", "minLength": 1},
                        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
                        "since": {"type": "string", "format": "date"},
                        "language": {"enum": ["en", "de"], "title": "Language"},
                    },
                    "required": ["query"],
                },
            },
        },
        {
            "name": "get-page",
            "inputSchema": {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
            "outputSchema": {
                "type": "object",
                "properties": {"title": {"type": ["string", "null"]}, "links": {"type": "array", "items": {"type": "string"}}},
                "required": ["title", "links"],
            },
        },
        {"name": "now", "input_schema": {"type": "object", "properties": {}}, "output_schema": {"type": "string", "format": "date-time"}},
        {"name": "stop", "input_schema": {"type": "object", "additionalProperties": false}},
        {"name": "anything"},
        {"name": "delete", "server": "files", "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}},
        {"name": "read", "server": "files", "description": "Reads a file", "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}},
    ]));

    insta::assert_snapshot!(declarations.text());
    assert_eq!(declarations.warnings(), []);
    assert_eq!(compile(&[("reads.ts".to_owned(), declarations.text().to_owned())]), []);
}

#[test]
fn a_definition_has_one_name_in_all_tools_of_a_server() {
    let page = json!({"type": "object", "description": "A page", "properties": {
        "title": {"type": "string", "description": "As the author wrote it, or as the file is called"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/page"}},
    }, "required": ["title"]});
    let other =
        json!({"type": "object", "properties": {"page": {"$ref": "#/$defs/page"}, "again": {"type": "string"}}});
    let uses = |name: &str, page: &Value| {
        json!({"name": name, "server": "wiki", "inputSchema": {
            "type": "object", "properties": {"page": {"$ref": "#/$defs/page"}}, "required": ["page"], "$defs": {"page": page},
        }})
    };
    let declarations = declared(&json!([uses("write", &page), uses("append", &page), uses("unlike", &other)]));

    insta::assert_snapshot!(declarations.text(), @r#"
    // Check the shape of an unknown result before use.
    declare namespace wiki {
     type Page_184303 = { page?: Page_184303; again?: string };
     /** A page */
     type Page_285961 = {
      /** As the author wrote it, or as the file is called */
      title: string;
      children?: Page_285961[];
     };
     function append(args: { page: Page_285961 }): Promise<unknown>;
     function unlike(args: { page: Page_184303 }): Promise<unknown>;
     function write(args: { page: Page_285961 }): Promise<unknown>;
    }
    "#);
    insta::assert_snapshot!(declarations.of(ToolIndex(0)), @r#"
    declare namespace wiki {
     /** A page */
     type Page_285961 = {
      /** As the author wrote it, or as the file is called */
      title: string;
      children?: Page_285961[];
     };
     function write(args: { page: Page_285961 }): Promise<unknown>;
    }
    "#);
    assert_eq!(compile(&[("shared.ts".to_owned(), declarations.text().to_owned())]), []);
}

#[test]
fn an_object_that_stands_twice_in_a_tool_gets_a_name() {
    let place = json!({"type": "object", "properties": {
        "latitude": {"type": "number", "description": "north is positive"},
        "longitude": {"type": "number", "description": "east is positive"},
    }, "required": ["latitude", "longitude"]});
    let declarations = declared(&json!([{
        "name": "route",
        "parameters": {"type": "object", "properties": {"from": place, "stops": {"type": "array", "items": place}}, "required": ["from"]},
    }]));

    insta::assert_snapshot!(declarations.of(ToolIndex(0)), @r#"
    type From_917214 = {
     /** north is positive */
     latitude: number;
     /** east is positive */
     longitude: number;
    };

    declare function route(args: { from: From_917214; stops?: From_917214[] }): Promise<unknown>;
    "#);
}

#[test]
fn what_tools_have_in_common_is_written_once_under_one_name() {
    let place = json!({"type": "object", "properties": {
        "latitude": {"type": "number", "description": "north is positive"},
        "longitude": {"type": "number", "description": "east is positive"},
    }, "required": ["latitude", "longitude"]});
    let city = json!({"type": "string", "description": "The city, as its inhabitants call it, without the name of the country"});
    let declarations = declared(&json!([
        {"name": "walk", "parameters": {"type": "object", "properties": {"start": place, "city": city}}},
        {"name": "ride", "parameters": {"type": "object", "properties": {"from": {"$ref": "#/$defs/place"}, "city": city}, "$defs": {"place": place}}},
        {"name": "stops", "server": "bus", "inputSchema": {"type": "object", "properties": {"city": city}},
            "outputSchema": {"type": "array", "items": place}},
    ]));

    insta::assert_snapshot!(declarations.text());
    assert_eq!(compile(&[("common.ts".to_owned(), declarations.text().to_owned())]), []);
    // By itself a tool repeats nothing.
    insta::assert_snapshot!(declarations.of(ToolIndex(0)));
}

#[test]
fn comments_stand_on_their_own_lines() {
    let block = |kind: &str| {
        json!({"type": "object", "description": format!("A block of {kind}"),
            "properties": {"type": {"const": kind}, kind: {"type": "string", "minLength": 1}}, "required": ["type", kind]})
    };
    let schema = json!({"type": "object", "properties": {
        "block": {"description": "What to add", "anyOf": [block("text"), block("image"), {"type": "null"}]},
        "blocks": {"type": "array", "items": {"anyOf": [block("text"), block("image")]}},
        "level": {"oneOf": [{"const": "low", "description": "for debugging"}, {"const": "high", "description": "for people"}]},
        "point": {"type": "array", "prefixItems": [{"type": "integer", "description": "row"}, {"type": "integer"}], "minItems": 2, "items": false},
        "counts": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
        "more": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}},
        "ids": {"type": "array", "items": {"type": "integer"}},
        "size": {"type": ["integer", "null"]},
        "over": {"type": "number", "minimum": 3, "exclusiveMinimum": true},
    }});
    let declarations = declared(&json!([{"name": "odd", "parameters": schema}]));

    insta::assert_snapshot!(declarations.of(ToolIndex(0)));
    assert_eq!(compile(&[("comments.ts".to_owned(), declarations.text().to_owned())]), []);
}

/// Whether a schema asks for a whole number anywhere, where its values do not say so themselves.
fn has_integers(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            let is_integer = match &fields.get("type") {
                Some(Value::String(name)) => name == "integer",
                Some(Value::Array(names)) => names.contains(&json!("integer")) && !names.contains(&json!("number")),
                _ => false,
            };
            let is_told = fields.contains_key("enum") || fields.contains_key("const");
            is_integer && !is_told || fields.values().any(has_integers)
        }
        Value::Array(items) => items.iter().any(has_integers),
        _ => false,
    }
}

#[test]
fn every_tool_that_takes_an_integer_says_so_and_no_comment_stands_in_mid_expression() {
    for source in DataSource::present() {
        let mut tools_with_integers = 0;
        for list in source.tool_lists() {
            let catalog = Catalog::new(list.tools);
            let declarations = catalog.declarations();
            for function in catalog.functions() {
                let tool = &catalog.tools()[function.tool.0 as usize];
                if has_integers(&tool.input_schema) {
                    tools_with_integers += 1;
                    let text = declarations.of(function.tool).to_lowercase();
                    assert!(text.contains("integer"), "{}: {text}", tool.name);
                }
            }
            for line in declarations.text().lines().map(str::trim_start) {
                assert!(!line.contains("/**") || line.starts_with("/**"), "{line}");
            }
        }
        assert!(tools_with_integers >= 15, "{source:?}: only {tools_with_integers} tools take integers");
    }
}

#[test]
fn a_long_list_of_values_is_cut_and_counted() {
    let values: Vec<String> = (0..200).map(|n| format!("value{n}")).collect();
    let declarations = declared(&json!([{
        "name": "pick",
        "parameters": {"type": "object", "properties": {"value": {"type": "string", "enum": values, "description": "Which one"}}},
    }]));

    insta::assert_snapshot!(declarations.of(ToolIndex(0)), @r#"
    declare function pick(args?: {
     /** Which one; one of 200 values: "value0", "value1", "value2", "value3", "value4", "value5", "value6", "value7", "value8", "value9", "value10", "value11", … */
     value?: string;
    }): Promise<unknown>;
    "#);
}

#[test]
fn a_broken_schema_costs_its_own_tool_its_types_and_says_so() {
    let good = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let mut deep = json!({"type": "string"});
    for _ in 0..100 {
        deep = json!({"type": "array", "items": deep});
    }
    let long: serde_json::Map<String, Value> =
        (0..2_000).map(|n| (format!("a_property_with_a_rather_long_name_{n}"), json!({"type": "string"}))).collect();
    let many: serde_json::Map<String, Value> = (0..6_000).map(|n| (format!("p{n}"), json!({}))).collect();
    let tools = json!([
        {"name": "bad_type", "parameters": {"type": "object", "properties": {"a": {"type": "float"}, "b": {"type": "string"}}}},
        {"name": "deep", "parameters": {"type": "object", "properties": {"deep": deep}}},
        {"name": "good", "parameters": good},
        {"name": "long", "parameters": {"type": "object", "properties": long}},
        {"name": "loop", "parameters": {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"anyOf": [{"$ref": "#/$defs/x"}, {"type": "string"}]}}}},
        {"name": "lost", "parameters": {"type": "object", "properties": {"x": {"$ref": "#/$defs/*/```"}}}, "output_schema": {"$ref": "http://example.com/s"}},
        {"name": "many", "parameters": {"type": "object", "properties": many}},
        {"name": "never", "parameters": {"type": "object", "properties": {"a": {"type": "array", "enum": ["x"]}}}},
        {"name": "odd", "parameters": {"type": "object", "properties": {"a": 3}, "required": true}},
    ]);
    let declarations = declared(&tools);

    insta::assert_snapshot!(declarations.text());
    let messages: Vec<&str> = declarations.warnings().iter().map(|warning| warning.message.as_str()).collect();
    insta::assert_snapshot!(messages.join("\n"));
    assert_eq!(compile(&[("broken.ts".to_owned(), declarations.text().to_owned())]), []);
    assert_eq!(declarations.of(ToolIndex(2)), declared(&json!([tools[2]])).of(ToolIndex(0)));
}

#[test]
fn words_of_others_stay_in_their_comment() {
    let hostile = "ends */ declare const x: 1; /* ```\n``` ~~~ **/ \u{202e}\u{200b}*\u{200b}/ \u{2028}@x\r\n\u{e0041}";
    let declarations = declared(&json!([{
        "name": "hostile",
        "description": hostile,
        "parameters": {
            "type": "object",
            "description": hostile,
            "properties": {"a": {"type": "string", "description": hostile, "default": hostile, "pattern": "*/"}, "*/": {"const": "*/```"}},
        },
        "output_schema": {"$ref": format!("#/{hostile}")},
    }]));

    insta::assert_snapshot!(declarations.of(ToolIndex(0)), @r##"
    /**
     * ends * / declare const x: 1; /* '''
     * ''' --- ** / * /
     * @x
     * @param args ends * / declare const x: 1; /* ''' ''' --- ** / * / @x
     * Warning: output schema: `$ref` "#/ends * / declare const x: 1; /* '''\n''' --- ** / \u{202e}\u{200b}*\u{200b}/ \u{2028}@x\r\n\u{e0041}" leads to no place in the same schema
     */
    declare function hostile(args?: {
     /** ends * / declare const x: 1; /* ''' ''' --- ** / * / @x; pattern * / */
     a?: string;
     "*/"?: "*/\u0060\u0060\u0060";
    }): Promise<unknown>;
    "##);
    assert_eq!(compile(&[("hostile.ts".to_owned(), declarations.text().to_owned())]), []);
}

#[test]
fn a_literal_type_that_a_comment_names_does_not_end_it() {
    let list =
        |item: &str, description: &str| json!({"type": "array", "description": description, "items": {"const": item}});
    let schema = json!({"anyOf": [list("*/*", "all types"), list("```", "a fence")]});
    let declarations = declared(&json!([{"name": "accept", "output_schema": schema}]));

    insta::assert_snapshot!(declarations.of(ToolIndex(0)), @r#"
    /** @returns "* /*"[]: all types; "\u0060\u0060\u0060"[]: a fence */
    declare function accept(args?: Record<string, unknown>): Promise<"*/*"[] | "\u0060\u0060\u0060"[]>;
    "#);
    assert_eq!(compile(&[("accept.ts".to_owned(), declarations.text().to_owned())]), []);
}

#[test]
fn an_intersection_with_comments_within_another_one_parses() {
    let nullable = json!(["object", "null"]);
    let keyed = json!({"type": nullable, "patternProperties": {"a": {"type": "string"}}, "allOf": [{"minItems": 0}]});
    let inner = json!({"properties": {"a": {"type": "string"}}, "oneOf": [{"$ref": "#/$defs/keyed"}]});
    let schema = json!({"type": nullable, "patternProperties": {}, "allOf": [inner], "$defs": {"keyed": keyed}});
    let declarations = declared(&json!([{"name": "nested", "parameters": schema}]));

    insta::assert_snapshot!(declarations.of(ToolIndex(0)), @"
    declare function nested(args?:
     & (
      & ({ a?: string } | null)
      /** Record<string, unknown>: keys match a; null: keys match a */
      & (Record<string, unknown> | null)
     )
     & (Record<string, unknown> | null)): Promise<unknown>;
    ");
    assert_eq!(compile(&[("nested.ts".to_owned(), declarations.text().to_owned())]), []);
}

#[test]
fn tools_of_real_servers_read_well() {
    let corpus = [
        ("anthropic", "query_metrics"),
        ("mcp", "create_invoice"),
        ("openai-chat", "create_return"),
        ("openai-responses", "set_working_hours"),
    ];
    let shared = [
        ("everything", "get-structured-content"),
        ("filesystem", "edit_file"),
        ("git", "git_log"),
        ("memory", "create_relations"),
        ("notion", "API-post-page"),
        ("playwright", "browser_fill_form"),
        ("time", "convert_time"),
    ];
    for source in DataSource::present() {
        let tools = match source {
            DataSource::Corpus => corpus.as_slice(),
            DataSource::Shared => shared.as_slice(),
        };
        for (server, name) in tools {
            insta::assert_snapshot!(format!("{server}_{name}"), declaration_of(source, server, name));
        }
    }
}

#[test]
fn all_tools_of_real_servers_are_declared_without_a_warning() {
    let mut files = Vec::new();
    for source in DataSource::present() {
        let tools: Vec<Tool> = source.tool_lists().into_iter().flat_map(|list| list.tools).collect();
        let declarations = Catalog::new(tools).declarations();
        assert_eq!(declarations.warnings(), []);
        files.push((format!("{source:?}.d.ts"), declarations.text().to_owned()));
    }

    assert_eq!(compile(&files), []);
}

#[test]
#[expect(clippy::print_stderr, reason = "the figures are worth seeing")]
fn declarations_cost_fewer_tokens_than_the_tools_they_declare() {
    for source in DataSource::present() {
        let (mut of_json, mut of_declarations) = (0, 0);
        for list in source.tool_lists() {
            // What a request would carry: no annotations and titles.
            let mut sent = list.json;
            for tool in sent.as_array_mut().unwrap() {
                let known = [
                    "type",
                    "function",
                    "name",
                    "description",
                    "parameters",
                    "input_schema",
                    "inputSchema",
                    "outputSchema",
                ];
                let fields = tool.as_object_mut().unwrap();
                fields.retain(|key, _| known.contains(&key.as_str()));
            }
            let json_tokens = tokens(&sent.to_string());
            let tokens = tokens(Catalog::new(list.tools).declarations().text());
            let server = list.server;
            eprintln!("{server}: {tokens} of {json_tokens} tokens, {} %", tokens * 100 / json_tokens);
            assert!(tokens < json_tokens, "{server}");
            of_json += json_tokens;
            of_declarations += tokens;
        }
        eprintln!("{source:?}: {of_declarations} of {of_json} tokens");
        // The corpus has few words, so there is less to save.
        let percent_max = match source {
            DataSource::Corpus => 73,
            DataSource::Shared => 55,
        };
        assert!(of_declarations * 100 <= of_json * percent_max, "{source:?}: {of_declarations} of {of_json} tokens");
    }
}

/// A tool whose description has this many sentences.
fn wordy(name: &str, sentences: usize) -> Value {
    let description: Vec<String> = (0..sentences).map(|n| format!("Rule {n} of `{name}` must be kept.")).collect();
    json!({"name": name, "description": description.join(" "), "parameters": {"type": "object", "properties": {
        // No tool shares it with another: what is shared is written once.
        "command": {"type": "string", "description": format!("Words about the command of {name}. ").repeat(100)},
    }}})
}

#[test]
fn long_descriptions_are_declared_to_their_end() {
    let declarations = declared(&json!([wordy("bash", 500)]));

    let declaration = declarations.of(ToolIndex(0));
    assert!(declaration.contains("Rule 499 of `bash` must be kept."), "{declaration}");
    assert_eq!(declaration.matches("Words about the command").count(), 100);
    assert_eq!(declarations.text().trim_start_matches(Declarations::UNKNOWN_NOTE), declaration);
}

#[test]
fn within_a_budget_as_many_tools_are_declared_as_fit_and_cuts_are_told() {
    let tools = json!([wordy("first", 100), wordy("second", 100), wordy("third", 1)]);
    let declarations = declared(&tools);
    let all = [ToolIndex(0), ToolIndex(1), ToolIndex(2)];

    let enough = declarations.within(&all, declarations.text().len(), 0);
    assert_eq!(enough.text, declarations.text(), "nothing is cut without need");

    // The first description that fits is whole, the other is cut at a sentence.
    let some = declarations.within(&all, declarations.text().len() - 1_000, 0);
    assert_eq!(some.tools, all);
    assert!(some.text.contains("Rule 99 of `first` must be kept."), "{}", some.text);
    let cut = some.text.lines().find(|line| line.contains("Rule 0 of `second`")).unwrap();
    assert!(cut.ends_with("must be kept."), "{cut}");
    let told = some.text.lines().find(|line| line.contains("(Cut")).unwrap().trim();
    let missing = tools[1]["description"].as_str().unwrap().len() - cut.trim_start_matches([' ', '*']).len();
    let expected = format!("* (Cut: {missing} more bytes. `await describe(\"second\")` returns all of it.)");
    assert_eq!(told, expected);

    // What does not fit makes room for what does.
    let small = declarations.of(ToolIndex(2)).len() + Declarations::UNKNOWN_NOTE.len();
    let few = declarations.within(&all, small, 0);
    assert_eq!((few.tools.as_slice(), few.text.as_str()), (&all[2..], declared(&json!([tools[2]])).text()));
    assert_eq!(declarations.within(&all, 10, 0).tools, []);

    // Where not all fit, room is left for the names of the others.
    let fewer = declarations.within(&all, small + 100, 200);
    assert_eq!(fewer.tools, []);
    assert_eq!(declarations.summary(ToolIndex(0)), "Rule 0 of `first` must be kept");
    assert_eq!(compile(&[("some.ts".to_owned(), some.text.clone()), ("few.ts".to_owned(), few.text.clone())]), []);
}

#[test]
fn tools_that_share_a_type_fill_the_budget_together() {
    let fields: Vec<(String, Value)> = (0..30)
        .map(|n| (format!("field_{n}"), json!({"type": "string", "description": format!("Field {n}.")})))
        .collect();
    let address = json!({"type": "object", "properties": Value::Object(fields.into_iter().collect())});
    let tool = |n: usize| json!({"name": format!("move_{n}"), "parameters": {"type": "object", "properties": {"to": address}}});
    let declarations = declared(&(0..20).map(tool).collect());
    let all: Vec<ToolIndex> = (0..20).map(ToolIndex).collect();
    let three_alone = 3 * declarations.of(ToolIndex(0)).len();

    let declared = declarations.within(&all, three_alone, 0);
    assert!(declared.tools.len() > 10, "{} of 20 tools, {} bytes", declared.tools.len(), declared.text.len());
    assert!(declared.text.len() <= three_alone);
    assert!(declared.tools.is_sorted(), "in the order of the client");
}
