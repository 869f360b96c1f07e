//! The names of tools as functions, in the binary form that the guest reads.

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The names of all tools. The guest asks for them when a program uses them: starting a program costs the same with any
/// number of tools. See `name_lists.h` for the binary form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    functions: Vec<ToolFunction>,
    globals: NameList,
    in_tools: NameList,
    namespaces: Vec<NameList>,
    /// How many names were defined.
    defined: u32,
    /// Globals that replace built-in ones, which the guest would find before it asks.
    replacing: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ToolFunction {
    tool: u16,
    identifier: Box<str>,
}

/// The names in one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct NameList {
    names: BTreeMap<Box<str>, ListedName>,
    /// Made once, so that giving it to a program costs what a copy costs.
    encoded: OnceLock<Box<[u8]>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ListedName {
    /// Among all names, in the order of their definition.
    position: u32,
    meaning: ListedMeaning,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListedMeaning {
    /// By its position among the functions.
    Function(u32),
    Global(u16),
    Namespace(u32),
}

const BUILT_INS: &[&str] = &include!(concat!(env!("OUT_DIR"), "/built_ins.in"));

impl Names {
    /// Functions that follow belong to this namespace. Those of no namespace come first.
    pub fn namespace(&mut self, name: &str) {
        self.namespaces.push(NameList::default());
        let namespace = self.next(ListedMeaning::Namespace(self.namespaces.len() as u32));
        self.define_global(name, namespace);
        self.in_tools.define(name, namespace);
    }

    /// A function for tool number `tool`. Aliases and the exact name that follow are the same function.
    pub fn function(&mut self, tool: u16, identifier: &str) {
        self.functions.push(ToolFunction { tool, identifier: identifier.into() });
        self.alias(identifier);
    }

    /// Another name of the last function.
    pub fn alias(&mut self, identifier: &str) {
        let Some(function) = self.last_function() else { return };
        if self.namespaces.is_empty() {
            self.define_global(identifier, function);
        }
        self.define_member(identifier, function);
    }

    /// A name of the last function that is no identifier, so that it is no global: it is reached as `tools["name"]`, or in its
    /// namespace.
    pub fn exact(&mut self, name: &str) {
        let Some(function) = self.last_function() else { return };
        self.define_member(name, function);
    }

    /// A global function that is no tool: it is not a property of `tools`, and the arguments of its call are an array of
    /// its first two arguments.
    pub fn global(&mut self, tool: u16, identifier: &str) {
        let global = self.next(ListedMeaning::Global(tool));
        self.define_global(identifier, global);
    }

    /// Whether a global has this name.
    pub fn has_global(&self, name: &str) -> bool {
        self.globals.names.contains_key(name)
    }

    /// The entry of a name in a list; `None` if there is none.
    pub(crate) fn listed(&self, list: u32, name: &str) -> Option<Vec<u8>> {
        let listed = self.list(list)?.names.get(name)?;
        let mut bytes = Vec::new();
        self.write(name, *listed, &mut bytes);
        Some(bytes)
    }

    /// All entries of a list in their order, after their number.
    pub(crate) fn all_listed(&self, list: u32) -> &[u8] {
        let Some(list) = self.list(list) else { return &[0; 4] };
        list.encoded.get_or_init(|| {
            let mut all: Vec<(&Box<str>, &ListedName)> = list.names.iter().collect();
            all.sort_unstable_by_key(|(_, listed)| listed.position);
            let mut bytes = (all.len() as u32).to_le_bytes().to_vec();
            for (name, listed) in all {
                self.write(name, *listed, &mut bytes);
            }
            bytes.into_boxed_slice()
        })
    }

    /// What the guest is to define before a program starts.
    pub(crate) fn replacing(&self) -> &[u8] {
        &self.replacing
    }

    /// By its number; the namespaces follow in their order.
    fn list(&self, number: u32) -> Option<&NameList> {
        match number {
            0 => Some(&self.globals),
            1 => Some(&self.in_tools),
            _ => self.namespaces.get(number as usize - 2),
        }
    }

    fn last_function(&mut self) -> Option<ListedName> {
        let last = self.functions.len().checked_sub(1)?;
        Some(self.next(ListedMeaning::Function(last as u32)))
    }

    fn next(&mut self, meaning: ListedMeaning) -> ListedName {
        self.defined += 1;
        ListedName { position: self.defined, meaning }
    }

    fn define_global(&mut self, name: &str, listed: ListedName) {
        if BUILT_INS.binary_search(&name).is_ok() && !self.has_global(name) {
            entry(&mut self.replacing, NameKind::Listed, 0, name);
        }
        self.globals.define(name, listed);
    }

    /// Tools of servers are reached as `tools.server.name`; only the client's own are in `tools` itself.
    fn define_member(&mut self, name: &str, listed: ListedName) {
        self.namespaces.last_mut().unwrap_or(&mut self.in_tools).define(name, listed);
    }

    fn write(&self, name: &str, listed: ListedName, into: &mut Vec<u8>) {
        let (kind, number, function_name): (ListedKind, u32, &str) = match listed.meaning {
            ListedMeaning::Function(at) => {
                let ToolFunction { tool, identifier } = &self.functions[at as usize];
                (ListedKind::Function, u32::from(*tool), if **identifier == *name { "" } else { identifier })
            }
            ListedMeaning::Global(tool) => (ListedKind::Global, u32::from(tool), ""),
            ListedMeaning::Namespace(number) => (ListedKind::Namespace, number, ""),
        };
        into.push(kind as u8);
        into.extend(number.to_le_bytes());
        text(into, name);
        text(into, function_name);
    }
}

impl NameList {
    /// A name that is defined again keeps its position, as a property does.
    fn define(&mut self, name: &str, listed: ListedName) {
        self.encoded.take();
        self.names.entry(name.into()).and_modify(|known| known.meaning = listed.meaning).or_insert(listed);
    }
}

/// `LISTED_FUNCTION` and so on in `name_lists.h`.
#[derive(Clone, Copy)]
enum ListedKind {
    Function,
    Global,
    Namespace,
}

/// Globals of one program that are no names of tools. They are defined before it starts, so there should be few of them. See
/// `install` in names.h for the binary form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramNames(Vec<u8>);

#[derive(Clone, Copy)]
enum NameKind {
    Listed,
    Unknown,
    Habit,
    Path,
    OtherName,
}

impl ProgramNames {
    /// A name that throws a `ReferenceError` with this message when it is read.
    pub fn unknown(&mut self, name: &str, message: &str) {
        entry(&mut self.0, NameKind::Unknown, 0, name);
        text(&mut self.0, message);
    }

    /// What programs of other systems use, by its name in prelude.js.
    pub fn habit(&mut self, name: &str) {
        entry(&mut self.0, NameKind::Habit, 0, name);
    }

    /// An object under which the program expects tools: `github` of `github.issues.create(…)`. The host says what its
    /// properties mean.
    pub fn path(&mut self, name: &str) {
        entry(&mut self.0, NameKind::Path, 0, name);
    }

    /// Another name of `tools`.
    pub fn tools(&mut self, name: &str) {
        entry(&mut self.0, NameKind::Path, 1, name);
    }

    /// A name of tool number `tool`, besides those of its function.
    pub fn other_name(&mut self, tool: u16, name: &str) {
        entry(&mut self.0, NameKind::OtherName, tool, name);
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn entry(into: &mut Vec<u8>, entry: NameKind, tool: u16, name: &str) {
    into.push(entry as u8);
    into.extend(u32::from(tool).to_le_bytes());
    text(into, name);
}

fn text(into: &mut Vec<u8>, text: &str) {
    into.extend((text.len() as u32).to_le_bytes());
    into.extend(text.as_bytes());
}
