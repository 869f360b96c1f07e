//! How often search finds the right tools, on queries kept beside the repository.

use std::path::{Path, PathBuf};

use dacapo_catalog::{SearchIndex, read_tools};
use serde_json::Value;

/// Where the data is, or nothing where it was not checked out.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn data(set: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/search").join(set);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {} is not here", path.display());
    None
}

fn json_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("the data is readable");
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

/// The share of the wanted tools among the first `limit` hits, over all queries of a set.
fn recall(directory: &Path, limit: usize) -> f64 {
    let catalogue = Value::Array(json_lines(&directory.join("catalog.jsonl")));
    let tools = read_tools(&catalogue).expect("the catalogue is a tool list");
    let index = SearchIndex::new(&tools);
    let (mut wanted, mut found) = (0_u32, 0_u32);
    for line in json_lines(&directory.join("queries.jsonl")) {
        let hits = index.search(line["query"].as_str().expect("a query is a string"), limit).hits;
        for name in line["gold"].as_array().expect("gold is an array") {
            wanted += 1;
            found += u32::from(hits.iter().any(|hit| tools[hit.tool.0 as usize].name == *name));
        }
    }
    f64::from(found) / f64::from(wanted)
}

#[track_caller]
fn assert_recall(set: &str, limit: usize, floor: f64) {
    if let Some(directory) = data(set) {
        let reached = recall(&directory, limit);
        assert!(reached >= floor, "{set}: {reached:.3} at {limit} is below {floor}");
    }
}

#[test]
fn the_first_hit_is_mostly_the_right_tool() {
    assert_recall("bfcl-live", 1, 0.655);
    assert_recall("metatool", 1, 0.495);
}

#[test]
fn the_first_five_hits_hold_almost_always_the_right_tool() {
    assert_recall("bfcl-live", 5, 0.91);
    assert_recall("metatool", 5, 0.72);
}
