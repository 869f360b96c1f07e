//! The names of tools as functions, in the binary form that the guest reads.

/// Names that are defined before a program starts. The functions of a namespace are defined when the program first reads
/// it. See `install` in names.h for the binary form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    globals: Vec<u8>,
    /// By namespace.
    members: Vec<Vec<u8>>,
}

#[derive(Clone, Copy)]
enum NameKind {
    Namespace,
    Function,
    Alias,
    Exact,
    Unknown,
    Global,
    Habit,
    Path,
    OtherName,
}

impl Names {
    /// Functions that follow belong to this namespace. Those of no namespace come first.
    pub fn namespace(&mut self, name: &str) {
        entry(&mut self.globals, NameKind::Namespace, 0, name);
        self.members.push(Vec::new());
    }

    /// A function for tool number `tool`. Aliases and the exact name that follow are the same function.
    pub fn function(&mut self, tool: u16, identifier: &str) {
        entry(self.current(), NameKind::Function, tool, identifier);
    }

    /// Another name of the last function.
    pub fn alias(&mut self, identifier: &str) {
        entry(self.current(), NameKind::Alias, 0, identifier);
    }

    /// A name of the last function that is no identifier, so that it is reached as `tools["name"]` only.
    pub fn exact(&mut self, name: &str) {
        entry(self.current(), NameKind::Exact, 0, name);
    }

    /// A global name that throws a `ReferenceError` with this message when it is read.
    pub fn unknown(&mut self, name: &str, message: &str) {
        entry(&mut self.globals, NameKind::Unknown, 0, name);
        text(&mut self.globals, message);
    }

    /// A global function that is no tool: it is not a property of `tools`, and the arguments of its call are an array of
    /// its first two arguments.
    pub fn global(&mut self, tool: u16, identifier: &str) {
        entry(&mut self.globals, NameKind::Global, tool, identifier);
    }

    /// A global that programs of other systems use, by its name in prelude.js.
    pub fn habit(&mut self, name: &str) {
        entry(&mut self.globals, NameKind::Habit, 0, name);
    }

    /// A global object under which the program expects tools: `github` of `github.issues.create(…)`. The host says what
    /// its properties mean.
    pub fn path(&mut self, name: &str) {
        entry(&mut self.globals, NameKind::Path, 0, name);
    }

    /// Another name of `tools`.
    pub fn tools(&mut self, name: &str) {
        entry(&mut self.globals, NameKind::Path, 1, name);
    }

    /// A global name of tool number `tool`, besides those of its function.
    pub fn other_name(&mut self, tool: u16, name: &str) {
        entry(&mut self.globals, NameKind::OtherName, tool, name);
    }

    /// The functions of a namespace, for [`Host::members`](crate::Host::members). Namespaces count from 1.
    pub fn members(&self, namespace: u32) -> &[u8] {
        let at = namespace.checked_sub(1).map(|at| at as usize);
        at.and_then(|at| self.members.get(at)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn globals(&self) -> &[u8] {
        &self.globals
    }

    /// Where functions are added now.
    fn current(&mut self) -> &mut Vec<u8> {
        self.members.last_mut().unwrap_or(&mut self.globals)
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
