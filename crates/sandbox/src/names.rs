//! What a program may call, in the form the guest reads.

/// Names to be put into a world before its program runs. See `install` in guest.c for the form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names(Vec<u8>);

#[derive(Clone, Copy)]
enum Entry {
    Namespace,
    Function,
    Alias,
    Exact,
    Unknown,
    Qualified,
    Global,
}

impl Names {
    /// Functions that follow belong to this namespace. Those of no namespace come first.
    pub fn namespace(&mut self, name: &str) {
        self.entry(Entry::Namespace, 0, name);
    }

    /// A function for tool number `tool`. Aliases and the exact name that follow are the same function.
    pub fn function(&mut self, tool: u16, identifier: &str) {
        self.entry(Entry::Function, tool, identifier);
    }

    pub fn alias(&mut self, identifier: &str) {
        self.entry(Entry::Alias, 0, identifier);
    }

    /// A name that is reached by property access only, because it is no identifier.
    pub fn exact(&mut self, name: &str) {
        self.entry(Entry::Exact, 0, name);
    }

    /// The full name of a namespace's function, reached as `tools["server.tool"]`.
    pub fn qualified(&mut self, name: &str) {
        self.entry(Entry::Qualified, 0, name);
    }

    /// A global name that throws a `ReferenceError` with this message when it is read.
    pub fn unknown(&mut self, name: &str, message: &str) {
        self.entry(Entry::Unknown, 0, name);
        self.text(message);
    }

    /// A global function that is no tool: `tools` does not have it, and the arguments of its call are the list of what
    /// it was given, two at most.
    pub fn global(&mut self, tool: u16, identifier: &str) {
        self.entry(Entry::Global, tool, identifier);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn entry(&mut self, entry: Entry, tool: u16, name: &str) {
        self.0.push(entry as u8);
        self.0.extend(u32::from(tool).to_le_bytes());
        self.text(name);
    }

    fn text(&mut self, text: &str) {
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.as_bytes());
    }
}
