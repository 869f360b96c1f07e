//! Who may call which tool.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

/// The client's tools by who may call them.
#[derive(Debug, Default)]
pub(crate) struct ToolSplit<'a> {
    /// For programs.
    pub tools: Vec<Cow<'a, Value>>,
    /// Where each of them stands in the request.
    pub paths: Vec<String>,
    /// Names of those that the model may call directly, the provider's own included.
    pub direct: BTreeSet<String>,
    /// Entries that the model sees as they are.
    pub passed: Vec<Value>,
    pub toolsets: Toolsets,
    pub extensions: Extensions,
    /// Positions among the tools for programs of those that the model has to search for.
    pub deferred: BTreeSet<usize>,
    /// The client's name for its provider's tool search, which the gateway does instead.
    pub search_tool: Option<String>,
    pub later_tools: LaterTools,
}

/// Whether the client adds tools in the middle of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LaterTools {
    #[default]
    None,
    /// The model calls them itself: programs do not know them.
    Direct,
}

/// Whether some tools are known to the provider only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Toolsets {
    /// Every tool that the model may call is named in the request.
    #[default]
    Named,
    /// Some entry declares tools without naming them.
    Open,
}

/// Whether a request has something that only the gateway understands, so that it cannot pass through unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Extensions {
    #[default]
    None,
    Found,
}

impl ToolSplit<'_> {
    /// Translates a path among the tools for programs into a path in the request.
    pub(crate) fn request_path(&self, path: &str) -> String {
        let in_request = || {
            let (number, rest) = path.strip_prefix("tools[")?.split_once(']')?;
            let tool = self.paths.get(number.parse::<usize>().ok()?)?;
            Some(format!("{tool}{rest}"))
        };
        in_request().unwrap_or_else(|| path.to_owned())
    }
}

/// Whether the client declares, with the tool that its wire has for it, that the model may write programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramDeclaration {
    Declared,
    Undeclared,
}

impl ProgramDeclaration {
    pub(crate) fn declared_if(is_declared: bool) -> ProgramDeclaration {
        if is_declared { ProgramDeclaration::Declared } else { ProgramDeclaration::Undeclared }
    }

    /// Who may call a tool that does not say it. A client that declares programs marks the tools that are for them.
    pub(crate) fn default_callers(self) -> AllowedCallers {
        match self {
            ProgramDeclaration::Declared => AllowedCallers::Unmarked(Callers::Model),
            ProgramDeclaration::Undeclared => AllowedCallers::Unmarked(Callers::Programs),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callers {
    Model,
    Programs,
    Both,
}

/// Who may call a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllowedCallers {
    /// The entry says it in `allowed_callers`.
    Marked(Callers),
    /// The entry does not say it.
    Unmarked(Callers),
}

impl AllowedCallers {
    /// For entries that only the model can call.
    pub(crate) const MODEL: AllowedCallers = AllowedCallers::Unmarked(Callers::Model);

    /// Reads `allowed_callers`; `default` holds where it is absent.
    pub(crate) fn read(callers: Option<&Value>, default: AllowedCallers) -> Result<AllowedCallers, String> {
        let names = match callers {
            None | Some(Value::Null) => return Ok(default),
            Some(Value::Array(names)) if !names.is_empty() => names,
            Some(_) => return Err("must be an array of \"direct\" and \"programmatic\"".to_owned()),
        };
        let mut marked: Option<Callers> = None;
        for name in names {
            let caller = match name.as_str() {
                Some("direct") => Callers::Model,
                Some("programmatic" | "execute") => Callers::Programs,
                Some(name) if name.starts_with("code_execution") => Callers::Programs,
                _ => return Err(format!("{name} is not known; use \"direct\" or \"programmatic\"")),
            };
            marked = Some(marked.map_or(caller, |known| if known == caller { caller } else { Callers::Both }));
        }
        Ok(marked.map_or(default, AllowedCallers::Marked))
    }

    fn callers(self) -> Callers {
        match self {
            AllowedCallers::Marked(callers) | AllowedCallers::Unmarked(callers) => callers,
        }
    }

    /// The model may call it itself.
    pub(crate) fn allow_model(self) -> bool {
        self.callers() != Callers::Programs
    }

    pub(crate) fn allow_programs(self) -> bool {
        self.callers() != Callers::Model
    }

    pub(crate) fn extensions(self) -> Extensions {
        match self {
            AllowedCallers::Marked(_) => Extensions::Found,
            AllowedCallers::Unmarked(_) => Extensions::None,
        }
    }

    /// Whether a model that writes no programs sees the tool: all but those marked for programs only.
    pub(crate) fn are_ordinary(self) -> bool {
        self != AllowedCallers::Marked(Callers::Programs)
    }
}
