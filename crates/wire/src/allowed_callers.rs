//! Who may call which tool.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use dacapo_replay::matches_pattern;
use serde_json::{Map, Value, json};

/// The client's tools by who may call them.
#[derive(Debug, Default)]
pub(crate) struct ToolSplit<'a> {
    pub tools: ProgramEntries<'a>,
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
    /// Tools that the client has added in the conversation. A model on another wire gets them like the others.
    pub added: Vec<Value>,
}

/// The tools for programs.
#[derive(Debug)]
pub(crate) enum ProgramEntries<'a> {
    /// All entries of the client's list, as they came.
    List(&'a [Value]),
    /// Some of them, or parts of them, and where each stands in the request.
    Chosen(Vec<(Cow<'a, Value>, ToolPlace)>),
}

impl Default for ProgramEntries<'_> {
    fn default() -> Self {
        ProgramEntries::Chosen(Vec::new())
    }
}

impl<'a> ProgramEntries<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            ProgramEntries::List(list) => list.len(),
            ProgramEntries::Chosen(chosen) => chosen.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Value> {
        let (list, chosen) = match self {
            ProgramEntries::List(list) => (*list, &[][..]),
            ProgramEntries::Chosen(chosen) => (&[][..], chosen.as_slice()),
        };
        list.iter().chain(chosen.iter().map(|(tool, _)| &**tool))
    }

    fn push(&mut self, tool: Cow<'a, Value>, place: ToolPlace) {
        match self {
            ProgramEntries::Chosen(chosen) => chosen.push((tool, place)),
            ProgramEntries::List(_) => unreachable!("nothing is added to a list that is complete"),
        }
    }

    fn place(&self, number: usize) -> Option<ToolPlace> {
        match self {
            ProgramEntries::List(list) => list.get(number).map(|_| ToolPlace { entry: number, member: None }),
            ProgramEntries::Chosen(chosen) => chosen.get(number).map(|(_, place)| *place),
        }
    }
}

/// What is known of a client's list before it is gone over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListContents {
    Unknown,
    /// All entries are functions for programs, and only for them.
    ForPrograms,
}

/// Where a tool stands in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ToolPlace {
    pub entry: usize,
    /// Its place in the namespace that the entry is.
    pub member: Option<usize>,
}

impl fmt::Display for ToolPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tools[{}]", self.entry)?;
        self.member.map_or(Ok(()), |member| write!(f, ".tools[{member}]"))
    }
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

impl<'a> ToolSplit<'a> {
    /// Before the entries of a list are gone over, unless it is known what they are.
    pub(crate) fn of(entries: &'a [Value], contents: ListContents) -> ToolSplit<'a> {
        let tools = match contents {
            // There may be thousands, and most of them are for programs.
            ListContents::Unknown => ProgramEntries::Chosen(Vec::with_capacity(entries.len())),
            ListContents::ForPrograms => ProgramEntries::List(entries),
        };
        ToolSplit { tools, ..ToolSplit::default() }
    }

    /// What there is to know of a list with so many entries that was split in this way, for the next time.
    pub(crate) fn contents(&self, entries: usize) -> ListContents {
        let are_borrowed = match &self.tools {
            ProgramEntries::List(_) => true,
            ProgramEntries::Chosen(chosen) => {
                chosen.iter().all(|(tool, place)| matches!(tool, Cow::Borrowed(_)) && place.member.is_none())
            }
        };
        // Tools that were added in the conversation are not of the list.
        let is_all = self.tools.len() == entries
            && are_borrowed
            && self.passed.is_empty()
            && self.deferred.is_empty()
            && self.search_tool.is_none()
            && self.toolsets == Toolsets::Named
            && self.extensions == Extensions::None;
        if is_all { ListContents::ForPrograms } else { ListContents::Unknown }
    }

    /// Adds a tool for programs.
    pub(crate) fn push(&mut self, tool: Cow<'a, Value>, place: ToolPlace) {
        self.tools.push(tool, place);
    }

    /// Translates a path among the tools for programs into a path in the request.
    pub(crate) fn request_path(&self, path: &str) -> String {
        let in_request = || {
            let (number, rest) = path.strip_prefix("tools[")?.split_once(']')?;
            let tool = self.tools.place(number.parse::<usize>().ok()?)?;
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

/// Who calls the tools of clients that do not say it, by the operator's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DefaultCallers {
    /// Programs only.
    #[default]
    Programs,
    /// Programs, and the model itself.
    Both,
}

impl DefaultCallers {
    /// By its name in the configuration.
    pub fn parse(text: &str) -> Option<DefaultCallers> {
        match text {
            "programs" => Some(DefaultCallers::Programs),
            "both" => Some(DefaultCallers::Both),
            _ => None,
        }
    }

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            DefaultCallers::Programs => "programs",
            DefaultCallers::Both => "both",
        }
    }
}

/// What holds for tools whose callers the client does not name.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallerRules<'a> {
    /// Who calls them.
    pub callers: DefaultCallers,
    /// Patterns of names of tools that only the model calls.
    pub direct_tools: &'a [String],
}

impl CallerRules<'_> {
    /// The tools of a request with the callers that hold for them; `None` if that changes nothing.
    pub(crate) fn marked(&self, body: &Map<String, Value>) -> Option<Map<String, Value>> {
        if self.callers == DefaultCallers::Programs && self.direct_tools.is_empty() {
            return None;
        }
        let mut body = body.clone();
        let entries = body.get_mut("tools").and_then(Value::as_array_mut)?;
        for entry in entries {
            match entry.get_mut("tools").and_then(Value::as_array_mut) {
                Some(members) => members.iter_mut().for_each(|member| self.mark(member)),
                None => self.mark(entry),
            }
        }
        Some(body)
    }

    /// Marks a function of the client that has no mark. Tools of providers have other types.
    fn mark(&self, entry: &mut Value) {
        let function = entry.get("function");
        let name = function.and_then(|function| function.get("name")).or_else(|| entry.get("name"));
        let Some(name) = name.and_then(Value::as_str) else { return };
        let is_function = matches!(entry.get("type").and_then(Value::as_str), None | Some("function" | "custom"));
        let has_mark = |value: &Value| value.get(ALLOWED_CALLERS).is_some_and(|callers| !callers.is_null());
        if !is_function || has_mark(entry) || function.is_some_and(has_mark) {
            return;
        }
        let is_direct = self.direct_tools.iter().any(|pattern| matches_pattern(pattern, name));
        entry[ALLOWED_CALLERS] = match self.callers {
            _ if is_direct => json!(["direct"]),
            DefaultCallers::Both => json!(["direct", "programmatic"]),
            DefaultCallers::Programs => return,
        };
    }
}

const ALLOWED_CALLERS: &str = "allowed_callers";

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
