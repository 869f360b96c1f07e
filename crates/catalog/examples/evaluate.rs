//! Measures search: `cargo run --release -p dacapo-catalog --example evaluate` prints how often the right tools are among
//! the first hits, with confidence intervals, for one half of the tools and for the other, for whole tasks as one text and
//! as a list of steps; what each part of searching is worth; and how long indexing and searching take. The sets are the
//! one of this repository, those of `../shared/data` where they are present, and the directories that are named as arguments.

#![expect(clippy::print_stdout, reason = "a report is what this is for")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dacapo_catalog::{Likeness, SearchIndex, SearchPart, SearchText, Tool, read_tools};
use serde_json::Value;

/// Name and directory, from the crate.
const SETS: [(&str, &str); 3] = [
    ("corpus", "tests/corpus/search"),
    ("bfcl-live", "../../../shared/data/search/bfcl-live"),
    ("metatool", "../../../shared/data/search/metatool"),
];
const PARTS: [(&str, &[SearchPart]); 9] = [
    ("synonyms", &[SearchPart::Alike(Likeness::Synonym)]),
    ("related words", &[SearchPart::Alike(Likeness::Related)]),
    ("similar actions", &[SearchPart::Alike(Likeness::Action)]),
    ("translations", &[SearchPart::Alike(Likeness::Translation)]),
    ("parts of words", &[SearchPart::Alike(Likeness::Part)]),
    ("typos", &[SearchPart::Alike(Likeness::Typo)]),
    ("data in queries", &[SearchPart::Data]),
    ("several needs", &[SearchPart::Needs]),
    (
        "all tables",
        &[
            SearchPart::Alike(Likeness::Synonym),
            SearchPart::Alike(Likeness::Related),
            SearchPart::Alike(Likeness::Action),
            SearchPart::Alike(Likeness::Translation),
        ],
    ),
];

fn main() {
    let known = SETS.map(|(name, path)| (name.to_owned(), Path::new(env!("CARGO_MANIFEST_DIR")).join(path)));
    let named = std::env::args().skip(1).map(PathBuf::from).map(|directory| {
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name, directory)
    });
    let sets: Vec<EvaluationSet> = known
        .into_iter()
        .filter(|(_, directory)| directory.exists())
        .chain(named)
        .map(|(name, directory)| EvaluationSet::read(name, &directory))
        .collect();
    println!(
        "Recall in percent, ± half of a 95 % confidence interval. A tool belongs to the development half or to the half"
    );
    println!("that is held out by its name, and a query to the half of its first tool.\n");
    println!(
        "{:<26} {:<12} {:>7} {:>12} {:>12} {:>12} {:>8}",
        "set", "tools", "queries", "R@1", "R@5", "R@10", "nDCG@10"
    );
    for set in &sets {
        set.print_rows("", &set.questions);
        let joined = joined(&set.questions);
        set.print_rows(", tasks as text", &joined);
        let steps: Vec<SearchQuestion> = joined.into_iter().map(SearchQuestion::in_steps).collect();
        set.print_rows(", tasks as lists", &steps);
    }
    println!(
        "\nWhat each part is worth: R@1 and R@5 with it, less those without it, ± half of a 95 % confidence interval\n"
    );
    print!("{:<14} {:<16}", "set", "part");
    for half in ToolHalf::ALL {
        print!(" {:>24}", format!("{}: R@1, R@5", half.name()));
    }
    println!();
    for set in &sets {
        for (name, parts) in PARTS {
            set.print_worth(name, parts);
        }
    }
    println!();
    for count in [2_000, 10_000, 50_000] {
        print_timing(count, &sets);
    }
}

struct EvaluationSet {
    name: String,
    tools: Vec<Tool>,
    index: SearchIndex,
    questions: Vec<SearchQuestion>,
}

/// A query, and the groups of tools it needs; one of each group is enough.
#[derive(Clone)]
struct SearchQuestion {
    text: SearchText,
    /// What `text` is made of.
    steps: Vec<String>,
    groups: Vec<Vec<String>>,
}

/// Which tools a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolHalf {
    Both,
    Development,
    HeldOut,
}

impl ToolHalf {
    const ALL: [ToolHalf; 3] = [ToolHalf::Both, ToolHalf::Development, ToolHalf::HeldOut];

    fn name(self) -> &'static str {
        match self {
            ToolHalf::Both => "all",
            ToolHalf::Development => "development",
            ToolHalf::HeldOut => "held out",
        }
    }

    fn has(self, question: &SearchQuestion) -> bool {
        self == ToolHalf::Both || self == question.half()
    }
}

impl SearchQuestion {
    fn in_steps(self) -> SearchQuestion {
        let text = SearchText::new(None, self.steps.clone()).expect("there are few steps");
        SearchQuestion { text, ..self }
    }

    fn half(&self) -> ToolHalf {
        let name = self.groups.first().and_then(|group| group.first()).map_or("", String::as_str);
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        if hash >> 63 == 0 { ToolHalf::Development } else { ToolHalf::HeldOut }
    }
}

impl EvaluationSet {
    fn read(name: String, directory: &Path) -> EvaluationSet {
        let lines = json_lines(&directory.join("catalog.jsonl"));
        let tools = read_tools(&Value::Array(lines)).expect("the catalogue is a tool list");
        EvaluationSet { name, index: SearchIndex::new(&tools), tools, questions: questions(directory) }
    }

    fn print_rows(&self, kind: &str, questions: &[SearchQuestion]) {
        for half in ToolHalf::ALL {
            let of_half = questions.iter().filter(|question| half.has(question));
            let figures: Vec<[f64; 4]> = of_half.map(|question| self.figures(question, &[])).collect();
            let [one, five, ten, gain] = [0, 1, 2, 3].map(|column| Mean::of(&figures, column));
            println!(
                "{:<26} {:<12} {:>7} {:>12} {:>12} {:>12} {:>8.1}",
                format!("{}{kind}", self.name),
                half.name(),
                figures.len(),
                one.to_string(),
                five.to_string(),
                ten.to_string(),
                gain.percent,
            );
        }
    }

    fn print_worth(&self, name: &str, parts: &[SearchPart]) {
        print!("{:<14} {name:<16}", self.name);
        for half in ToolHalf::ALL {
            let of_half = self.questions.iter().filter(|question| half.has(question));
            let gains = of_half.map(|question| {
                let (with, without) = (self.figures(question, &[]), self.figures(question, parts));
                std::array::from_fn(|column| with[column] - without[column])
            });
            let gains: Vec<[f64; 4]> = gains.collect();
            let [one, five] = [0, 1].map(|column| Mean::of(&gains, column));
            print!(" {:>24}", format!("{one:+}, {five:+}"));
        }
        println!();
    }

    /// Recall at one, five and ten, and the gain that falls off with the rank.
    fn figures(&self, question: &SearchQuestion, without: &[SearchPart]) -> [f64; 4] {
        let hits = self.index.search_without(&question.text, 10, without).hits;
        let names: Vec<&String> = hits.iter().map(|hit| &self.tools[hit.tool.0 as usize].name).collect();
        let rank = |group: &Vec<String>| names.iter().position(|name| group.contains(name));
        let ranks: Vec<usize> = question.groups.iter().filter_map(rank).collect();
        let groups = question.groups.len();
        let recall = |limit: usize| ratio(ranks.iter().filter(|rank| **rank < limit).count()) / ratio(groups);
        let gain = |rank: usize| 1.0 / ratio(rank + 2).log2();
        let ideal: f64 = (0..groups).map(gain).sum();
        [recall(1), recall(5), recall(10), ranks.iter().map(|rank| gain(*rank)).sum::<f64>() / ideal]
    }
}

/// An average over queries.
#[derive(Debug, Clone, Copy)]
struct Mean {
    percent: f64,
    half_width: f64,
}

impl Mean {
    fn of(figures: &[[f64; 4]], column: usize) -> Mean {
        let count = ratio(figures.len());
        let mean = figures.iter().map(|row| row[column]).sum::<f64>() / count;
        let variance = figures.iter().map(|row| (row[column] - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Mean { percent: 100.0 * mean, half_width: 100.0 * 1.96 * (variance / count).sqrt() }
    }
}

impl std::fmt::Display for Mean {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Mean { percent, half_width } = self;
        if f.sign_plus() {
            write!(f, "{percent:+.1} ± {half_width:.1}")
        } else {
            write!(f, "{percent:.1} ± {half_width:.1}")
        }
    }
}

fn json_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn questions(set: &Path) -> Vec<SearchQuestion> {
    let names = |value: &Value| -> Vec<String> {
        let names = value.as_array().expect("gold is an array").iter();
        names.map(|name| name.as_str().expect("a tool is named by a string").to_owned()).collect()
    };
    let question = |line: &Value| {
        let query = line["query"].as_str().expect("a query is a string");
        SearchQuestion {
            text: SearchText::from(query),
            steps: vec![query.to_owned()],
            groups: match line["gold_groups"].as_array() {
                Some(groups) => groups.iter().map(names).collect(),
                None => names(&line["gold"]).into_iter().map(|name| vec![name]).collect(),
            },
        }
    };
    json_lines(&set.join("queries.jsonl")).iter().map(question).collect()
}

/// Whole tasks, made of two to four queries each.
fn joined(questions: &[SearchQuestion]) -> Vec<SearchQuestion> {
    const LINKS: [&str; 4] = [". ", ", then ", "\n", "; "];
    let count = questions.len();
    let task = |number: usize| {
        let parts: Vec<usize> = (0..2 + number % 3).map(|part| (number + part * count / 4) % count).collect();
        let steps: Vec<String> = parts.iter().map(|part| questions[*part].steps[0].clone()).collect();
        let texts: Vec<&str> = steps.iter().map(|step| step.trim().trim_end_matches(['.', '?', '!'])).collect();
        SearchQuestion {
            text: SearchText::Query(texts.join(LINKS[number % LINKS.len()])),
            steps,
            groups: parts.iter().flat_map(|part| questions[*part].groups.clone()).collect(),
        }
    };
    (0..count).step_by(3).map(task).collect()
}

fn print_timing(count: usize, sets: &[EvaluationSet]) {
    let sources: Vec<&Tool> = sets.iter().flat_map(|set| &set.tools).collect();
    let renamed = |number: usize| {
        let source = sources[number % sources.len()];
        Tool { server: Some(format!("server{}", number / sources.len())), ..source.clone() }
    };
    let tools: Vec<Tool> = (0..count).map(renamed).collect();
    let before = Memory::now();
    let index = SearchIndex::new(&tools);
    let after = Memory::now();
    let mut builds: Vec<Duration> = (0..5).map(|_| timed(|| SearchIndex::new(&tools))).collect();
    builds.sort_unstable();

    let questions = sets.iter().flat_map(|set| &set.questions);
    let mut searches: Vec<Duration> =
        questions.step_by(5).map(|question| timed(|| index.search(&question.text, 10))).collect();
    searches.sort_unstable();
    println!(
        "{count:>6} tools: index {:.1} ms, {} MiB, {} while it is built; query p50 {:.3} ms, p99 {:.3} ms",
        millis(builds[builds.len() / 2]),
        after.held_mib.saturating_sub(before.held_mib),
        after.peak_mib.saturating_sub(before.held_mib),
        millis(searches[searches.len() / 2]),
        millis(searches[searches.len() * 99 / 100]),
    );
}

/// Memory of this process; nothing where Linux does not tell.
#[derive(Debug, Default)]
struct Memory {
    held_mib: u64,
    /// The most since the last question.
    peak_mib: u64,
}

impl Memory {
    fn now() -> Memory {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib / 1024)
        };
        let memory =
            Memory { held_mib: mib("VmRSS:").unwrap_or_default(), peak_mib: mib("VmHWM:").unwrap_or_default() };
        // Where it cannot be reset, the peak is that of the whole run.
        std::fs::write("/proc/self/clear_refs", "5").unwrap_or_default();
        memory
    }
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
