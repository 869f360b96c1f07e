//! Which arguments are accepted, and the messages for those that are not.

use dacapo_catalog::{Catalog, InvalidArguments, OutOfBudget, Tool, ToolIndex, Violation, WorkBudget};
use serde_json::{Map, Value, json};

fn catalog(input_schema: Value) -> Catalog {
    let tool = Tool {
        name: "webSearch".to_owned(),
        description: None,
        input_schema: input_schema.into(),
        output_schema: None,
        observed_answer: None,
        server: None,
        effect: None,
    };
    Catalog::new(vec![tool])
}

fn check(schema: Value, args: impl Into<Value>) -> Result<(), String> {
    let verdict = catalog(schema).check(ToolIndex(0), &args.into());
    verdict.map_err(|error| error.to_string())
}

fn refusal(schema: Value, args: Value) -> String {
    check(schema, args).expect_err("the arguments are wrong")
}

fn web_search() -> Value {
    json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1},
            "limit": {"type": "integer", "maximum": 100},
            "sites": {"type": "array", "items": {"type": "object", "properties": {"host": {"type": "string"}}, "required": ["host"]}},
            "order": {"enum": ["date", "rank"]},
        },
        "required": ["query"],
        "additionalProperties": false,
    })
}

#[test]
fn a_refusal_names_the_path_what_was_expected_and_what_was_found() {
    assert_eq!(check(web_search(), json!({"query": "x", "limit": 3.0})), Ok(()));
    let args = json!({"q": "x", "query": 3, "limit": 500, "order": "size", "sites": [{"host": "a"}, {}]});

    let refusal = catalog(web_search()).check(ToolIndex(0), &args).unwrap_err();

    insta::assert_snapshot!(refusal, @r#"webSearch: invalid arguments: expected only query, limit, sites, order, found unknown property "q" (did you mean "query"?); limit: expected a value ≤ 100, found 500; order: expected "date" or "rank", found "size"; query: expected string, found number 3; sites[1].host: expected string, found nothing"#);
    assert_eq!(
        refusal.violations[4],
        Violation { path: "sites[1].host".into(), expected: "string".into(), found: "nothing".into() }
    );
}

#[test]
fn only_the_first_violations_are_told_and_long_values_are_cut() {
    let schema = json!({"type": "array", "items": {"type": "integer"}});
    let schema = json!({"properties": {"a-b": schema}});
    let long = "é".repeat(1_000);

    insta::assert_snapshot!(refusal(schema, json!({"a-b": [1, long, 2, null, true, 1.5, [1], {"a": 1}, 9]})), @r#"webSearch: invalid arguments: ["a-b"][1]: expected integer, found string "ééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé…; ["a-b"][3]: expected integer, found null; ["a-b"][4]: expected integer, found boolean true; ["a-b"][5]: expected integer, found number 1.5; ["a-b"][6]: expected integer, found array [1]; and 1 more"#);
}

#[test]
fn of_several_alternatives_the_closest_explains_itself() {
    let nullable = json!({"properties": {"a": {"anyOf": [{"type": "string"}, {"anyOf": [{"type": "null"}, {"type": "integer"}]}]}}});
    insta::assert_snapshot!(refusal(nullable, json!({"a": true})), @"webSearch: invalid arguments: a: expected string or null or integer, found boolean true");

    let block = json!({"properties": {"block": {"oneOf": [
        {"type": "object", "properties": {"type": {"const": "text"}, "text": {"type": "string"}}, "required": ["type", "text"]},
        {"type": "object", "properties": {"type": {"const": "image"}, "url": {"type": "string"}, "width": {"type": "integer"}}, "required": ["type", "url"]},
        {"type": "null"},
    ]}}});
    insta::assert_snapshot!(refusal(block.clone(), json!({"block": {"type": "image", "width": "1"}})), @r#"webSearch: invalid arguments: block.url: expected string, found nothing; block.width: expected integer, found string "1""#);
    insta::assert_snapshot!(refusal(block.clone(), json!({"block": {"type": "video"}})), @r#"webSearch: invalid arguments: block.type: expected "text" or "image", found string "video""#);
    insta::assert_snapshot!(refusal(block, json!({"block": 7})), @"webSearch: invalid arguments: block: expected object or null, found number 7");
}

#[test]
fn a_call_without_an_object_is_told_how_to_write_it() {
    insta::assert_snapshot!(refusal(web_search(), json!("rust")), @r#"webSearch: takes one object argument, like webSearch({ query: … }); found string "rust""#);
    insta::assert_snapshot!(refusal(json!({"type": "object"}), Value::Null), @"webSearch: takes one object argument, like webSearch({}); found null");
    insta::assert_snapshot!(refusal(json!(true), json!([1])), @"webSearch: takes one object argument, like webSearch({}); found array [1]");
    insta::assert_snapshot!(refusal(json!({"type": "strin"}), json!(1)), @"webSearch: takes one object argument, like webSearch({}); found number 1");
    assert_eq!(check(json!({"type": ["object", "null"]}), Value::Null), Ok(()));
    assert_eq!(check(json!({"anyOf": [{"type": "object"}, {"type": "string"}]}), json!("a")), Ok(()));
    assert_eq!(check(json!({}), json!({"anything": 1})), Ok(()));
    insta::assert_snapshot!(refusal(json!(false), json!({})), @"webSearch: invalid arguments: expected nothing here, found {}");
}

#[test]
fn the_draft_is_the_one_the_schema_names() {
    let tuple =
        |draft: &str| json!({"$schema": draft, "type": "object", "properties": {"a": {"items": [{"type": "string"}]}}});
    assert!(check(tuple("http://json-schema.org/draft-07/schema#"), json!({"a": [1]})).is_err());
    let newer = json!({"properties": {"a": {"prefixItems": [{"type": "string"}]}}});
    assert!(check(newer, json!({"a": [1]})).is_err());
    for draft in ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"] {
        let annotated = json!({"$schema": draft, "properties": {
            "a": {"format": "email"}, "b": {"contentEncoding": "base64", "contentMediaType": "application/json"}}});
        assert_eq!(check(annotated, json!({"a": "no mail", "b": "no base"})), Ok(()));
    }
}

#[test]
fn the_forms_of_older_drafts_are_read_whatever_draft_the_schema_names() {
    let drafts = [
        None,
        Some("http://json-schema.org/draft-04/schema#"),
        Some("http://json-schema.org/draft-06/schema#"),
        Some("http://json-schema.org/draft-07/schema#"),
        Some("https://json-schema.org/draft/2020-12/schema"),
    ];
    for draft in drafts {
        let mut schema = json!({"type": "object", "properties": {
            "over": {"type": "number", "minimum": 3, "exclusiveMinimum": true},
            "under": {"type": "number", "maximum": 3, "exclusiveMaximum": false},
            "below": {"type": "number", "exclusiveMaximum": 3},
            "pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": false},
            "nothing": {"type": "array", "items": []},
            "ref": {"$ref": "#/definitions/word"},
        }, "dependencies": {"over": ["under"]}, "definitions": {"word": {"type": "string"}}});
        if let Some(draft) = draft {
            schema["$schema"] = draft.into();
        }
        let catalog = catalog(schema);
        let verdict = |args: Value| catalog.check(ToolIndex(0), &args).map_err(|invalid| invalid.to_string());
        assert_eq!(verdict(json!({"over": 3.5, "under": 3, "below": 2, "pair": ["a", 1], "ref": "a"})), Ok(()));
        for args in [
            json!({"over": 3, "under": 1}),
            json!({"under": 4}),
            json!({"below": 3}),
            json!({"pair": ["a", "b"]}),
            json!({"pair": ["a", 1, 2]}),
            json!({"over": 4}),
            json!({"ref": 1}),
        ] {
            assert!(verdict(args.clone()).is_err(), "{draft:?}: {args}");
        }
        assert_eq!(catalog.warnings(), [], "{draft:?}");
    }
}

#[test]
fn a_keyword_that_cannot_be_used_costs_only_itself() {
    let schema = json!({
        "type": "object",
        "required": ["city"],
        "properties": {
            "city": {"type": "string", "minLength": "one", "description": null},
            "days": {"type": "float", "maximum": 14},
            "code": {"type": "string", "pattern": "("},
            "unit": {"enum": "metric", "type": "string"},
            "place": {"$ref": "#/$defs/nowhere", "type": "object"},
            "broken": 3,
            "tree": {"$ref": "#/$defs/tree"},
            "any": {"anyOf": [{"type": "string"}, "no schema"]},
            "one": {"oneOf": [{"type": "string"}, {"type": "strin"}]},
            "not": {"not": {"type": "strin"}},
            "not_tree": {"not": {"$ref": "#/$defs/tree"}},
        },
        "additionalProperties": false,
        "$defs": {"tree": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "array"}], "type": ["array", "null"]}},
    });
    let catalog = catalog(schema);

    let whole = json!({"city": "", "days": 1, "code": "(", "unit": "x", "place": {}, "broken": 1, "tree": [], "any": 1, "one": "", "not": 1, "not_tree": []});
    assert_eq!(catalog.check(ToolIndex(0), &whole), Ok(()));
    let wrong = json!({"days": 15, "code": 1, "unit": 2, "place": 3, "tree": "", "other": 1});
    let refusal = catalog.check(ToolIndex(0), &wrong).unwrap_err();
    assert_eq!(refusal.violations.len() + refusal.more, 7, "{refusal}");
    let warnings: Vec<String> = catalog.warnings().into_iter().map(|warning| warning.message).collect();
    insta::assert_snapshot!(warnings.join("\n"));
}

#[test]
fn a_schema_that_cannot_be_used_costs_only_its_own_checks() {
    // Built by hand, because `json!` copies what it nests.
    let deep =
        (0..1_000).fold(Value::Bool(true), |inner, _| Value::Object(Map::from_iter([("not".to_owned(), inner)])));
    let broken = [
        json!({"type": "strin"}),
        json!({"$ref": "https://example.com/schema.json"}),
        json!({"$ref": "file:///etc/passwd"}),
        json!({"properties": {"a": {"$ref": "#/$defs/nowhere"}}}),
        json!({"properties": {"a": {"pattern": "("}}}),
        json!({"$ref": "#"}),
        json!({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}}),
        json!({"$schema": "https://example.com/mine"}),
        deep,
    ];
    let mut warnings = String::new();
    for schema in broken {
        let catalog = catalog(schema);
        assert_eq!(catalog.check(ToolIndex(0), &json!({"a": 1})), Ok(()));
        assert!(catalog.check(ToolIndex(0), &json!("a")).is_err());
        let [warning] = catalog.warnings().try_into().unwrap();
        warnings.push_str(&warning.message);
        warnings.push('\n');
    }

    insta::assert_snapshot!(warnings, @r##"
    the input schema of `webSearch` is used without /type: "strin" is not valid under any of the schemas listed in the 'anyOf' keyword
    the input schema of `webSearch` is used without /$ref: `$ref` "https://example.com/schema.json" leads to no place in the same schema
    the input schema of `webSearch` is used without /$ref: `$ref` "file:///etc/passwd" leads to no place in the same schema
    the input schema of `webSearch` is used without /properties/a/$ref: `$ref` "#/$defs/nowhere" leads to no place in the same schema
    the input schema of `webSearch` is used without /properties/a/pattern: "(" is not a "regex"
    the input schema of `webSearch` is used without /$ref: a `$ref` leads back to itself
    the input schema of `webSearch` is used without /$defs/b/not/$ref: a `$ref` leads back to itself
    the input schema of `webSearch` is used without /$schema: it names no draft of JSON Schema that is known
    the input schema of `webSearch` cannot be used, so any object is accepted: it is nested more than 64 deep
    "##);
    assert_eq!(catalog(web_search()).warnings(), []);
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({"stop": 1}), |inner, _| json!({"next": inner}))
}

#[test]
fn a_recursive_schema_is_followed_as_deep_as_the_arguments_go() {
    let tree = json!({"$ref": "#/$defs/node%20a", "$defs": {"node a": {
        "type": "object", "additionalProperties": false,
        "properties": {"next": {"$ref": "#/$defs/node%20a"}, "stop": {"type": "string"}}}}});

    insta::assert_snapshot!(refusal(tree.clone(), nested(3)), @"webSearch: invalid arguments: next.next.next.stop: expected string, found number 1");
    assert!(check(tree.clone(), nested(100)).unwrap_err().contains("expected string, found number 1"));
    insta::assert_snapshot!(refusal(tree, nested(500)), @"webSearch: invalid arguments: expected at most 127 levels of nesting, found more");
}

/// Every definition asks for the next one twice.
fn doubling(keyword: &str, levels: usize) -> Value {
    let mut defs = Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        defs.insert(format!("d{level}"), json!({keyword: [next, next]}));
    }
    defs.insert(format!("d{levels}"), json!({"properties": {"a": {"type": "string"}}}));
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

#[test]
fn a_schema_made_to_cost_time_is_refused_in_time() {
    for keyword in ["allOf", "anyOf"] {
        assert_eq!(check(doubling(keyword, 10), json!({"a": "x"})), Ok(()));
        insta::allow_duplicates! {
            insta::assert_snapshot!(refusal(doubling(keyword, 18), json!({"a": 1})), @r#"webSearch: invalid arguments: expected arguments that match the schema, found object {"a":1}"#);
            insta::assert_snapshot!(refusal(doubling(keyword, 60), json!({"a": "x"})), @r#"webSearch: invalid arguments: expected arguments small enough to check against the schema, found object {"a":"x"}"#);
        }
    }
    let branching = json!({"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {
        "a": {"properties": {"next": {"$ref": "#"}}, "required": ["next"]},
        "b": {"properties": {"next": {"$ref": "#"}}, "required": ["next"]}}});
    assert!(check(branching, nested(100)).is_err());
}

/// Definitions as deep as they may be, each with the next at its end.
fn winding(keyword: &str) -> Value {
    let defs: Map<String, Value> = (0..40)
        .map(|level| {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            let definition = (0..20).fold(next, |inner, _| json!({keyword: inner}));
            (format!("d{level}"), definition)
        })
        .chain([("d40".to_owned(), json!(true))])
        .collect();
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

#[test]
fn a_schema_made_to_cost_stack_is_refused_in_time() {
    for keyword in ["not", "items"] {
        let catalog = catalog(winding(keyword));
        catalog.warnings();
        assert!(catalog.check(ToolIndex(0), &json!({})).is_ok(), "{keyword}");
    }
    let defs: Map<String, Value> = (0..50)
        .map(|level| (format!("d{level}"), json!({"allOf": [{"$ref": format!("#/$defs/d{}", level + 1)}]})))
        .chain([("d50".to_owned(), json!({"properties": {"next": {"$ref": "#"}}}))])
        .collect();
    let long_way_each_level = json!({"$ref": "#/$defs/d0", "$defs": defs});
    assert_eq!(check(long_way_each_level.clone(), nested(1)), Ok(()));
    insta::assert_snapshot!(refusal(long_way_each_level, nested(100)), @r#"webSearch: invalid arguments: expected arguments small enough to check against the schema, found object {"next":{"next":{"next":{"next":{"next":{"next":{"next":{"next":{"next":{"next":…"#);
}

#[test]
fn a_pattern_made_to_cost_time_is_given_up() {
    let text = "a".repeat(40) + "!";
    for pattern in ["^(a+)+$", "^(?=(a+)+$).*b", "^((a|aa)+)\\1$", "(x+x+)+y", "a{1000}{1000}{1000}"] {
        let schema = json!({"properties": {"texts": {"items": {"pattern": pattern}}}});
        let args = json!({"texts": vec![text.as_str(); 20]});
        let refused: Result<(), InvalidArguments> = catalog(schema).check(ToolIndex(0), &args);
        assert!(refused.is_err() || pattern.starts_with("a{"), "{pattern}");
    }
}

#[test]
fn errors_do_not_hold_hundreds_of_copies_of_large_arguments() {
    let branches: Vec<Value> = (0..500).map(|n| json!({"required": [format!("key_{n}")]})).collect();
    let args: Map<String, Value> = (0..2_000).map(|n| (format!("field_{n}"), json!("x"))).collect();
    let union = json!({"type": "object", "anyOf": branches});
    assert!(refusal(union.clone(), args.into()).contains("expected arguments that match the schema, found object"));
    assert!(refusal(union, json!({"a": 1})).contains("key_0: expected a value, found nothing"));
}

#[test]
fn in_very_large_arguments_the_first_violation_is_explained() {
    let schema = json!({"properties": {"list": {"items": {"type": "integer"}}}});
    let mut list = vec![json!(1); 150_000];
    list[70_000] = json!("x");
    list[80_000] = json!("y");
    insta::assert_snapshot!(refusal(schema, json!({"list": list})), @r#"webSearch: invalid arguments: list[70000]: expected integer, found string "x"; the rest of these large arguments was not checked"#);
}

#[test]
fn a_check_spends_in_proportion_to_its_work_and_not_more_than_it_may() {
    let spent = |schema: Value, args: Value, steps: u64| {
        let mut budget = WorkBudget::new(steps);
        let verdict = catalog(schema).check_within(ToolIndex(0), &args, &mut budget);
        verdict.map(|_| budget.spent())
    };
    let union = |count: usize| {
        let branches: Vec<Value> = (0..count).map(|n| json!({"const": n})).collect();
        json!({"properties": {"list": {"items": {"anyOf": branches}}}})
    };
    let list = |count: usize| json!({"list": vec![0; count]});
    let (small, wide, long) = (
        spent(union(10), list(10), 1_000_000).unwrap(),
        spent(union(1_000), list(10), 1_000_000).unwrap(),
        spent(union(10), list(1_000), 1_000_000).unwrap(),
    );
    assert!(small < 200 && wide > 80 * small && long > 80 * small, "{small} {wide} {long}");
    assert_eq!(spent(union(1_000), list(1_000), 100_000), Err(OutOfBudget));

    let backtracking = json!({"properties": {"list": {"items": {"pattern": "^(?=(a+)+$).*b"}}}});
    assert_eq!(spent(backtracking, json!({"list": vec!["a".repeat(40); 20]}), 10_000), Err(OutOfBudget));
}

#[test]
fn one_catalog_serves_many_threads() {
    let catalog = catalog(web_search());
    let verdicts = std::thread::scope(|scope| {
        let threads = [json!({"query": "x"}), json!({"query": 1})]
            .map(|args| scope.spawn(|| catalog.check(ToolIndex(0), &{ args }).is_ok()));
        threads.map(|thread| thread.join().unwrap())
    });

    assert_eq!(verdicts, [true, false]);
}
