//! The text that answers a model's search.

use dacapo_catalog::{Catalog, SearchAnswer, SearchIndex, read_tools};
use serde_json::json;

fn found(query: &str, limit: usize, tokens_max: usize) -> SearchAnswer {
    let tools = json!([
        { "name": "get_weather", "description": "Forecast for a city", "input_schema": { "type": "object", "properties": { "city": { "type": "string" } } } },
        { "name": "send_email", "description": "Sends an email message", "outputSchema": { "type": "string" } },
        { "name": "read_email", "description": "Reads an email message" },
        { "name": "delete_email", "description": "Deletes an email message" },
    ]);
    let catalog = Catalog::new(read_tools(&tools).expect("tools"));
    let results = SearchIndex::new(catalog.tools()).search(query, limit);
    SearchAnswer::new(&results, &catalog, &catalog.declarations(), tokens_max)
}

#[test]
fn declarations_come_ready_to_use_and_tell_how_many_more_there_are() {
    let one = found("send email", 1, 1_000);
    assert_eq!(
        one.text,
        "/** Sends an email message */\ndeclare function send_email(args?: Record<string, unknown>): Promise<string>;\n\
         // 2 more match: ask again with other words, or with a larger limit\n"
    );
    assert_eq!((one.shown, one.total), (1, 3));
}

#[test]
fn a_budget_cuts_the_list_but_never_to_nothing() {
    assert_eq!(found("email", 10, 0).shown, 1);
    let wide = found("email", 10, 1_000);
    assert_eq!((wide.shown, wide.total), (3, 3));
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
