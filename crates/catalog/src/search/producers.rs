//! Tools that make what another tool asks for: `get_station_code_by_name` for one that needs a `station_code`.

use serde_json::{Map, Value};

use super::SearchIndex;
use super::fields::ToolField;
use super::words::for_each_word;
use crate::{Effect, Tool, ToolIndex};

/// Inputs with these words are handed on from answers; few people know them.
#[rustfmt::skip]
const HANDLES: &[&str] = &[
    "code", "coordinate", "coordinates", "guid", "handle", "hash", "id", "ids", "identifier", "key", "sha", "slug",
    "token", "uid", "urn", "uuid",
];
/// A place in numbers, and how tools that find it are called.
const PLACES: &[&str] = &["lat", "latitude", "lng", "lon", "long", "longitude", "coordinate", "coordinates"];
const GEOCODERS: &[&str] = &["geocode", "geocoding", "geocoder", "coordinates", "geo", "latlng"];
/// What a tool begins with that finds one thing among many.
const FINDERS: &[&str] = &["find", "get", "list", "lookup", "query", "resolve", "search"];
/// Inputs of one tool that are looked at.
const INPUTS_MAX: usize = 3;
/// Words that a producer's name may have beside what it produces.
const OTHER_WORDS_MAX: usize = 3;

/// An input that another tool makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    /// The name of the input.
    pub input: String,
    /// The tool that makes it.
    pub tool: ToolIndex,
}

impl SearchIndex {
    /// The tools that make required inputs of a tool, where those read like something that only another tool knows.
    /// `tools` are those that the index is made of.
    pub fn producers(&self, tools: &[Tool], of: ToolIndex) -> Vec<Producer> {
        let consumer = &tools[of.0 as usize];
        let mut producers: Vec<Producer> = Vec::new();
        for input in required_handles(&consumer.input_schema.passing()).take(INPUTS_MAX) {
            let words = words_of(input);
            let best = self.candidates(&words).into_iter().filter(|tool| *tool != of).filter_map(|tool| {
                let producer = &tools[tool.0 as usize];
                let fit = fit(producer, &words)?;
                let is_neighbour = producer.server == consumer.server;
                Some(((fit, is_neighbour), std::cmp::Reverse((self.name_ranks[tool.0 as usize], tool))))
            });
            if let Some((_, std::cmp::Reverse((_, tool)))) = best.max()
                && !producers.iter().any(|known| known.tool == tool)
            {
                producers.push(Producer { input: input.clone(), tool });
            }
        }
        producers
    }

    /// Tools whose names or answers have a word of the input that tells what it is of.
    fn candidates(&self, words: &[String]) -> Vec<ToolIndex> {
        let is_place = words.iter().any(|word| PLACES.contains(&word.as_str()));
        let telling = words.iter().map(String::as_str).filter(|word| !HANDLES.contains(word));
        let telling = telling.chain(GEOCODERS.iter().copied().filter(|_| is_place));
        let mut found = Vec::new();
        for term in telling.filter_map(|word| self.vocabulary.term(word)) {
            let postings = self.postings.of(term).iter();
            let fitting = postings.filter(|posting| posting.is_in(ToolField::Name) || posting.is_in(ToolField::Output));
            found.extend(fitting.map(|posting| ToolIndex(posting.tool)));
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

fn required_handles(schema: &Value) -> impl Iterator<Item = &String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    required
        .filter_map(move |name| properties?.get_key_value(name))
        .filter(|(name, schema)| {
            let is_chosen = ["const", "default", "enum"].iter().any(|keyword| schema.get(*keyword).is_some());
            let is_plain =
                matches!(schema.get("type").and_then(Value::as_str), None | Some("string" | "integer" | "number"));
            let words = words_of(name);
            let is_handle = words.last().is_some_and(|last| HANDLES.contains(&last.as_str())) && words.len() > 1;
            let is_place = words.last().is_some_and(|last| PLACES.contains(&last.as_str()));
            !is_chosen && is_plain && (is_handle || is_place)
        })
        .map(|(name, _)| name)
}

/// How well a tool makes the input: the more, the better.
fn fit(tool: &Tool, input: &[String]) -> Option<i32> {
    if requires(tool, input) || tool.effect() != Effect::Read && !answers(tool, input) {
        return None;
    }
    let name = words_of(&tool.name);
    let in_name = |word: &String| name.iter().any(|other| is_form_of(other, word));
    let subject: Vec<&String> = input.iter().filter(|word| !HANDLES.contains(&word.as_str())).collect();
    let is_place = input.iter().any(|word| PLACES.contains(&word.as_str()));
    let others = name.iter().filter(|word| !input.iter().any(|asked| is_form_of(word, asked))).count();
    let distance = i32::try_from(others).unwrap_or(i32::MAX);
    let finds = name.first().is_some_and(|first| FINDERS.contains(&first.as_str()));
    let is_named = if is_place {
        name.iter().any(|word| GEOCODERS.contains(&word.as_str()))
    } else {
        input.iter().all(in_name) && others <= OTHER_WORDS_MAX
    };
    if answers(tool, input) {
        Some(30 - distance)
    } else if is_named {
        Some(20 - distance)
    } else if !is_place && finds && subject.iter().all(|word| in_name(word)) && others <= 1 {
        Some(10 - distance)
    } else {
        None
    }
}

/// Whether the tool asks for the input itself.
fn requires(tool: &Tool, input: &[String]) -> bool {
    let schema = tool.input_schema.passing();
    let required = schema.get("required").and_then(Value::as_array);
    required.into_iter().flatten().filter_map(Value::as_str).any(|name| words_of(name) == input)
}

/// Whether the tool's answer has the input, as its schema says.
fn answers(tool: &Tool, input: &[String]) -> bool {
    const DEPTH_MAX: u32 = 6;
    fn has(schema: &Value, input: &[String], depth: u32) -> bool {
        let Value::Object(fields) = schema else { return false };
        let named = |properties: &Map<String, Value>| properties.keys().any(|name| words_of(name) == input);
        depth <= DEPTH_MAX
            && (fields.get("properties").and_then(Value::as_object).is_some_and(named)
                || fields.values().any(|inner| has(inner, input, depth + 1)))
    }
    tool.output_schema.as_ref().is_some_and(|schema| has(&schema.passing(), input, 0))
}

fn words_of(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    for_each_word(name, |word, place| {
        if !place.joined {
            words.push(word.to_owned());
        }
    });
    words
}

/// `stations` and `station`.
fn is_form_of(word: &str, other: &str) -> bool {
    let singular = |word: &str| word.strip_suffix('s').unwrap_or(word).to_owned();
    singular(word) == singular(other)
}
