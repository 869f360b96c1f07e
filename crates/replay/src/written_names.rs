//! Tools by the names that models write for them: in any style, under any of the objects that other systems have.

use std::collections::BTreeMap;

use dacapo_catalog::{Catalog, ToolIndex};

/// Objects that hold the tools in other systems. Where no tool has the name, they are `tools`.
pub(crate) const ROOTS: [&str; 6] = ["tools", "codemode", "api", "sdk", "mcp", "servers"];

/// Prefixes of names of tools in other systems.
const PREFIXES: [&str; 2] = ["external_", "mcp_"];

/// What a written name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrittenName {
    Tool(ToolIndex),
    /// A server, by its position among the namespaces.
    Server(u32),
    /// Names of tools begin with it.
    Beginning,
}

/// Names by their words: `createIssue`, `create-issue` and `create.issue` are the same.
#[derive(Debug, Default)]
pub(crate) struct WrittenNames {
    /// `None` if several tools could be meant.
    tools: BTreeMap<String, Option<ToolIndex>>,
    servers: BTreeMap<String, u32>,
}

impl WrittenNames {
    /// `namespaces` are those of the catalog, in the order in which they are numbered.
    pub(crate) fn new(catalog: &Catalog, namespaces: &[String]) -> WrittenNames {
        let mut names = WrittenNames::default();
        let (mut whole, mut bare) = (Vec::new(), Vec::new());
        for function in catalog.functions() {
            let tool = &catalog.tools()[function.tool.0 as usize];
            let own = words(&tool.name);
            if let (Some(server), Some(namespace)) = (&tool.server, &function.namespace) {
                whole.push((words(server) + &own, function.tool));
                bare.push((own, function.tool));
                if let Ok(number) = namespaces.binary_search(namespace) {
                    names.servers.insert(words(server), number as u32);
                }
            } else {
                bare.extend(own.strip_prefix("mcp_").map(|rest| (rest.to_owned(), function.tool)));
                whole.push((own, function.tool));
            }
        }
        // A tool's whole name goes before a part of another's.
        names.claim(whole);
        let taken = std::mem::take(&mut names.tools);
        names.claim(bare);
        names.tools.extend(taken);
        names
    }

    fn claim(&mut self, names: Vec<(String, ToolIndex)>) {
        for (name, tool) in names {
            self.tools.entry(name).and_modify(|claimed| *claimed = None).or_insert(Some(tool));
        }
    }

    /// What a name with dots means: a tool's own name first, then the same words in another style.
    pub(crate) fn meaning(&self, catalog: &Catalog, path: &str) -> Option<WrittenName> {
        if let Some(tool) = catalog.find_written(path) {
            return Some(WrittenName::Tool(tool));
        }
        let mut name = words(path);
        loop {
            if let Some(meaning) = self.of_words(&name) {
                return Some(meaning);
            }
            // `mcp.github.create_issue`, `external_web_search`
            let roots = ROOTS.iter().map(|root| words(root)).chain(PREFIXES.map(str::to_owned));
            let rest = roots.into_iter().find_map(|root| name.strip_prefix(&root).map(str::to_owned));
            name = rest.filter(|rest| !rest.is_empty())?;
        }
    }

    fn of_words(&self, name: &str) -> Option<WrittenName> {
        if let Some(tool) = self.tools.get(name) {
            return tool.map(WrittenName::Tool);
        }
        if let Some(number) = self.servers.get(name) {
            return Some(WrittenName::Server(*number));
        }
        let begins = |found: Option<&str>| found.is_some_and(|found| found.starts_with(name));
        let next_tool = self.tools.range(name.to_owned()..).next().map(|(found, _)| found.as_str());
        (!name.is_empty() && begins(next_tool)).then_some(WrittenName::Beginning)
    }
}

/// The words of a name in lower case, each with a `_` behind it.
fn words(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    let mut letters = name.chars().peekable();
    let mut before: Option<char> = None;
    while let Some(letter) = letters.next() {
        let next_is_lower = letters.peek().is_some_and(|next| next.is_lowercase());
        let starts_word = before.is_some_and(|before| {
            letter.is_uppercase()
                && (before.is_lowercase() || before.is_numeric() || before.is_uppercase() && next_is_lower)
        });
        if (starts_word || !letter.is_alphanumeric()) && !words.is_empty() && !words.ends_with('_') {
            words.push('_');
        }
        if letter.is_alphanumeric() {
            words.extend(letter.to_lowercase());
        }
        before = Some(letter);
    }
    if !words.is_empty() && !words.ends_with('_') {
        words.push('_');
    }
    words
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn styles_of_a_name_have_the_same_words() {
        for name in [
            "create_issue",
            "createIssue",
            "create-issue",
            "create.issue",
            "CreateIssue",
            "CREATE_ISSUE",
            "__create__issue",
        ] {
            assert_eq!(words(name), "create_issue_", "{name}");
        }
        assert_eq!(words("getHTTPStatus2Code"), "get_http_status2_code_");
        assert_eq!(words("größe"), "größe_");
        assert_eq!(words("--"), "");
    }
}
