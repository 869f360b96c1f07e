//! What a program may call, in the form the guest reads.

/// Names to be put into a world before its program runs; what is in a namespace, when the program first reads it. See
/// `install` in guest.c for the form.
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
}

impl Names {
    /// Functions that follow belong to this namespace. Those of no namespace come first.
    pub fn namespace(&mut self, name: &str) {
        entry(&mut self.globals, NameKind::Namespace, 0, name);
        self.members.push(Vec::new());
    }

    /// A function for tool number `tool`. Aliases and the exact name that follow are the same function.
    pub fn function(&mut self, tool: u16, identifier: &str) {
        entry(self.place(), NameKind::Function, tool, identifier);
    }

    pub fn alias(&mut self, identifier: &str) {
        entry(self.place(), NameKind::Alias, 0, identifier);
    }

    /// A name that is reached by property access only, because it is no identifier.
    pub fn exact(&mut self, name: &str) {
        entry(self.place(), NameKind::Exact, 0, name);
    }

    /// A global name that throws a `ReferenceError` with this message when it is read.
    pub fn unknown(&mut self, name: &str, message: &str) {
        entry(&mut self.globals, NameKind::Unknown, 0, name);
        text(&mut self.globals, message);
    }

    /// A global function that is no tool: `tools` does not have it, and the arguments of its call are the list of what
    /// it was given, two at most.
    pub fn global(&mut self, tool: u16, identifier: &str) {
        entry(&mut self.globals, NameKind::Global, tool, identifier);
    }

    /// What is in a namespace, for [`Host::members`](crate::Host::members). They count from 1.
    pub fn members(&self, namespace: u32) -> &[u8] {
        let at = namespace.checked_sub(1).map(|at| at as usize);
        at.and_then(|at| self.members.get(at)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn globals(&self) -> &[u8] {
        &self.globals
    }

    fn place(&mut self) -> &mut Vec<u8> {
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
