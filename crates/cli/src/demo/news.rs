//! Two web searches, in parallel or one after the other.

use serde_json::Value;

use super::scenario::{Scenario, text, tool, unknown};

pub(super) fn parallel(name: &'static str) -> Scenario {
    let results = results();
    let links = |query: &str| {
        let articles = results[query].as_array().into_iter().flatten();
        let link = |article: &Value| format!("\n- [{}]({})", field_of(article, "title"), field_of(article, "url"));
        articles.map(link).collect::<String>()
    };
    let expected = format!(
        "Here are the latest **sport news** and **international affairs news**:\n\n### Sport News\n{}\n\n### International Affairs News\n{}",
        links("sport news"),
        links("international affaires news"),
    );
    scenario(
        name,
        "two calls at once",
        "Look for sport news and international affaires news in parallel and give me all results.",
        expected,
    )
}

pub(super) fn sequential(name: &'static str) -> Scenario {
    let results = results();
    let titles = |query: &str| {
        let articles = results[query].as_array().into_iter().flatten().zip(1..);
        let title = |(article, number): (&Value, u32)| format!("\n{number}. **{}**", field_of(article, "title"));
        articles.map(title).collect::<String>()
    };
    let expected = format!(
        "Here is a comparison of the news in France and the US today:\n\n### France\n{}\n\n### US\n{}",
        titles("news in France today"),
        titles("news in US today"),
    );
    scenario(name, "one call after the other", "Compare news in france and in the us today", expected)
}

fn scenario(name: &'static str, title: &str, question: &str, expected: String) -> Scenario {
    let results = results();
    Scenario {
        name,
        title: title.to_owned(),
        question: question.to_owned(),
        tools: vec![tool(
            "web_search",
            "Searches the web and returns the best articles.",
            &[("query", "string", "What to look for")],
        )],
        execute: Box::new(move |_, arguments| {
            let query = text(arguments, "query")?;
            results.get(query).cloned().ok_or_else(|| unknown("query", query))
        }),
        expected,
    }
}

/// Articles by query.
fn results() -> Value {
    serde_json::from_str(include_str!("news.json")).expect("the file is JSON")
}

fn field_of<'a>(article: &'a Value, field: &str) -> &'a str {
    article[field].as_str().unwrap_or_default()
}
