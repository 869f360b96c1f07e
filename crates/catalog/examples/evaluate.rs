//! Measures search: `cargo run --release --example evaluate` prints how often the right tools are among
//! the first hits on the development sets, and how long indexing and searching take. The sets are the one of this
//! repository, and those of `../shared/data` where they are present.

#![expect(clippy::print_stdout, reason = "a report is what this is for")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dacapo_catalog::{SearchIndex, Tool, read_tools};
use serde_json::Value;

/// Name and directory, from the crate.
const SETS: [(&str, &str); 3] = [
    ("corpus", "tests/corpus/search"),
    ("bfcl-live", "../../../shared/data/search/bfcl-live"),
    ("metatool", "../../../shared/data/search/metatool"),
];

fn main() {
    println!("{:<18} {:<5} {:>7} {:>6} {:>6} {:>6} {:>8}", "set", "half", "queries", "R@1", "R@5", "R@10", "nDCG@10");
    let sets = SETS.map(|(name, path)| (name, Path::new(env!("CARGO_MANIFEST_DIR")).join(path)));
    let sets: Vec<(&str, PathBuf)> = sets.into_iter().filter(|(_, directory)| directory.exists()).collect();
    for (set, directory) in &sets {
        let tools = tools(directory);
        let index = SearchIndex::new(&tools);
        let questions = questions(directory);
        print_rows(set, &index, &tools, &questions);
        print_rows(&format!("{set}, joined"), &index, &tools, &joined(&questions));
    }
    println!();
    for count in [2_000, 10_000] {
        print_timing(count, &sets);
    }
}

/// A query, and the groups of tools it needs; one of each group is enough.
struct SearchQuestion {
    query: String,
    groups: Vec<Vec<String>>,
}

fn json_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn tools(set: &Path) -> Vec<Tool> {
    read_tools(&Value::Array(json_lines(&set.join("catalog.jsonl")))).expect("the catalogue is a tool list")
}

fn questions(set: &Path) -> Vec<SearchQuestion> {
    let names = |value: &Value| -> Vec<String> {
        let names = value.as_array().expect("gold is an array").iter();
        names.map(|name| name.as_str().expect("a tool is named by a string").to_owned()).collect()
    };
    let question = |line: &Value| SearchQuestion {
        query: line["query"].as_str().expect("a query is a string").to_owned(),
        groups: match line["gold_groups"].as_array() {
            Some(groups) => groups.iter().map(names).collect(),
            None => names(&line["gold"]).into_iter().map(|name| vec![name]).collect(),
        },
    };
    json_lines(&set.join("queries.jsonl")).iter().map(question).collect()
}

/// Whole tasks, made of two or three queries each.
fn joined(questions: &[SearchQuestion]) -> Vec<SearchQuestion> {
    const LINKS: [&str; 4] = [". ", ", then ", "\n", "; "];
    let count = questions.len();
    let task = |number: usize| {
        let parts = [number, (number + count / 3) % count, (number + 2 * count / 3) % count];
        let parts = &parts[..2 + number % 2];
        let queries = parts.iter().map(|part| questions[*part].query.trim().trim_end_matches(['.', '?', '!']));
        SearchQuestion {
            query: queries.collect::<Vec<_>>().join(LINKS[number % LINKS.len()]),
            groups: parts.iter().flat_map(|part| questions[*part].groups.clone()).collect(),
        }
    };
    (0..count).step_by(3).map(task).collect()
}

fn print_rows(set: &str, index: &SearchIndex, tools: &[Tool], questions: &[SearchQuestion]) {
    let figures: Vec<[f64; 4]> = questions.iter().map(|question| figures(index, tools, question)).collect();
    for (half, name) in ["all", "even", "odd"].into_iter().enumerate() {
        let rows = figures.iter().enumerate().filter(|(number, _)| half == 0 || number % 2 == half - 1);
        let rows: Vec<&[f64; 4]> = rows.map(|(_, figures)| figures).collect();
        let mean = |column: usize| 100.0 * rows.iter().map(|row| row[column]).sum::<f64>() / ratio(rows.len());
        let [one, five, ten, gain] = [0, 1, 2, 3].map(mean);
        println!("{set:<18} {name:<5} {:>7} {one:>6.1} {five:>6.1} {ten:>6.1} {gain:>8.1}", rows.len());
    }
}

/// Recall at one, five and ten, and the gain that falls off with the rank.
fn figures(index: &SearchIndex, tools: &[Tool], question: &SearchQuestion) -> [f64; 4] {
    let hits = index.search(&question.query, 10).hits;
    let names: Vec<&String> = hits.iter().map(|hit| &tools[hit.tool.0 as usize].name).collect();
    let rank = |group: &Vec<String>| names.iter().position(|name| group.contains(name));
    let ranks: Vec<usize> = question.groups.iter().filter_map(rank).collect();
    let groups = question.groups.len();
    let recall = |limit: usize| ratio(ranks.iter().filter(|rank| **rank < limit).count()) / ratio(groups);
    let gain = |rank: usize| 1.0 / ratio(rank + 2).log2();
    let ideal: f64 = (0..groups).map(gain).sum();
    [recall(1), recall(5), recall(10), ranks.iter().map(|rank| gain(*rank)).sum::<f64>() / ideal]
}

fn print_timing(count: usize, sets: &[(&str, PathBuf)]) {
    let sources: Vec<Tool> = sets.iter().flat_map(|(_, set)| tools(set)).collect();
    let renamed = |number: usize| {
        let source = &sources[number % sources.len()];
        Tool { server: Some(format!("server{}", number / sources.len())), ..source.clone() }
    };
    let tools: Vec<Tool> = (0..count).map(renamed).collect();
    let mut builds: Vec<Duration> = (0..9).map(|_| timed(|| SearchIndex::new(&tools))).collect();
    builds.sort_unstable();

    let index = SearchIndex::new(&tools);
    let questions = sets.iter().flat_map(|(_, set)| questions(set));
    let mut searches: Vec<Duration> = questions.map(|question| timed(|| index.search(&question.query, 10))).collect();
    searches.sort_unstable();
    println!(
        "{count:>6} tools: index {:.1} ms; query p50 {:.3} ms, p99 {:.3} ms",
        millis(builds[builds.len() / 2]),
        millis(searches[searches.len() / 2]),
        millis(searches[searches.len() * 99 / 100]),
    );
}

#[expect(clippy::disallowed_methods, reason = "the catalog reads no clock, but its measurement does")]
fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    std::hint::black_box(work());
    start.elapsed()
}

fn millis(duration: Duration) -> f64 {
    1_000.0 * duration.as_secs_f64()
}

fn ratio(count: usize) -> f64 {
    f64::from(u32::try_from(count).expect("there are few queries"))
}
