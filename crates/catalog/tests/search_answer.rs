//! The text that answers a model's search.

use dacapo_catalog::{Catalog, SearchAnswer, SearchIndex, SearchText, read_tools};
use serde_json::{Map, Value, json};

fn found(text: impl Into<SearchText>, limit: usize, tokens_max: usize) -> SearchAnswer {
    let tools = json!([
        { "name": "get_weather", "description": "Forecast for a city", "input_schema": { "type": "object", "properties": { "city": { "type": "string" } } } },
        { "name": "send_email", "description": "Sends an email message", "outputSchema": { "type": "string" } },
        { "name": "read_email", "description": "Reads an email message" },
        { "name": "delete_email", "description": "Deletes an email message" },
    ]);
    let catalog = Catalog::new(read_tools(&tools).expect("tools"));
    let index = SearchIndex::new(catalog.tools());
    SearchAnswer::new(&index.search(text, limit), &index, &catalog, &catalog.declarations(), tokens_max)
}

#[test]
fn declarations_come_ready_to_use_and_the_next_best_by_name() {
    let one = found("send email", 1, 1_000);
    insta::assert_snapshot!(one.text, @r#"
    /** Sends an email message */
    declare function send_email(args?: Record<string, unknown>): Promise<string>;
    // also found; declared by `await describe("name")` in a program, or by a search for the name:
    // delete_email: Deletes an email message
    // read_email: Reads an email message
    "#);
    assert_eq!((one.shown, one.total), (1, 3));
}

#[test]
fn each_step_of_a_task_gets_its_own_tools() {
    let steps = ["forecast in Paris", "mail it", "qqqq"].map(str::to_owned).to_vec();
    let each = found(SearchText::new(None, steps).unwrap(), 2, 1_000);
    insta::assert_snapshot!(each.text);
    assert_eq!(each.shown, 2);
}

#[test]
fn a_tool_that_needs_what_another_makes_comes_with_it() {
    let takes = |name: &str, inputs: &[&str]| {
        let properties: Map<String, Value> =
            inputs.iter().map(|input| ((*input).to_owned(), json!({"type": "string"}))).collect();
        json!({"name": name, "input_schema": {"type": "object", "properties": properties, "required": inputs}})
    };
    let mut geocode = takes("geocode_address", &["address"]);
    geocode["outputSchema"] =
        json!({"type": "object", "properties": {"latitude": {"type": "number"}, "longitude": {"type": "number"}}});
    let tools = json!([
        takes("train_departures", &["station_code", "date"]),
        takes("get_station_code_by_name", &["name"]),
        takes("forecast", &["latitude", "longitude"]),
        geocode,
        takes("direct_message", &["user_id", "text"]),
        takes("search_users", &["query"]),
        takes("get_user", &["user_id"]),
        takes("delete_user", &["name"]),
        takes("convert", &["currency_code"]),
    ]);
    let catalog = Catalog::new(read_tools(&tools).unwrap());
    let index = SearchIndex::new(catalog.tools());
    let asked = ["train departures", "weather forecast", "direct message", "convert money"].map(str::to_owned).to_vec();
    let results = index.search(SearchText::new(None, asked).unwrap(), 4);
    let answer = SearchAnswer::new(&results, &index, &catalog, &catalog.declarations(), 1_000);
    insta::assert_snapshot!(answer.text);
}

#[test]
fn nothing_that_was_found_is_hidden() {
    let tool = |number: usize| {
        let words = vec!["long"; 60].join(" ");
        json!({"name": format!("read_file_{number}"), "description": format!("Reads file {number}. It has a {words} description."), "outputSchema": {}})
    };
    let catalog = Catalog::new(read_tools(&Value::Array((0..50).map(tool).collect())).unwrap());
    let index = SearchIndex::new(catalog.tools());
    let answer = SearchAnswer::new(&index.search("read a file", 10), &index, &catalog, &catalog.declarations(), 1_000);

    let tokens = tiktoken_rs::o200k_base_singleton().encode_ordinary(&answer.text).len();
    assert!((800..=1_000).contains(&tokens), "{tokens} tokens");
    assert!((5..10).contains(&answer.shown), "{} are declared", answer.shown);
    let named = answer.text.lines().filter(|line| line.starts_with("// read_file_")).count();
    assert!((15..=30).contains(&named), "{named} are named");
    let left =
        format!("// {} more match: ask again with other words, or with a larger limit\n", 50 - answer.shown - named);
    assert!(answer.text.ends_with(&left), "{}", answer.text);
}

#[test]
fn a_budget_cuts_the_list_but_never_to_nothing() {
    assert_eq!(found("email", 10, 0).shown, 1);
    let wide = found("email", 10, 1_000);
    assert_eq!((wide.shown, wide.total), (3, 3));
    assert!(!wide.text.contains("also found"), "{}", wide.text);
    assert!(wide.text.starts_with("// Check the shape of an unknown result before use.\n"));
}

#[test]
fn several_needs_are_answered_one_by_one_and_nothing_found_says_what_is_there() {
    let both = found("look up the weather in Paris, then send an email to Ann", 10, 1_000);
    let weather = both.text.find("get_weather").unwrap();
    assert!(weather < both.text.find("send_email").unwrap(), "{}", both.text);
    assert_eq!(both.text.matches("// for: ").count(), 2, "{}", both.text);

    let none = found("qqqq", 10, 1_000);
    assert!(none.text.starts_with("// nothing found for: qqqq; "), "{}", none.text);
    assert_eq!((none.shown, none.total), (0, 0));
}
