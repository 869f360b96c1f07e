//! How often search finds the right tools.

mod support;

use dacapo_catalog::{SearchIndex, read_tools};
use serde_json::Value;
use support::{DataSource, json_lines, text};

/// The share of the wanted tools among the first `limit` hits, over all queries of a set.
fn recall(source: DataSource, set: &str, limit: usize) -> f64 {
    let lines = |file: &str| json_lines(&source.path("search").join(set).join(file));
    let tools = read_tools(&Value::Array(lines("catalog.jsonl"))).expect("the catalogue is a tool list");
    let index = SearchIndex::new(&tools);
    let (mut wanted, mut found) = (0_u32, 0_u32);
    for line in lines("queries.jsonl") {
        let hits = index.search(text(&line["query"]), limit).hits;
        for name in line["gold"].as_array().expect("gold is an array") {
            wanted += 1;
            found += u32::from(hits.iter().any(|hit| tools[hit.tool.0 as usize].name == *name));
        }
    }
    assert!(wanted > 250, "{set}: only {wanted} tools are wanted");
    f64::from(found) / f64::from(wanted)
}

#[track_caller]
fn assert_recall(source: DataSource, set: &str, limit: usize, floor: f64) {
    if DataSource::present().contains(&source) {
        let reached = recall(source, set, limit);
        assert!(reached >= floor, "{source:?} {set}: {reached:.3} at {limit} is below {floor}");
    }
}

#[test]
fn the_first_hit_is_mostly_the_right_tool() {
    assert_recall(DataSource::Corpus, "", 1, 0.44);
    assert_recall(DataSource::Shared, "bfcl-live", 1, 0.675);
    assert_recall(DataSource::Shared, "metatool", 1, 0.505);
}

#[test]
fn the_first_five_hits_hold_almost_always_the_right_tool() {
    assert_recall(DataSource::Corpus, "", 5, 0.71);
    assert_recall(DataSource::Shared, "bfcl-live", 5, 0.91);
    assert_recall(DataSource::Shared, "metatool", 5, 0.72);
}
