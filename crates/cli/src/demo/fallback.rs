//! A tool that fails, and a second tool that the program calls instead.

use serde_json::{Value, json};

use super::scenario::{Scenario, text, tool, unknown};

const DOLLARS: f64 = 1_200.0;
const DATE: &str = "2026-11-13";
/// What a dollar costs: live, if the provider has it, and as last fixed.
const RATES: [(&str, Option<f64>, f64); 2] = [("EUR", Some(0.8642), 0.8637), ("CHF", None, 0.8014)];

const PAIR: [(&str, &str, &str); 2] =
    [("base", "string", "ISO 4217 code to convert from"), ("quote", "string", "ISO 4217 code to convert to")];

/// The same tools for a question that takes a single call.
pub(super) fn one_call() -> Scenario {
    let rate = RATES[0].1.unwrap_or_default();
    Scenario {
        title: "one small call".to_owned(),
        question: "How much is one US dollar in euros?".to_owned(),
        expected: format!("One US dollar is {rate} euros."),
        ..scenario("one-call")
    }
}

pub(super) fn scenario(name: &'static str) -> Scenario {
    let sums = RATES.map(|(quote, live, fixed)| {
        let source = live.map_or_else(|| format!("reference rate of {DATE}"), |_| "live".to_owned());
        format!("{:.2} {quote} ({source})", DOLLARS * live.unwrap_or(fixed))
    });
    Scenario {
        name,
        title: "a call that fails is caught by the program".to_owned(),
        question: "How much are 1,200 US dollars in euros and in Swiss francs?".to_owned(),
        tools: vec![
            tool("get_live_rate", "The exchange rate of this moment. Returns { rate }.", &PAIR),
            tool("get_reference_rate", "The exchange rate as last fixed. Returns { rate, date }.", &PAIR),
        ],
        execute: Box::new(execute),
        expected: format!("1,200 US dollars are {}.", sums.join(" and ")),
    }
}

fn execute(tool: &str, arguments: &Value) -> Result<Value, String> {
    let wanted = text(arguments, "quote")?;
    let (_, live, fixed) =
        RATES.iter().find(|(quote, ..)| *quote == wanted).ok_or_else(|| unknown("currency", wanted))?;
    match tool {
        "get_live_rate" => live
            .map(|rate| json!({"rate": rate}))
            .ok_or_else(|| format!("503: no live quotes for USD/{wanted}, the market feed is down")),
        "get_reference_rate" => Ok(json!({"rate": fixed, "date": DATE})),
        _ => Err(unknown("tool", tool)),
    }
}
