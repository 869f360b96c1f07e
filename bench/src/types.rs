//! Schemas as TypeScript: dacapo beside the npm packages in `bench/peers`, on the same schemas in one run.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{fs, io};

use anyhow::{Context, ensure};
use dacapo_catalog::{Catalog, Tool, read_tools};
use serde::Deserialize;
use serde_json::{Value, json};

/// Of these all that are there.
const TOOL_LISTS: [&str; 2] = ["../shared/data/tool-lists", "crates/catalog/tests/corpus/tool-lists"];
/// The first that is there.
const CORPORA: [&str; 2] =
    ["../shared/data/schemas/corpus.jsonl", "crates/catalog/tests/corpus/schemas/generated.jsonl"];
const PASSES: usize = 200;
/// What every generator calls the type.
const NAME: &str = "Root";

/// What one generator made of all schemas.
#[derive(Debug, Deserialize)]
struct Written {
    name: String,
    /// What loading the generator takes before it can write anything.
    load_ms: f64,
    /// The first pass, with nothing warm.
    first_ms: f64,
    /// The best of the later passes.
    best_ms: f64,
    /// By schema; nothing where it failed.
    texts: Vec<Option<String>>,
}

/// What the peers made of all schemas and tool lists.
#[derive(Debug, Deserialize)]
struct PeerTexts {
    written: Vec<Written>,
    /// By tool list.
    declarations: BTreeMap<String, PeerDeclarations>,
}

#[derive(Debug, Deserialize)]
struct PeerDeclarations {
    /// codemode's declarations of all tools.
    codemode: String,
    /// The types that json-schema-to-typescript makes of the schemas of all tools.
    types: String,
}

pub(crate) fn run() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let corpus =
        CORPORA.iter().find(|path| root.join(path).exists()).context("there are no schemas to measure with")?;
    let schemas = schemas(&fs::read_to_string(root.join(corpus))?)?;
    if let Some(missing) = ["node", "npm"].into_iter().find(|program| !starts(program)) {
        println!("skipped: {missing} is missing; install Node.js 20.6 or newer from https://nodejs.org");
        return Ok(());
    }
    let peers = install_peers(&root)?;
    let (ours, warned) = ours(&schemas);
    let lists = tool_lists(&root)?;
    let PeerTexts { written: theirs, declarations } = theirs(&peers, &schemas, &lists)?;
    let mut written = vec![ours];
    written.extend(theirs);
    for Written { name, texts, .. } in &written {
        ensure!(texts.len() == schemas.len(), "{name} wrote {} of {} types", texts.len(), schemas.len());
    }
    print(corpus, &written);
    println!("\ndacapo never fails; it warned about {warned} schemas");
    print_declarations(lists, &declarations);
    Ok(())
}

/// The tools of each list, by its name.
fn tool_lists(root: &Path) -> anyhow::Result<BTreeMap<String, Vec<Tool>>> {
    let mut lists = BTreeMap::new();
    for directory in TOOL_LISTS.iter().map(|path| root.join(path)).filter(|path| path.exists()) {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            lists.insert(name, read_tools(&serde_json::from_slice(&fs::read(&path)?)?)?);
        }
    }
    Ok(lists)
}

fn print_declarations(lists: BTreeMap<String, Vec<Tool>>, peers: &BTreeMap<String, PeerDeclarations>) {
    println!("\no200k tokens of the declarations of whole tool lists; fewest to reach\n");
    let columns = ["dacapo", "codemode", "json-schema-to-typescript, types alone"];
    println!("{:24} {:>6} {:>10} {:>10} {:>40}", "", "tools", columns[0], columns[1], columns[2]);
    let mut sums = [0; 3];
    for (name, tools) in lists {
        let Some(peer) = peers.get(&name) else { continue };
        let count = tools.len();
        let ours = tokens(Catalog::new(tools).declarations().text());
        let row = [ours, tokens(peer.codemode.trim()), tokens(peer.types.trim())];
        println!("{name:24} {count:>6} {:>10} {:>10} {:>40}", row[0], row[1], row[2]);
        sums.iter_mut().zip(row).for_each(|(sum, tokens)| *sum += tokens);
    }
    println!("{:24} {:>6} {:>10} {:>10} {:>40}", "all", "", sums[0], sums[1], sums[2]);
}

fn schemas(corpus: &str) -> anyhow::Result<Vec<Value>> {
    let schema = |line| -> anyhow::Result<Value> {
        let mut schema = serde_json::from_str::<Value>(line)?["schema"].take();
        if let Some(schema) = schema.as_object_mut() {
            // json-schema-to-typescript would name the type after them.
            schema.shift_remove("title");
            schema.shift_remove("$id");
        }
        Ok(schema)
    };
    corpus.lines().map(schema).collect()
}

fn ours(schemas: &[Value]) -> (Written, usize) {
    let pass = || {
        let start = Instant::now();
        for schema in schemas {
            black_box(dacapo_catalog::type_of(black_box(schema), NAME));
        }
        start.elapsed().as_secs_f64() * 1e3
    };
    let first_ms = pass();
    let best_ms = (0..PASSES).map(|_| pass()).fold(f64::INFINITY, f64::min);
    let types: Vec<_> = schemas.iter().map(|schema| dacapo_catalog::type_of(schema, NAME)).collect();
    let warned = types.iter().filter(|ty| !ty.warnings.is_empty()).count();
    let texts = types.into_iter().map(|ty| Some(ty.text)).collect();
    (Written { name: "dacapo".to_owned(), load_ms: 0.0, first_ms, best_ms, texts }, warned)
}

fn starts(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Where the peers are, in their pinned versions.
fn install_peers(root: &Path) -> anyhow::Result<PathBuf> {
    let pinned = root.join("bench/peers");
    let installed = root.join("target/bench-peers");
    fs::create_dir_all(&installed)?;
    // Node.js looks for packages beside the script.
    for file in ["package.json", "package-lock.json", "types.mjs"] {
        fs::copy(pinned.join(file), installed.join(file))?;
    }
    let lock = fs::read(pinned.join("package-lock.json"))?;
    let done = installed.join("installed-lock.json");
    if fs::read(&done).is_ok_and(|installed| installed == lock) {
        return Ok(installed);
    }
    let flags = ["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"];
    let status = Command::new("npm").args(flags).current_dir(&installed).stdout(io::stderr()).status()?;
    ensure!(status.success(), "npm could not install bench/peers/package-lock.json: {status}");
    // Written last: an installation that was interrupted is done again.
    fs::write(done, lock)?;
    Ok(installed)
}

fn theirs(peers: &Path, schemas: &[Value], lists: &BTreeMap<String, Vec<Tool>>) -> anyhow::Result<PeerTexts> {
    let lines: Vec<String> = schemas.iter().map(Value::to_string).collect();
    fs::write(peers.join("schemas.jsonl"), lines.join("\n"))?;
    let entry = |tool: &Tool| {
        let mut entry = json!({"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema});
        if let Some(schema) = &tool.output_schema {
            entry["outputSchema"] = json!(schema);
        }
        entry
    };
    let lists: BTreeMap<&String, Vec<Value>> =
        lists.iter().map(|(name, tools)| (name, tools.iter().map(entry).collect())).collect();
    fs::write(peers.join("lists.json"), serde_json::to_string(&lists)?)?;
    let mut command = Command::new("node");
    // VERBOSE makes json-schema-to-typescript talk.
    command.arg("types.mjs").current_dir(peers).env_remove("VERBOSE").stderr(Stdio::inherit());
    let output = command.output()?;
    ensure!(output.status.success(), "bench/peers/types.mjs failed: {}", output.status);
    serde_json::from_slice(&output.stdout).context("bench/peers/types.mjs prints no results")
}

fn print(corpus: &str, written: &[Written]) {
    let schemas = written[0].texts.len();
    println!("{schemas} schemas of {corpus} as TypeScript; in brackets: times what dacapo takes\n");
    print!("{:30}", "");
    for Written { name, .. } in written {
        print!(" {name:>34}");
    }
    println!(" {:>10}", "to reach");

    row("best pass, ms", "≥ 20", written, 2, |written| written.best_ms);
    row("load and first pass, ms", "", written, 2, |written| written.load_ms + written.first_ms);
    row("first pass, ms", "", written, 2, |written| written.first_ms);
    row("µs per schema, best", "", written, 2, |written| written.best_ms * 1e3 / f64::from(schemas as u32));
    // Whoever fails must not look terse.
    let common: Vec<usize> = (0..schemas).filter(|&i| written.iter().all(|w| w.texts[i].is_some())).collect();
    let sum = |written: &Written, size: fn(&str) -> usize| {
        let texts = common.iter().filter_map(|&i| written.texts[i].as_deref());
        f64::from(texts.map(|text| size(text.trim())).sum::<usize>() as u32)
    };
    row("o200k tokens", "> 1", written, 0, |written| sum(written, tokens));
    row("o200k tokens without comments", "> 1", written, 0, |written| {
        sum(written, |text| tokens(&without_comments(text)))
    });
    row("bytes", "", written, 0, |written| sum(written, str::len));
    print!("{:30}", "failures");
    for Written { texts, .. } in written {
        print!(" {:>24}{:10}", texts.iter().filter(|text| text.is_none()).count(), "");
    }
    println!();
}

fn row(name: &str, target: &str, written: &[Written], decimals: usize, value: impl Fn(&Written) -> f64) {
    print!("{name:30}");
    let ours = value(&written[0]);
    for (index, written) in written.iter().enumerate() {
        let value = value(written);
        let ratio = if index == 0 { String::new() } else { format!("({:.2})", value / ours) };
        print!(" {value:>24.decimals$} {ratio:>9}");
    }
    println!(" {target:>10}");
}

/// The types alone: descriptions and constraints are told by some and dropped by others.
fn without_comments(text: &str) -> String {
    let parts = text.split("/*").enumerate();
    let code =
        parts.map(|(index, part)| if index == 0 { part } else { part.split_once("*/").map_or("", |(_, code)| code) });
    code.flat_map(str::lines).map(str::trim_end).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

fn tokens(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton().encode_ordinary(text).len()
}
