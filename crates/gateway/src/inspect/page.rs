//! The inspector page: one HTML document with its style and its scripts, which asks nothing of other hosts.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::explanation::Explanation;

const DOCUMENT: &str = include_str!("page/inspector.html");
const STYLE: &str = include_str!("page/inspector.css");
/// In the order of their imports: they are put together into one script.
const MODULES: [&str; 10] = [
    include_str!("page/elements.js"),
    include_str!("page/format.js"),
    include_str!("page/source_code.js"),
    include_str!("page/gateway.js"),
    include_str!("page/copies.js"),
    include_str!("page/call_list.js"),
    include_str!("page/program_view.js"),
    include_str!("page/histories.js"),
    include_str!("page/live.js"),
    include_str!("page/main.js"),
];

static SCRIPT: LazyLock<String> = LazyLock::new(|| {
    let is_import = |line: &&str| line.starts_with("import ");
    let line = |line: &str| line.strip_prefix("export ").unwrap_or(line).to_owned() + "\n";
    MODULES.iter().flat_map(|module| module.lines()).filter(|text| !is_import(text)).map(line).collect()
});

/// Only what the page itself holds is run, and only its own host is asked.
pub(crate) static CONTENT_SECURITY_POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; base-uri 'none'; form-action 'none'",
        hash(&SCRIPT),
        hash(STYLE)
    )
});

/// The page as the gateway serves it.
pub(crate) static SERVED_PAGE: LazyLock<String> = LazyLock::new(|| page("null"));

/// One self-contained page that shows an explanation.
pub fn inspector_page(explanation: &Explanation) -> serde_json::Result<String> {
    Ok(page(&serde_json::to_string(explanation)?))
}

/// JSON inside of a document must not look like markup.
fn page(json: &str) -> String {
    let data = json.replace('<', "\\u003c");
    DOCUMENT
        .replacen("{{policy}}", &CONTENT_SECURITY_POLICY, 1)
        .replacen("{{style}}", STYLE, 1)
        .replacen("{{script}}", &SCRIPT, 1)
        .replacen("{{data}}", &data, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_are_put_together_in_the_order_of_their_imports() {
        let names = [
            "elements",
            "format",
            "source_code",
            "gateway",
            "copies",
            "call_list",
            "program_view",
            "histories",
            "live",
        ];
        for (at, module) in MODULES.iter().enumerate() {
            for line in module.lines().filter(|line| line.starts_with("import ")) {
                let imported = names.iter().position(|name| line.contains(&format!("\"./{name}.js\"")));
                assert!(imported.is_some_and(|imported| imported < at), "module {at}: {line}");
            }
        }
        assert!(!SCRIPT.lines().any(|line| line.starts_with("import ") || line.starts_with("export ")));
        assert!(!SCRIPT.contains("innerHTML") && !SCRIPT.contains("</script"));
    }

    #[test]
    fn data_cannot_end_the_script_that_holds_it() {
        assert!(!page(r#""</script><script>alert(1)</script>""#).contains("<script>alert"));
    }
}
