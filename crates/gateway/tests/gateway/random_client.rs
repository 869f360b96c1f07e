//! A client that treats its history in random ways, and the model that it asks. Both follow from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::Response;
use axum::routing::post;
use dacapo_scripted::ScriptedModel;
use dacapo_wire::Wire;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::client_conversation::{self, Call, ClientConversation};

/// More than any conversation needs.
const REQUESTS_MAX: usize = 60;
const WRITES: [&str; 2] = ["pay", "send_mail"];
const READS: [&str; 2] = ["get_balance", "list_orders"];
const REMINDER: &str = "<system-reminder>Mind the budget.</system-reminder>";

/// A conversation that has ended.
pub(crate) struct Played {
    pub(crate) requests: usize,
    pub(crate) executed: usize,
    pub(crate) failure: Option<Failure>,
}

/// What went wrong.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// What happened before, and how to play it again.
    pub(crate) story: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// A write was executed again.
    Twice,
    /// The conversation was refused or did not end.
    Lost,
    /// A program got something else than its tools said.
    WrongBytes,
}

type Problem = (FailureKind, String);

/// What a client does when a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    Stop,
    /// The same request is sent again, like SDKs do, for this long.
    Retry(Duration),
}

/// A sequence of numbers that can be repeated.
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % below as u64).unwrap()
    }

    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

/// A program that a model wrote, with what is known of it.
#[derive(Debug, Clone)]
struct RandomProgram {
    code: String,
    /// What each element of its result has to begin with; `None` for the winner of a race.
    results: Vec<Option<String>>,
    /// Writes that it asks for with `fresh`.
    fresh: Vec<String>,
}

fn call_text(tool: &str, n: usize) -> String {
    format!("{tool} {{\"n\":{n}}}")
}

impl RandomProgram {
    fn new(number: usize, random: &mut Random) -> RandomProgram {
        let mut program =
            RandomProgram { code: "const out = [];\n".to_owned(), results: Vec::new(), fresh: Vec::new() };
        let mut used = BTreeSet::new();
        for _ in 0..=random.below(4) {
            program.push_statement(random, &mut used);
        }
        if random.percent(25) {
            program.code.push_str("throw new Error('by design');\n");
        }
        writeln!(program.code, "return {{program: {number}, out}};").unwrap();
        program
    }

    /// A call that the program has not written so far: one that asks for the same write twice gets it twice.
    fn call(random: &mut Random, used: &mut BTreeSet<String>) -> (String, String) {
        for _ in 0..20 {
            let tool = if random.percent(70) { WRITES[random.below(2)] } else { READS[random.below(2)] };
            let n = random.below(4);
            let text = call_text(tool, n);
            if READS.contains(&tool) || used.insert(text.clone()) {
                return (format!("{tool}({{n: {n}}})"), text);
            }
        }
        ("get_balance({n: 9})".to_owned(), call_text("get_balance", 9))
    }

    fn push_statement(&mut self, random: &mut Random, used: &mut BTreeSet<String>) {
        let kind = random.below(10);
        let many: Vec<(String, String)> =
            (0..if kind < 4 { 1 } else { 2 + random.below(2) }).map(|_| RandomProgram::call(random, used)).collect();
        let list: Vec<&str> = many.iter().map(|(code, _)| code.as_str()).collect();
        let list = list.join(", ");
        let (line, results) = match kind {
            0 | 1 => (format!("out.push(await {list});"), 1),
            2 => (format!("try {{ out.push(await {list}) }} catch (e) {{ out.push('caught: ' + e.message) }}"), 1),
            3 => {
                let n = random.below(4);
                let tool = WRITES[random.below(2)];
                self.fresh.push(call_text(tool, n));
                self.results.push(Some(call_text(tool, n)));
                (format!("out.push(await {tool}({{n: {n}}}, {{fresh: true}})); {list};"), 0)
            }
            4 | 5 => (format!("out.push(...await Promise.all([{list}]));"), many.len()),
            6 | 7 => (
                format!(
                    "for (const s of await Promise.allSettled([{list}])) out.push(s.value ?? 'caught: ' + s.reason.message);"
                ),
                many.len(),
            ),
            8 => {
                self.results.push(None);
                (format!("out.push(await Promise.race([{list}]));"), 0)
            }
            _ => (
                format!(
                    "for (const f of [{}]) out.push(await f());",
                    list.replace("}), ", "}), () => ").replacen("", "() => ", 1)
                ),
                many.len(),
            ),
        };
        self.results.extend(many.into_iter().take(results).map(|(_, text)| Some(text)));
        self.code.push_str(&line);
        self.code.push('\n');
    }
}

/// The models of all conversations, by the number in their names.
#[derive(Clone, Default)]
pub(crate) struct RandomModels(Arc<Mutex<BTreeMap<u64, RandomModel>>>);

/// Writes programs until one succeeds, or it gives up.
struct RandomModel {
    random: Random,
    programs: Vec<RandomProgram>,
    /// Programs of earlier questions.
    programs_before: usize,
    /// Programs that it still writes for this question.
    programs_left: usize,
    /// Results that it read, by the number of the program.
    succeeded: Vec<(usize, Value)>,
}

impl RandomModels {
    /// Serves them on loopback; the address ends in `/v1`.
    pub(crate) async fn serve(&self) -> String {
        let router = Router::new()
            .route("/v1/chat/completions", post(async |state, body: Bytes| reply(Wire::Chat, state, &body)))
            .route("/v1/responses", post(async |state, body: Bytes| reply(Wire::Responses, state, &body)))
            .route("/v1/messages", post(async |state, body: Bytes| reply(Wire::Messages, state, &body)))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(self.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    }

    fn forget(&self, seed: u64) {
        self.0.lock().unwrap().remove(&seed);
    }

    fn with<T>(&self, seed: u64, work: impl FnOnce(&mut RandomModel) -> T) -> T {
        let mut models = self.0.lock().unwrap();
        let new = || RandomModel {
            random: Random(seed.wrapping_mul(31)),
            programs: Vec::new(),
            programs_before: 0,
            programs_left: 0,
            succeeded: Vec::new(),
        };
        work(models.entry(seed).or_insert_with(new))
    }
}

fn reply(wire: Wire, State(models): State<RandomModels>, body: &[u8]) -> Response<Body> {
    let request: Value = serde_json::from_slice(body).unwrap();
    let name = request["model"].as_str().unwrap();
    let seed: u64 = name.trim_start_matches('m').trim_end_matches("-b").parse().unwrap_or_default();
    let is_offered = request["tools"].to_string().contains("\"execute\"");
    let turn = models.with(seed, |model| model.turn(&request, is_offered));
    let reply = ScriptedModel::parse(&turn).unwrap().reply(wire, &request);
    let whole: Vec<u8> = reply.chunks.iter().flat_map(|piece| piece.bytes.to_vec()).collect();
    let mut response = Response::new(Body::from(whole));
    *response.status_mut() = axum::http::StatusCode::from_u16(reply.status).unwrap();
    for (name, value) in reply.headers {
        response.headers_mut().insert(axum::http::HeaderName::try_from(name).unwrap(), value.try_into().unwrap());
    }
    response
}

impl RandomModel {
    /// The next turn of its script.
    fn turn(&mut self, request: &Value, is_offered: bool) -> String {
        let result = last_result(request);
        let data = result.map(|mut result| result["data"].take());
        let number = data.as_ref().and_then(|data| usize::try_from(data["program"].as_u64()?).ok());
        // Answers of earlier questions may have been cleared since.
        let number = number.filter(|number| *number >= self.programs_before);
        if let (Some(number), Some(data)) = (number, &data) {
            self.succeeded.push((number, data["out"].clone()));
        }
        // What a program has done with success may be done again, so it is not asked for.
        let has_succeeded = number.is_some();
        if !is_offered || has_succeeded || self.programs_left == 0 {
            return "[[turn]]\ntext = \"done\"\n".to_owned();
        }
        self.programs_left -= 1;
        let number = self.programs.len();
        let repeats = number > 0 && self.random.percent(50);
        let mut program = if repeats {
            // Models repeat most of what has failed.
            self.programs[number - 1].clone()
        } else {
            RandomProgram::new(number, &mut self.random)
        };
        if repeats {
            let end = program.code.rfind("return {program").unwrap();
            program.code.truncate(end);
            program.code = program.code.replace("throw new Error('by design');\n", "");
            writeln!(program.code, "return {{program: {number}, out}};").unwrap();
        }
        self.programs.push(program.clone());
        format!("[[turn]]\nprogram = '''\n{}'''\n", program.code)
    }
}

/// The last result of a program that the model is shown.
fn last_result(request: &Value) -> Option<Value> {
    fn walk(value: &Value, last: &mut Option<Value>) {
        match value {
            Value::String(text) if text.starts_with("{\"status\":") => {
                *last = serde_json::from_str(text).ok().or(last.take());
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, last)),
            Value::Object(fields) => fields.values().for_each(|field| walk(field, last)),
            _ => {}
        }
    }
    let mut last = None;
    walk(request.get("messages").or(request.get("input"))?, &mut last);
    last
}

/// How a client treats its history.
#[derive(Debug)]
struct Habits {
    reminders: Option<Reminders>,
    /// Percentages.
    trims: usize,
    clears: usize,
    partial: usize,
    shuffles: usize,
    retries: usize,
    interrupts: usize,
    switches_model: usize,
    merges: usize,
    tool_fails: usize,
}

#[derive(Debug, Clone, Copy)]
enum Reminders {
    /// In every request, and not part of the history.
    AtTheEnd,
    /// After every result.
    AfterResults,
    /// As text of the user, wrapped.
    Wrapped,
}

pub(crate) struct RandomClient {
    seed: u64,
    random: Random,
    conversation: ClientConversation,
    habits: Habits,
    gateways: Arc<[String]>,
    models: RandomModels,
    http: reqwest::Client,
    on_failure: OnFailure,
    /// Writes that succeeded since the last final answer of the model.
    done: BTreeMap<String, usize>,
    executions: usize,
    /// Everything that the tools said.
    answers: BTreeSet<String>,
    /// Answers that the client has not sent: the call, its text, and how many programs the model had written.
    late: Vec<(Call, String, usize)>,
    log: Vec<String>,
    requests: usize,
}

impl RandomClient {
    /// Each of its requests goes to one of the gateways.
    pub(crate) fn new(
        seed: u64,
        gateways: Arc<[String]>,
        models: RandomModels,
        http: reqwest::Client,
        on_failure: OnFailure,
    ) -> RandomClient {
        let mut random = Random(seed);
        let tools: Vec<Value> = WRITES
            .iter()
            .chain(&READS)
            .map(|name| {
                let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
                json!({"function": {"name": name, "description": "Does it.", "parameters": schema}})
            })
            .collect();
        let mut conversation = ClientConversation::declared(Wire::ALL[random.below(3)], &Value::Array(tools));
        conversation.explicit = random.percent(40);
        conversation.extra = json!({"model": format!("m{seed}"), "stream": random.percent(40)});
        let sometimes = |random: &mut Random, percent: usize| if random.percent(40) { percent } else { 0 };
        let reminders = [None, Some(Reminders::AtTheEnd), Some(Reminders::AfterResults), Some(Reminders::Wrapped)];
        let habits = Habits {
            reminders: reminders[random.below(4)],
            trims: sometimes(&mut random, 40),
            clears: sometimes(&mut random, 40),
            partial: sometimes(&mut random, 30),
            shuffles: sometimes(&mut random, 60),
            retries: sometimes(&mut random, 20),
            interrupts: sometimes(&mut random, 20),
            switches_model: sometimes(&mut random, 20),
            merges: sometimes(&mut random, 50),
            tool_fails: sometimes(&mut random, 20),
        };
        RandomClient {
            seed,
            random,
            conversation,
            habits,
            gateways,
            models,
            http,
            on_failure,
            done: BTreeMap::new(),
            executions: 0,
            answers: BTreeSet::new(),
            late: Vec::new(),
            log: Vec::new(),
            requests: 0,
        }
    }

    /// Plays the conversation to its end.
    pub(crate) async fn play(mut self) -> Played {
        let outcome = self.converse().await;
        self.models.forget(self.seed);
        let (seed, wire, explicit) = (self.seed, self.conversation.wire, self.conversation.explicit);
        let failure = outcome.err().map(|(kind, problem)| {
            let log = self.log.join("\n");
            let habits = &self.habits;
            let story = format!("DACAPO_SEED={seed}: {problem}\n{wire:?}, explicit: {explicit}, {habits:?}\n{log}");
            Failure { kind, story }
        });
        Played { requests: self.requests, executed: self.executions, failure }
    }

    async fn converse(&mut self) -> Result<(), Problem> {
        // Those that are repeated because a gateway is down do not count.
        let mut requests = 0;
        for question in 0..=self.random.below(2) {
            self.ask(&format!("Question {question}: pay what is due."));
            loop {
                if requests >= REQUESTS_MAX {
                    return Err((FailureKind::Lost, "the conversation does not end".to_owned()));
                }
                requests += 1;
                let calls = self.send().await?;
                if calls.is_empty() {
                    break;
                }
                self.react(calls)?;
            }
            self.check_results()?;
            // The model has given its final answer: what was done before may be done again.
            self.done.clear();
            self.late.clear();
            self.models.with(self.seed, |model| model.programs_before = model.programs.len());
        }
        Ok(())
    }

    fn ask(&mut self, text: &str) {
        self.log.push(format!("user: {text}"));
        let programs = 1 + self.random.below(4);
        self.models.with(self.seed, |model| model.programs_left = programs);
        self.say(text);
    }

    /// Adds a message of the user, where the wire has it.
    fn say(&mut self, text: &str) {
        let history = &mut self.conversation.history;
        match history.last_mut() {
            Some(last)
                if self.conversation.wire == Wire::Messages && last["role"] == "user" && last["content"].is_array() =>
            {
                last["content"].as_array_mut().unwrap().push(json!({"type": "text", "text": text}));
            }
            _ => self.conversation.user(text),
        }
    }

    /// Sends the history as the client's habits make it. Returns the calls of the response.
    async fn send(&mut self) -> Result<Vec<Call>, Problem> {
        self.edit_history();
        if self.random.percent(self.habits.switches_model) {
            let name = format!("m{}{}", self.seed, ["", "-b"][self.random.below(2)]);
            self.log.push(format!("model {name}"));
            self.conversation.extra["model"] = json!(name);
        }
        let (path, mut body) = self.conversation.request();
        self.add_reminders(&mut body);
        let times = 1 + usize::from(self.random.percent(self.habits.retries));
        let mut text = String::new();
        for _ in 0..times {
            text = self.post(path, &body).await?;
        }
        let response = self.conversation.read_response(&text);
        let calls: Vec<String> = response.calls.iter().map(|call| format!("{}{}", call.name, call.args)).collect();
        self.log.push(format!("{} requests, model said {:?}, calls {calls:?}", times, response.text));
        Ok(response.calls)
    }

    async fn post(&mut self, path: &str, body: &Value) -> Result<String, Problem> {
        let begun = Instant::now();
        loop {
            let url = format!("{}{path}", self.gateways[self.random.below(self.gateways.len())]);
            self.requests += 1;
            let problem = match self.http.post(url).body(body.to_string()).send().await {
                Ok(response) => {
                    let status = response.status();
                    match response.text().await {
                        Ok(text) if status == 200 && !is_broken(self.conversation.wire, &text) => return Ok(text),
                        Ok(text) => format!("{status}: {text}\n{body:#}"),
                        Err(error) => format!("a broken response: {error:?}"),
                    }
                }
                Err(error) => format!("no response: {error:?}"),
            };
            match self.on_failure {
                // What a client did wrong stays wrong.
                OnFailure::Retry(time) if begun.elapsed() < time && !problem.starts_with("400") => {
                    tokio::time::sleep(Duration::from_millis(50 + self.random.below(200) as u64)).await;
                }
                OnFailure::Retry(_) | OnFailure::Stop => return Err((FailureKind::Lost, problem)),
            }
        }
    }

    /// Executes calls and answers them, in whatever way.
    fn react(&mut self, mut calls: Vec<Call>) -> Result<(), Problem> {
        let programs = self.models.with(self.seed, |model| model.programs.len());
        if self.random.percent(self.habits.interrupts) {
            return self.interrupt(&calls, programs);
        }
        if self.random.percent(self.habits.shuffles) {
            self.random.shuffle(&mut calls);
        }
        let mut answered = Vec::new();
        let is_partial = calls.len() > 1 && self.random.percent(self.habits.partial);
        let last = calls.len() - 1;
        for (at, call) in calls.iter().enumerate() {
            let text = call_text(&call.name, usize::try_from(call.args["n"].as_u64().unwrap()).unwrap());
            // A call that this program was waiting for already: the client knows what came of it.
            let known = self
                .late
                .iter()
                .position(|(late, _, of)| late.name == call.name && late.args == call.args && *of == programs);
            if let Some(known) = known {
                let (old, answer, _) = self.late.remove(known);
                let has_old = Value::from(self.conversation.history.clone()).to_string().contains(&old.id);
                let ids = if has_old { self.random.below(3) } else { 0 };
                self.log
                    .push(format!("answers {text} late, {}", ["as called again", "as called before", "twice"][ids]));
                if ids > 0 {
                    answered.push((old, answer.clone(), false));
                }
                if ids != 1 {
                    answered.push((call.clone(), answer, false));
                }
                continue;
            }
            if is_partial && (at < last || answered.is_empty()) && at != 0 {
                if self.random.percent(50) {
                    let (answer, is_error) = self.execute(&text)?;
                    if !is_error {
                        self.log.push(format!("executes {text}, and does not answer it"));
                        self.late.push((call.clone(), answer, programs));
                    }
                } else {
                    self.log.push(format!("skips {text}"));
                }
                continue;
            }
            let (answer, is_error) = self.execute(&text)?;
            answered.push((call.clone(), answer, is_error));
        }
        for (call, answer, is_error) in answered {
            self.conversation.answer(&call, &answer, is_error);
        }
        Ok(())
    }

    /// The user says something while calls are open; some of them were executed, and some are answered.
    fn interrupt(&mut self, calls: &[Call], programs: usize) -> Result<(), Problem> {
        for call in calls {
            // The client knows what came of a call that it did not answer before.
            if self.late.iter().any(|(late, _, of)| late.name == call.name && late.args == call.args && *of == programs)
            {
                continue;
            }
            let text = call_text(&call.name, usize::try_from(call.args["n"].as_u64().unwrap()).unwrap());
            if self.random.percent(60) {
                let (answer, is_error) = self.execute(&text)?;
                if self.random.percent(70) {
                    self.conversation.answer(call, &answer, is_error);
                } else {
                    self.log.push(format!("does not answer {text}"));
                }
            }
        }
        if self.conversation.wire == Wire::Chat && self.conversation.explicit {
            // A block of an explicit client holds nothing but calls and answers, so the client closes it.
            let code = self.conversation.history.iter().rfind(|message| message["role"] == "code").unwrap();
            let error = json!({"kind": "abandoned", "message": "interrupted by the user"});
            let result = json!({"status": "error", "error": error});
            let result = json!({"role": "code_result", "id": code["id"], "result": result});
            self.conversation.history.push(result);
        }
        self.ask("No, wait. Do it in another way.");
        Ok(())
    }

    /// Executes a call. It is an error if the record should have answered it.
    fn execute(&mut self, call: &str) -> Result<(String, bool), Problem> {
        self.executions += 1;
        let is_write = WRITES.iter().any(|tool| call.starts_with(tool));
        if self.random.percent(self.habits.tool_fails) {
            self.log.push(format!("fails {call}"));
            return Ok(("Error: 503 try again".to_owned(), true));
        }
        let answer = format!("{call} #{}", self.executions);
        self.log.push(format!("executes {answer}"));
        self.answers.insert(answer.clone());
        if is_write {
            let fresh = self.models.with(self.seed, |model| {
                let written = model.programs[model.programs_before..].iter().flat_map(|program| &program.fresh);
                written.filter(|fresh| *fresh == call).count()
            });
            let done = self.done.entry(call.to_owned()).or_default();
            *done += 1;
            if *done > 1 + fresh {
                let problem = format!("{call} was executed {done} times, and asked for afresh {fresh} times");
                return Err((FailureKind::Twice, problem));
            }
        }
        Ok((answer, false))
    }

    /// Programs that succeeded have exactly what the tools said.
    fn check_results(&self) -> Result<(), Problem> {
        self.models.with(self.seed, |model| {
            for (number, out) in model.succeeded.drain(..) {
                let program = &model.programs[number];
                let out: Vec<&str> = out.as_array().unwrap().iter().map(|value| value.as_str().unwrap()).collect();
                let is_true = |value: &str| {
                    value.starts_with("caught: ") || self.answers.contains(value) || value.starts_with("Error: 503")
                };
                let fits = |(value, expected): (&&str, &Option<String>)| {
                    is_true(value)
                        && (!self.answers.contains(*value)
                            || expected.as_ref().is_none_or(|call| value.starts_with(&format!("{call} #"))))
                };
                if out.len() != program.results.len() || !out.iter().zip(&program.results).all(fits) {
                    let problem = format!("program {number} got {out:?}\n{}", program.code);
                    return Err((FailureKind::WrongBytes, problem));
                }
            }
            Ok(())
        })
    }

    fn is_model_entry(&self, entry: &Value) -> bool {
        match self.conversation.wire {
            Wire::Chat => matches!(entry["role"].as_str(), Some("assistant" | "code")),
            Wire::Messages => entry["role"] == "assistant",
            Wire::Responses => {
                entry["role"] == "assistant"
                    || matches!(entry["type"].as_str(), Some(kind) if kind != "message" && kind != "function_call_output")
            }
        }
    }

    /// Positions where the model begins to speak.
    fn exchanges(&self) -> Vec<usize> {
        let history = &self.conversation.history;
        let begins =
            |at: &usize| self.is_model_entry(&history[*at]) && (*at == 0 || !self.is_model_entry(&history[at - 1]));
        (0..history.len()).filter(begins).collect()
    }

    /// Cuts old exchanges, and replaces old answers.
    fn edit_history(&mut self) {
        let exchanges = self.exchanges();
        if exchanges.len() > 1 && self.random.percent(self.habits.clears) {
            let last = exchanges[exchanges.len() - 1];
            self.log.push("clears old answers".to_owned());
            for entry in &mut self.conversation.history[..last] {
                clear_answers(entry);
            }
        }
        if self.random.percent(self.habits.merges) {
            self.merge_messages();
        }
        let exchanges = self.exchanges();
        if exchanges.len() > 1 && self.random.percent(self.habits.trims) {
            let to = exchanges[1 + self.random.below(exchanges.len() - 1)];
            self.log.push(format!("cuts entries {} to {to}", exchanges[0]));
            self.conversation.history.drain(exchanges[0]..to);
            // A result without its program would be an error of the client.
            let history = &mut self.conversation.history;
            let codes: BTreeSet<String> =
                history.iter().filter(|entry| entry["role"] == "code").map(|entry| entry["id"].to_string()).collect();
            history.retain(|entry| entry["role"] != "code_result" || codes.contains(&entry["id"].to_string()));
        }
    }

    /// Joins texts of the user that follow each other.
    fn merge_messages(&mut self) {
        let mut merged: Vec<Value> = Vec::new();
        for entry in std::mem::take(&mut self.conversation.history) {
            let is_text = |entry: &Value| entry["role"] == "user" && entry["content"].is_string();
            match merged.last_mut() {
                Some(last) if is_text(last) && is_text(&entry) => {
                    let text = |entry: &Value| entry["content"].as_str().unwrap().to_owned();
                    last["content"] = json!(format!("{}\n{}", text(last), text(&entry)));
                }
                _ => merged.push(entry),
            }
        }
        self.conversation.history = merged;
    }

    /// Adds what clients send beside tool results, to this request only.
    fn add_reminders(&mut self, body: &mut Value) {
        let Some(reminders) = self.habits.reminders else { return };
        let wire = self.conversation.wire;
        if wire == Wire::Chat && self.conversation.explicit {
            return;
        }
        let key = if wire == Wire::Responses { "input" } else { "messages" };
        let entries = body[key].as_array_mut().unwrap();
        let is_results = |entry: &Value| {
            let blocks = entry["content"].as_array();
            entry["role"] == "tool"
                || entry["type"] == "function_call_output"
                || blocks.is_some_and(|blocks| blocks.iter().any(|block| block["type"] == "tool_result"))
        };
        let reminder = |role: &str, text: &str| json!({"role": role, "content": text});
        match (reminders, wire) {
            (_, Wire::Messages) => {
                for entry in entries.iter_mut().filter(|entry| is_results(entry)) {
                    entry["content"].as_array_mut().unwrap().push(json!({"type": "text", "text": REMINDER}));
                }
            }
            (Reminders::AtTheEnd, Wire::Chat) => entries.push(reminder("system", "Mind the budget.")),
            (Reminders::AtTheEnd, _) => entries.push(reminder("developer", "Mind the budget.")),
            (Reminders::AfterResults, _) => {
                let with = |entry: Value| {
                    let is_last = is_results(&entry);
                    std::iter::once(entry).chain(is_last.then(|| reminder("developer", "Mind the budget.")))
                };
                *entries = std::mem::take(entries).into_iter().flat_map(with).collect();
            }
            (Reminders::Wrapped, _) => {
                if entries.last().is_some_and(is_results) {
                    entries.push(reminder("user", REMINDER));
                }
            }
        }
    }
}

fn clear_answers(entry: &mut Value) {
    const CLEARED: &str = "[cleared to save context]";
    if entry["role"] == "tool" {
        entry["content"] = json!(CLEARED);
    } else if entry["type"] == "function_call_output" {
        entry["output"] = json!(CLEARED);
    } else if entry["role"] == "user" {
        for block in entry.get_mut("content").and_then(Value::as_array_mut).into_iter().flatten() {
            if block["type"] == "tool_result" {
                block["content"] = json!(CLEARED);
            }
        }
    }
}

/// Whether a stream ends with an error.
fn is_broken(wire: Wire, text: &str) -> bool {
    let is_stream = text.starts_with("data: ") || text.starts_with("event: ");
    is_stream && {
        let events = client_conversation::events(text);
        let has_error = |event: &Value| event.get("error").is_some_and(|error| !error.is_null());
        let is_end = |event: &Value| match wire {
            Wire::Chat => event["choices"][0]["finish_reason"].is_string(),
            Wire::Responses => event["type"] == "response.completed",
            Wire::Messages => event["type"] == "message_stop",
        };
        events.iter().any(has_error) || !events.iter().any(is_end)
    }
}
