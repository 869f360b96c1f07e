//! Restarts, replicas, evictions and the way in which answers are delivered change nothing, for any program.
//!
//! [`programs`] is the grammar of the programs. A [`RecordedRun`] is one program with a client that answers some of its open
//! calls at a time, in some order; it holds the step of every beginning of the journal, each replayed from the start.
//! The properties compare them with the steps of other steppers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, LazyLock};

use dacapo_replay::{
    Answer, Call, CallIndex, CompletedCall, ErrorKind, JournalEntry, JsonText, Limit, LogLevel, Outcome, Program, Step,
    StepRequest, Stepper, Toolbox, WarmPrograms, read_tools,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;
use serde_json::{Value, json};

/// What every generated program starts with. Calls tell their number, so that the order of issue can be checked.
const OPENING: &str = "\
let x: any = 0, issued = 0;
const kept: Promise<any>[] = [];
const size = (value: any): number => (typeof value === 'number' ? value : `${JSON.stringify(value)}`.length) % 4;
const sleep = (ms: number, value?: any) => new Promise<any>((resolve) => setTimeout(resolve, ms, value));
const call = (tool: any, mark: number, more: any): Promise<any> => {
  if (issued === 16) return Promise.reject(new RangeError('enough calls'));
  const args = { n: issued++, mark, more };
  console.debug(JSON.stringify(args));
  return tool(args);
};
const look = (lookup: any, mark: number): Promise<any> => {
  if (issued === 16) return Promise.reject(new RangeError('enough calls'));
  issued++;
  return lookup(['a', 'web-search', 'nothing'][mark % 3]);
};
";

/// Promises, with weights. What comes first is what a failing program shrinks to.
const PROMISE: &[(u32, &str)] = &[
    (20, "call(<tool>, <digit>, <detail>)"),
    (2, "look(<lookup>, <digit>)"),
    (1, "Promise.resolve(size(x))"),
    (1, "Promise.reject(new Error('rejected'))"),
    (1, "Promise.resolve(kept[<digit>])"),
    (1, "sleep(<digit>, 'slept')"),
    (1, "Promise.race([<promise>, sleep(<digit>, 'late')])"),
    (6, "Promise.<join>([<promises>])"),
    (1, "<promise>.then((v) => { x = v; return <promise>; })"),
    (2, "<promise>.catch((e) => e.message)"),
    (1, "<promise>.finally(() => <promise>)"),
    (2, "(async () => <block>)()"),
];

/// Statements of async functions, with weights. They read and set `x`, the latest value.
const STATEMENT: &[(u32, &str)] = &[
    (10, "x = await <promise>;"),
    (3, "kept.push(<promise>);"),
    (3, "<promise>;"),
    (1, "console.log(size(x), Date.now());"),
    (1, "queueMicrotask(() => { <promise>; });"),
    (1, "setTimeout(async () => <block>, <digit>);"),
    (
        1,
        "{ let left = 2; const id = setInterval(() => { if (left-- > 0) <promise>; else clearInterval(id); }, <digit>); }",
    ),
    (1, "{ const helper = async (x: any) => <block>; kept.push(helper(1)); x = await helper(x); }"),
    (2, "if (size(x) > 1) <block> else <block>"),
    (2, "for (let i = size(x); i > 0; i--) <block>"),
    (1, "for (const p of [<promises>]) { x = await p; <block> }"),
    (1, "for await (x of [<promises>]) <block>"),
    (
        2,
        "for await (x of (async function* () { try { for (let i = 0; i < 3; i++) { <block> yield <promise>; } } finally <block> })()) \
         { if (size(x) < 3) break; <block> }",
    ),
    (4, "try <block> catch (e: any) { x = e.message; <block> }"),
    (1, "try <block> catch { <statement> } finally <block>"),
    (1, "if (size(x) === 1) throw new TypeError('thrown');"),
    (1, "if (size(x) === 2) throw x;"),
    (1, "if (size(x) === 3) return <promise>;"),
    (1, "return { x, list: [<promises>], kept };"),
];

const TOOL: &[&str] = &["a", "b", "tools['web-search']"];
const LOOKUP: &[&str] = &["search", "describe"];
const JOIN: &[&str] = &["all", "race", "any", "allSettled"];
const DIGIT: &[&str] = &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
const DETAIL: &[&str] = &[
    "null",
    "x = size(x) + 1",
    "`${JSON.stringify(x)}`",
    "Math.random()",
    "Date.now()",
    "crypto.randomUUID()",
    "performance.now()",
];

/// How deep blocks and promises nest.
const NESTING: u32 = 3;

fn programs() -> impl Strategy<Value = GeneratedProgram> {
    let mut inner = Grammar { promise: None, statement: None };
    for _ in 0..NESTING {
        inner.promise = Some(inner.choice(PROMISE));
        inner.statement = Some(inner.choice(STATEMENT));
    }
    let statements = vec(inner.statement.expect("the last level"), 4..12);
    statements.prop_map(|body| GeneratedProgram(format!("{OPENING}{}\nreturn {{ x, kept }};", body.join("\n"))))
}

/// What fills the gaps of the forms one level up.
struct Grammar {
    promise: Option<BoxedStrategy<String>>,
    statement: Option<BoxedStrategy<String>>,
}

impl Grammar {
    /// Any of the forms whose gaps can be filled.
    fn choice(&self, forms: &[(u32, &str)]) -> BoxedStrategy<String> {
        let filled = forms.iter().filter_map(|(weight, form)| Some((*weight, self.fill(form)?)));
        Union::new_weighted(filled.collect()).boxed()
    }

    fn fill(&self, form: &str) -> Option<BoxedStrategy<String>> {
        let mut parts = Vec::new();
        for part in form.split_inclusive('>') {
            match part.rsplit_once('<') {
                Some((before, gap)) if gap.ends_with('>') => {
                    parts.extend([Just(before.to_owned()).boxed(), self.gap(gap.trim_end_matches('>'))?]);
                }
                _ => parts.push(Just(part.to_owned()).boxed()),
            }
        }
        Some(parts.prop_map(|parts| parts.concat()).boxed())
    }

    fn gap(&self, name: &str) -> Option<BoxedStrategy<String>> {
        let word = |words: &'static [&str]| Some(select(words).prop_map(str::to_owned).boxed());
        match name {
            "tool" => word(TOOL),
            "lookup" => word(LOOKUP),
            "join" => word(JOIN),
            "digit" => word(DIGIT),
            "detail" => word(DETAIL),
            "promise" => self.promise.clone(),
            "statement" => self.statement.clone(),
            "promises" => self.list("promise", ", "),
            "block" => Some(self.list("statement", " ")?.prop_map(|body| format!("{{ {body} }}")).boxed()),
            other => panic!("no gap is called {other}"),
        }
    }

    fn list(&self, of: &str, between: &'static str) -> Option<BoxedStrategy<String>> {
        Some(vec(self.gap(of)?, 0..4).prop_map(|items| items.join(between)).boxed())
    }
}

/// A program that shows itself as it is written.
struct GeneratedProgram(String);

impl fmt::Debug for GeneratedProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a program:\n{}\n", self.0)
    }
}

/// Decisions of a client or of a random test; when they are used up, always the first possibility.
#[derive(Clone)]
struct Choices(std::vec::IntoIter<u8>);

impl fmt::Debug for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.as_slice())
    }
}

impl Choices {
    /// One of the numbers below `count`.
    fn below(&mut self, count: usize) -> usize {
        usize::from(self.0.next().unwrap_or(0)) % count
    }
}

fn choices() -> impl Strategy<Value = Choices> {
    vec(any::<u8>(), 0..60).prop_map(|bytes| Choices(bytes.into_iter()))
}

/// What the tools answer in test run `world`: a number, a list, text or an error, which depends on the call alone.
fn answer(world: u64, call: &Call) -> Answer {
    let asked = format!("{} {}", call.tool, call.args);
    let hash = asked.bytes().fold(world, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let (kind, number) = ((hash >> 32) % 12, (hash >> 40) % 5);
    match kind {
        0 => Answer::Error { message: format!("failed {number}"), data: Some(JsonText::from(&json!({ "n": number }))) },
        1 => Answer::Ok(JsonText::from(&json!({ "list": vec![number; number as usize] }))),
        2 => Answer::Ok(JsonText::from(&json!("some text"))),
        _ => Answer::Ok(JsonText::from(&json!(number))),
    }
}

/// Room for all plays of a program.
const FEW: WarmPrograms = WarmPrograms { count_max: 8, bytes_max: 1 << 30 };

static COLD: LazyLock<Stepper> = LazyLock::new(|| stepper(WarmPrograms::NONE));

fn stepper(warm: WarmPrograms) -> Stepper {
    Stepper::new(warm).expect("a sandbox")
}

fn step(stepper: &Stepper, request: &StepRequest) -> Step {
    stepper.step(request, &|| true).expect("a step")
}

fn text(step: &Step) -> String {
    serde_json::to_string(step).expect("steps are JSON")
}

fn request(code: &str) -> StepRequest {
    static TOOLS: LazyLock<Arc<Toolbox>> = LazyLock::new(|| {
        let tools = json!([{ "name": "a" }, { "name": "b" }, { "name": "web-search" }]);
        Arc::new(Toolbox::new(read_tools(&tools).expect("valid tools")).expect("few tools"))
    });
    StepRequest::new(Program::new(code), Arc::clone(&TOOLS))
}

/// A program and its client, from the first call to the result.
struct RecordedRun {
    /// With an empty journal.
    request: StepRequest,
    journal: Vec<JournalEntry>,
    /// How long the journal was each time the client sent it.
    sent: BTreeSet<usize>,
    /// The step of each beginning of the journal, the empty one first.
    steps: Vec<Step>,
    /// What the client was asked.
    asked: BTreeMap<CallIndex, Call>,
}

impl RecordedRun {
    /// At each pause the client answers some of the open calls, in any order, and sends these answers together.
    fn new(request: StepRequest, world: u64, client: &mut Choices) -> RecordedRun {
        let steps = vec![step(&COLD, &request)];
        let mut play =
            RecordedRun { request, journal: Vec::new(), sent: BTreeSet::new(), steps, asked: BTreeMap::new() };
        loop {
            play.sent.insert(play.journal.len());
            let Outcome::Paused { calls } = &play.last().outcome else { return play };
            let mut open = calls.clone();
            play.asked.extend(open.iter().map(|call| (call.call, call.clone())));
            for _ in 0..=client.below(open.len()) {
                let call = open.remove(client.below(open.len()));
                play.journal.push(JournalEntry::new(
                    call.call,
                    call.tool.as_str(),
                    Some(&call.args),
                    answer(world, &call),
                ));
                play.steps.push(step(&COLD, &play.beginning(play.journal.len())));
            }
        }
    }

    fn last(&self) -> &Step {
        self.steps.last().expect("there is a first step")
    }

    fn is_starved(&self) -> bool {
        let Outcome::Finished { result: Err(failure) } = &self.last().outcome else { return false };
        matches!(failure.kind, ErrorKind::Limit { .. })
    }

    fn beginning(&self, count: usize) -> StepRequest {
        StepRequest { journal: self.journal[..count].iter().cloned().collect(), ..self.request.clone() }
    }

    fn matches(&self, count: usize, stepper: &Stepper) {
        let (expected, actual) = (&self.steps[count], step(stepper, &self.beginning(count)));
        assert_eq!(
            (text(&actual), actual.record),
            (text(expected), expected.record.clone()),
            "after {count} of {} answers",
            self.journal.len()
        );
    }

    /// Completed calls as the record for a next program.
    fn record(&self, client: &mut Choices) -> Vec<CompletedCall> {
        let mut reused = Vec::new();
        for entry in &self.journal {
            if let Answer::Ok(ok) = &entry.answer
                && client.below(2) == 1
            {
                reused.push(CompletedCall::new(entry.tool.as_str(), &self.asked[&entry.call].args, ok.clone()));
            }
        }
        reused
    }

    fn check_calls(&self) {
        let mut known: BTreeMap<CallIndex, Call> = BTreeMap::new();
        for (count, step) in self.steps.iter().enumerate() {
            let answered: BTreeSet<CallIndex> = self.journal[..count].iter().map(|entry| entry.call).collect();
            match &step.outcome {
                Outcome::Paused { calls } => {
                    assert!(!calls.is_empty() && calls.is_sorted_by(|a, b| a.call < b.call), "{calls:?}");
                    for call in calls {
                        assert!(!answered.contains(&call.call), "{call:?} was answered");
                        assert_eq!(call.args["n"], call.call.0, "calls are numbered in issue order");
                        assert_eq!(
                            call,
                            known.entry(call.call).or_insert_with(|| call.clone()),
                            "a call stays the same"
                        );
                    }
                }
                Outcome::Finished { result: Ok(_) } => {
                    assert_eq!(text(step), text(self.last()), "late answers change nothing");
                    let lost: Vec<_> = issued(step).into_iter().filter(|args| !self.is_known(args)).collect();
                    assert!(lost.is_empty(), "never handed out: {lost:?}");
                }
                Outcome::Finished { result: Err(failure) } => match &failure.kind {
                    ErrorKind::Exception { .. } | ErrorKind::Deadlock => {
                        let listed = failure.completed.len() + failure.unfinished.len();
                        assert_eq!(listed, issued(step).len(), "every call is completed or unfinished");
                    }
                    kind => assert!(matches!(kind, ErrorKind::Limit { limit: Limit::Fuel, .. }), "{failure:?}"),
                },
            }
        }
    }

    /// Was the client asked for this call, or did the record answer it?
    fn is_known(&self, args: &Value) -> bool {
        let recorded = |record: &CompletedCall| record.args().as_ref() == Some(args);
        self.asked.values().any(|call| call.args == *args) || self.request.reuse.iter().any(recorded)
    }

    /// The whole journal, with one entry that belongs to some other program.
    fn tampered(&self, at: usize) -> StepRequest {
        let mut journal = self.journal.clone();
        let JournalEntry { call, tool, answer, .. } = &self.journal[at];
        journal[at] =
            JournalEntry::new(*call, tool.as_str(), Some(&json!({ "n": call.0, "mark": -1 })), answer.clone());
        StepRequest { journal: journal.into_iter().collect(), ..self.request.clone() }
    }
}

/// Arguments of the calls that the program says it made.
fn issued(step: &Step) -> Vec<Value> {
    let told = step.logs.iter().filter(|line| line.level == LogLevel::Debug);
    told.map(|line| serde_json::from_str(&line.text).expect("arguments")).collect()
}

fn assert_diverges_at(at: usize, step: &Step) {
    let path = match &step.outcome {
        Outcome::Finished { result: Err(failure) } => match &failure.kind {
            ErrorKind::Diverged { path, .. } => Some(path.clone()),
            _ => None,
        },
        _ => None,
    };
    assert_eq!(path, Some(format!("journal[{at}]")), "{}", text(step));
}

fn config() -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 150;
    }
    config
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn restarts_are_invisible(
        source in programs(),
        world in any::<u64>(),
        mut clients in prop::array::uniform3(choices()),
        mut choices in choices(),
        fuel_percent in prop::option::of(0_u64..100),
    ) {
        let program = request(&source.0);
        let whole = RecordedRun::new(program.clone(), world, &mut clients[0]);
        let mut varied = program.clone();
        match fuel_percent {
            None => varied.reuse = whole.record(&mut choices),
            Some(percent) => {
                let (started, ended) = (whole.steps[0].usage.fuel, whole.last().usage.fuel);
                varied.limits.set(Limit::Fuel, started + (ended - started) * percent / 100).expect("in range");
            }
        }
        let plays = [
            RecordedRun::new(program, world, &mut clients[1]),
            RecordedRun::new(varied, world, &mut clients[2]),
            whole,
        ];

        let replica = stepper(FEW);
        for play in &plays {
            play.check_calls();
            play.sent.iter().for_each(|&count| play.matches(count, &replica));
        }
        for warm in [FEW, WarmPrograms { count_max: 1, ..FEW }] {
            interleave(&plays, &stepper(warm), Waiting::InMemory, &mut choices.clone());
        }
        interleave(&plays, &stepper(FEW), Waiting::Shrunk, &mut choices.clone());
        for play in plays.iter().filter(|play| !play.journal.is_empty() && !play.is_starved()) {
            let at = choices.below(play.journal.len());
            assert_diverges_at(at, &step(&COLD, &play.tampered(at)));
            play.matches(at, &replica);
            assert_diverges_at(at, &step(&replica, &play.tampered(at)));
        }
    }
}

/// How paused programs wait for the next answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    InMemory,
    Shrunk,
}

/// Steps all plays side by side, after every answer, so that they share and evict each other's paused programs.
fn interleave(plays: &[RecordedRun], stepper: &Stepper, waiting: Waiting, choices: &mut Choices) {
    let mut under_way: Vec<_> = plays.iter().map(|play| (play, 0..play.steps.len())).collect();
    while !under_way.is_empty() {
        let at = choices.below(under_way.len());
        let (play, counts) = &mut under_way[at];
        match counts.next() {
            Some(count) => play.matches(count, stepper),
            None => drop(under_way.remove(at)),
        }
        if waiting == Waiting::Shrunk {
            // Those that were used since the last time are shrunk by the second call.
            stepper.release_unused_from(0);
            stepper.release_unused_from(0);
        }
    }
}

/// Whether the record or the client answers a forgotten call, what follows from it happens.
#[test]
fn a_recorded_answer_is_given_even_when_the_program_has_returned() {
    let program = request("a().then((id) => b({ id })); return 'returned'");
    let record = CompletedCall::new("a", &json!({}), JsonText::from(&json!(7)));
    let step = step(&COLD, &StepRequest { reuse: vec![record], ..program });
    let Outcome::Paused { calls } = &step.outcome else { panic!("b was lost: {}", text(&step)) };
    let asked: Vec<_> = calls.iter().map(|call| (call.call, call.tool.as_str(), &call.args)).collect();
    assert_eq!(asked, [(CallIndex(1), "b", &json!({ "id": 7 }))]);
}
