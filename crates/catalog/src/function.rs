//! Tools as functions: how a program may write their names.

use std::collections::{BTreeMap, BTreeSet};

use crate::Tool;
use crate::catalog::ToolIndex;
use crate::identifier::{NamePosition, camel_case, is_free, sanitised};

/// The function that a program calls to call a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// The tool that it calls.
    pub tool: ToolIndex,
    /// The object the function is a property of; `None` for a global function.
    pub namespace: Option<String>,
    /// Its name: the tool's own, or the nearest valid identifier.
    pub identifier: String,
    /// Further names of the same function in the same namespace, such as the camelCase form.
    pub aliases: Vec<String>,
    /// The tool's own name, which need not be an identifier.
    pub exact_name: String,
}

impl Function {
    /// What a program writes to reach the function: `webSearch`, or `github.create_issue`.
    ///
    /// ```
    /// use dacapo_catalog::{Catalog, read_tools};
    /// let tools = serde_json::json!([{"name": "create-issue", "server": "github"}]);
    /// let catalog = Catalog::new(read_tools(&tools).unwrap());
    /// let function = &catalog.functions()[0];
    /// assert_eq!((function.expression().as_str(), function.exact_name.as_str()), ("github.create_issue", "create-issue"));
    /// ```
    pub fn expression(&self) -> String {
        qualified(self.namespace.as_deref(), &self.identifier)
    }

    pub(crate) fn answers_to(&self, written: &str) -> bool {
        let name = match &self.namespace {
            Some(namespace) => written.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('.')),
            None => Some(written),
        };
        name.is_some_and(|name| {
            name == self.identifier || name == self.exact_name || self.aliases.iter().any(|alias| name == alias)
        })
    }
}

/// One function per tool, in the order of the tools.
///
/// A name that is valid as it stands is kept whatever else is in the list; the others are made
/// valid and numbered in the order of their exact names; camelCase forms take what is left.
pub(crate) fn functions_of(tools: &[Tool]) -> Vec<Function> {
    let mut members: BTreeMap<Option<&str>, Vec<NamedTool>> = BTreeMap::new();
    for (index, tool) in tools.iter().enumerate() {
        let siblings = members.entry(tool.server.as_deref()).or_default();
        siblings.push(NamedTool { name: &tool.name, index });
    }
    let servers: Vec<&str> = members.keys().copied().flatten().collect();
    let globals = members.remove(&None).unwrap_or_default();

    let mut functions: Vec<Option<Function>> = tools.iter().map(|_| None).collect();
    let mut scope = Scope::new(NamePosition::Global);
    let names = globals.iter().map(|member| member.name).chain(servers.iter().copied());
    let identifiers = scope.identifiers(&names.collect::<Vec<_>>());
    let (of_tools, of_servers) = identifiers.split_at(globals.len());
    scope.place(&globals, of_tools, None, &mut functions);

    for (server, namespace) in servers.iter().zip(of_servers) {
        let siblings = members.remove(&Some(*server)).unwrap_or_default();
        let mut scope = Scope::new(NamePosition::Property);
        let names: Vec<&str> = siblings.iter().map(|member| member.name).collect();
        let identifiers = scope.identifiers(&names);
        scope.place(&siblings, &identifiers, Some(namespace), &mut functions);
    }
    functions.into_iter().flatten().collect()
}

/// The names under which journals and calls know the tools: `name`, or `server.name`.
///
/// A client's tool may itself be called `server.name`; then the server's tool is numbered.
pub(crate) fn qualified_names(tools: &[Tool]) -> Vec<String> {
    let mut order: Vec<usize> = (0..tools.len()).collect();
    order.sort_by_key(|&index| (&tools[index].server, &tools[index].name));
    let mut numbered = Numbered::default();
    let mut names: Vec<String> = tools.iter().map(|tool| qualified(tool.server.as_deref(), &tool.name)).collect();
    // Numbers come last, so that they take no other tool's name.
    order.retain(|&index| !numbered.taken.insert(names[index].clone()));
    for index in order {
        names[index] = numbered.claim(std::mem::take(&mut names[index]));
    }
    names
}

fn qualified(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{namespace}.{name}"),
        None => name.to_owned(),
    }
}

struct NamedTool<'a> {
    name: &'a str,
    index: usize,
}

/// The names in use in one place: the globals, or one namespace.
struct Scope {
    position: NamePosition,
    numbered: Numbered,
}

impl Scope {
    fn new(position: NamePosition) -> Scope {
        Scope { position, numbered: Numbered::default() }
    }

    /// One distinct identifier per name. Where tools and servers meet, tools stand first in `names`.
    fn identifiers(&mut self, names: &[&str]) -> Vec<String> {
        let mut identifiers = vec![String::new(); names.len()];
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by_key(|&index| names[index]);
        let (free, others): (Vec<usize>, Vec<usize>) =
            order.into_iter().partition(|&index| is_free(names[index], self.position));
        for index in free {
            identifiers[index] = self.numbered.claim(names[index].to_owned());
        }
        for index in others {
            identifiers[index] = self.numbered.claim(sanitised(names[index], self.position));
        }
        identifiers
    }

    fn place(
        &self,
        members: &[NamedTool],
        identifiers: &[String],
        namespace: Option<&String>,
        functions: &mut [Option<Function>],
    ) {
        let mut aliases = self.aliases(members, identifiers);
        for (member, identifier) in members.iter().zip(identifiers) {
            functions[member.index] = Some(Function {
                tool: ToolIndex(member.index as u32),
                namespace: namespace.cloned(),
                identifier: identifier.clone(),
                aliases: aliases.remove(&member.index).into_iter().collect(),
                exact_name: member.name.to_owned(),
            });
        }
    }

    /// The camelCase forms that mean one tool only. Between a tool that kept its name and one that
    /// did not, the form belongs to the first; between equals nobody gets it, because a program
    /// that meant the other would act on the wrong tool.
    fn aliases(&self, members: &[NamedTool], identifiers: &[String]) -> BTreeMap<usize, String> {
        let mut claims: BTreeMap<String, Vec<(bool, usize)>> = BTreeMap::new();
        for (member, identifier) in members.iter().zip(identifiers) {
            let Some(alias) = camel_case(member.name) else {
                continue;
            };
            if is_free(&alias, self.position) && !self.numbered.taken.contains(&alias) {
                let renamed = member.name != identifier;
                claims.entry(alias).or_default().push((renamed, member.index));
            }
        }
        let mut aliases = BTreeMap::new();
        for (alias, mut claimants) in claims {
            claimants.sort_unstable();
            let contested = claimants.len() > 1 && claimants[0].0 == claimants[1].0;
            if !contested {
                aliases.insert(claimants[0].1, alias);
            }
        }
        aliases
    }
}

/// Distinct names: the second `a` becomes `a_2`.
#[derive(Default)]
struct Numbered {
    taken: BTreeSet<String>,
    /// Where to go on counting, so that many equal names do not start from two each time.
    counts: BTreeMap<String, u32>,
}

impl Numbered {
    fn claim(&mut self, wanted: String) -> String {
        if self.taken.insert(wanted.clone()) {
            return wanted;
        }
        let count = self.counts.entry(wanted.clone()).or_insert(1);
        loop {
            *count += 1;
            let name = format!("{wanted}_{count}");
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}
