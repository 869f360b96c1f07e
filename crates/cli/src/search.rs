//! `dacapo search`: the result that a model gets from the tool `search`.

use std::io::{self, Write};
use std::process::ExitCode;

use dacapo_replay::{ANSWER_TOKENS_DEFAULT, Explanation, SearchResults, SearchText, Toolbox};
use serde_json::{Value, json};

use crate::tools::ToolSources;

const EXAMPLE: &str = r#"Example:
  echo '[{"name": "get_weather", "description": "Forecast for a city"}, {"name": "send_email"}]' > tools.json
  dacapo search "find the weather in Paris" "send it by mail" --tools tools.json

Each query gets its best tools. One query that names several needs is taken apart, as well as its words allow."#;

/// Find tools by what they are for, and print their declarations
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct SearchFlags {
    /// What is needed, in words: one query for each step of a task; an empty one lists all tools by name
    #[arg(value_name = "QUERY", required = true)]
    queries: Vec<String>,

    #[command(flatten)]
    sources: ToolSources,

    /// Tools to find at most, for each query
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,

    /// About how many tokens the answer may take [default: 2000, and 1000 more for each further query]
    #[arg(long, value_name = "N")]
    tokens: Option<usize>,

    /// Show which words matched where, on stderr or in the JSON
    #[arg(long)]
    explain: bool,

    /// Print one line of JSON with the hits, their scores and the answer's text
    #[arg(long)]
    json: bool,
}

pub(crate) fn search(options: &SearchFlags) -> anyhow::Result<ExitCode> {
    let tools = options.sources.read()?;
    let toolbox = Toolbox::new(tools)?;
    let text = SearchText::new(None, options.queries.clone())?;
    let tokens = options.tokens.unwrap_or_else(|| text.tokens(ANSWER_TOKENS_DEFAULT));
    let (results, found) = toolbox.search(&text, text.hits(options.limit), tokens);
    if options.json {
        let report = json!({
            "needs": results.needs,
            "hits": hits(&results, &toolbox, options.explain),
            "more": results.more.iter().map(|tool| toolbox.catalog().qualified_name(*tool)).collect::<Vec<_>>(),
            "total": results.total_matches,
            "suggestions": results.suggestions,
            "text": found.text,
        });
        writeln!(io::stdout(), "{report}")?;
    } else {
        if options.explain {
            explain(&results, &toolbox)?;
        }
        write!(io::stdout(), "{}", found.text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn hits(results: &SearchResults, toolbox: &Toolbox, explained: bool) -> Vec<Value> {
    let hit = |hit: &dacapo_replay::Hit| {
        let mut json =
            json!({ "tool": toolbox.catalog().qualified_name(hit.tool), "need": hit.need, "score": hit.score });
        if explained {
            json["because"] = Value::from(reasons(&hit.explanation));
        }
        json
    };
    results.hits.iter().map(hit).collect()
}

fn explain(results: &SearchResults, toolbox: &Toolbox) -> io::Result<()> {
    let mut err = io::stderr().lock();
    for hit in &results.hits {
        writeln!(err, "{:8.2} {}", hit.score, toolbox.catalog().qualified_name(hit.tool))?;
        for reason in reasons(&hit.explanation) {
            writeln!(err, "         {reason}")?;
        }
    }
    Ok(())
}

fn reasons(explanation: &Explanation) -> Vec<String> {
    let mut reasons: Vec<String> = explanation
        .matches
        .iter()
        .map(|found| {
            let fields: Vec<String> =
                found.fields.iter().map(|(field, score)| format!("{field:?} {score:.2}").to_lowercase()).collect();
            let likeness = format!("{:?}", found.likeness).to_lowercase();
            format!("{} = {} ({likeness}): {}", found.query_word, found.tool_word, fields.join(", "))
        })
        .collect();
    if explanation.name_bonus > 0.0 {
        reasons.push(format!("name fits: {:.2}", explanation.name_bonus));
    }
    reasons
}
