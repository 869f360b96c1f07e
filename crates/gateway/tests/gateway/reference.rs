//! The pages that list settings and metrics, and the code that they are about.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use dacapo_gateway::{Environment, GatewayOptions};
use toml::{Table, Value};

use crate::common::{Model, RunningGateway, options};

const OPTIONS: &str = include_str!("../../src/options.rs");

/// A struct of settings, as its source declares it.
struct Section {
    about: String,
    settings: Vec<Setting>,
}

struct Setting {
    /// As a file has it.
    key: String,
    meaning: String,
    kind: String,
}

/// Reads the structs of settings with their documentation.
fn sections() -> BTreeMap<String, Section> {
    let mut sections = BTreeMap::new();
    let (mut about, mut rename, mut current) = (Vec::new(), None, None::<(String, Section)>);
    for line in OPTIONS.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            about.push(text);
        } else if let Some(name) = line.strip_prefix("#[serde(rename = \"") {
            rename = name.strip_suffix("\")]");
        } else if line.starts_with("#[") {
        } else if let Some(name) = line.strip_prefix("pub struct ").and_then(|rest| rest.strip_suffix(" {")) {
            let section = Section { about: std::mem::take(&mut about).join(" "), settings: Vec::new() };
            current = Some((name.to_owned(), section));
        } else if let (Some((_, section)), Some((name, kind))) = (&mut current, field(line)) {
            let meaning = std::mem::take(&mut about).join(" ");
            let key = rename.take().unwrap_or(name).to_owned();
            section.settings.push(Setting { key, meaning, kind: kind.to_owned() });
        } else if line == "}" {
            sections.extend(current.take());
            about.clear();
        } else {
            about.clear();
        }
    }
    sections
}

fn field(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("pub ")?.strip_suffix(',')?.split_once(": ")
}

/// Whether an environment variable sets this key.
fn variable(key: &str) -> Option<String> {
    let name = format!("DACAPO_{}", key.replace('.', "_").to_uppercase());
    let environment = Environment::from([(name.as_str(), "1")]);
    let notice = GatewayOptions::load(None, &environment).notice.unwrap_or_default();
    (!notice.contains(&name)).then_some(name)
}

fn table(page: &mut String, prefix: &str, section: &Section, defaults: Option<&Table>) {
    let has_variables = section.settings.iter().any(|setting| variable(&format!("{prefix}{}", setting.key)).is_some());
    page.push_str(if has_variables {
        "| key | default | variable | meaning |\n| --- | --- | --- | --- |\n"
    } else {
        "| key | meaning |\n| --- | --- |\n"
    });
    for Setting { key, meaning, .. } in &section.settings {
        assert!(!meaning.is_empty(), "{prefix}{key} has no documentation in options.rs");
        let default = defaults.and_then(|defaults| defaults.get(key)).filter(|value| !matches!(value, Value::Table(_)));
        let default = default.map_or_else(|| "none".to_owned(), |value| format!("`{value}`"));
        let default = if key == "secret" { "random".to_owned() } else { default };
        let variable = variable(&format!("{prefix}{key}")).map_or_else(|| "–".to_owned(), |name| format!("`{name}`"));
        if has_variables {
            writeln!(page, "| `{key}` | {default} | {variable} | {meaning} |").unwrap();
        } else {
            writeln!(page, "| `{key}` | {meaning} |").unwrap();
        }
    }
}

fn configuration_page() -> String {
    let defaults = GatewayOptions { memory_bytes_max: Some(1), ..GatewayOptions::default() };
    let mut defaults: Table = toml::from_str(&defaults.resolve(&Environment::default()).unwrap().into_toml()).unwrap();
    // It depends on the machine.
    defaults.remove("memory_bytes_max");
    if let Some(warm) = defaults.get_mut("warm").and_then(Value::as_table_mut) {
        warm.remove("bytes_max");
    }
    let sections = sections();
    let (inner, plain): (Vec<_>, Vec<_>) = sections["GatewayOptions"]
        .settings
        .iter()
        .partition(|setting| setting.kind.contains("Options") || setting.key == "limits");
    let mut page = String::from(
        "# Configuration reference\n\nEvery setting of `dacapo.toml`, from the code that reads it. \
         [configuration.md](configuration.md) explains them with an example.\n<!-- Written by `DACAPO_UPDATE=1 cargo test -p \
         dacapo-gateway reference`. -->\n\n",
    );
    let plain: Vec<Setting> = plain
        .into_iter()
        .map(|Setting { key, meaning, kind }| Setting {
            key: key.clone(),
            meaning: meaning.clone(),
            kind: kind.clone(),
        })
        .collect();
    table(&mut page, "", &Section { about: String::new(), settings: plain }, Some(&defaults));
    for Setting { key, kind, meaning } in inner {
        if key == "limits" {
            write!(page, "\n## `[limits]`\n\n{meaning}\n\n| key | default |\n| --- | --- |\n").unwrap();
            for (limit, value) in defaults["limits"].as_table().unwrap() {
                writeln!(page, "| `{limit}` | `{value}` |").unwrap();
            }
            continue;
        }
        let name = kind.trim_start_matches("Vec<").trim_end_matches('>');
        let section = &sections[name];
        let title = if kind.starts_with("Vec<") { format!("[[{key}]]") } else { format!("[{key}]") };
        write!(page, "\n## `{title}`\n\n{}\n\n", section.about).unwrap();
        table(&mut page, &format!("{key}."), section, defaults.get(key).and_then(Value::as_table));
        for inner in &section.settings {
            let nested = inner.kind.trim_start_matches("Option<").trim_start_matches("Vec<").trim_end_matches('>');
            if let Some(section) = sections.get(nested) {
                write!(page, "\n`{key}.{}`: {}\n\n", inner.key, section.about).unwrap();
                table(&mut page, &format!("{key}.{}.", inner.key), section, None);
            }
        }
    }
    page
}

#[test]
fn the_configuration_reference_is_what_the_code_reads() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration-reference.md");
    let page = configuration_page();
    if std::env::var_os("DACAPO_UPDATE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/configuration-reference.md is old; DACAPO_UPDATE=1 writes it again:\n{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_reference_names_what_is_measured() {
    let source = include_str!("../../src/observe/metrics.rs");
    let page = include_str!("../../../../docs/operations.md");
    let measured: BTreeSet<String> =
        source.split('"').filter(|text| text.starts_with("dacapo_")).map(str::to_owned).collect();
    let names = |text: &str| -> BTreeSet<String> {
        let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        let words = text.split(|letter: char| !is_name(letter)).filter(|word| word.starts_with("dacapo_"));
        words.map(str::to_owned).collect()
    };
    assert_eq!(measured, names(page));

    // And what is measured is served.
    let model = Model::start("[[turn]]\ntext = 'hi'").await;
    let gateway = RunningGateway::start(options(&model)).await;
    let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
    let url = gateway.url.replace("/v1", "/metrics");
    let text = client.get(url).send().await.unwrap().text().await.unwrap();
    let served: BTreeSet<String> = names(&text)
        .into_iter()
        .filter(|name| !["_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end)))
        .collect();
    assert!(served.is_subset(&names(page)) && !served.is_empty(), "{served:?}");
}
