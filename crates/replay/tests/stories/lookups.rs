//! Programs that ask about their own tools: `search` and `describe`.

use dacapo_replay::{Program, undefined_functions};
use serde_json::{Value, json};

use crate::client::ProgramStory;

fn tools() -> Value {
    let city = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    json!([
        { "name": "get-weather", "description": "Forecast for a city.", "input_schema": city },
        { "name": "create_issue", "description": "Opens an issue.", "server": "github" },
        { "name": "list_issues", "server": "github" },
        { "name": "send_mail", "description": "Sends a mail." },
    ])
}

fn with_tools(code: &str) -> ProgramStory {
    ProgramStory::new(code).with("tools", tools())
}

fn weather() -> Value {
    json!({
        "name": "get_weather",
        "description": "Forecast for a city.",
        "declaration": "/** Forecast for a city. */\ndeclare function get_weather(args: { city: string }): Promise<unknown>;",
    })
}

fn create_issue() -> Value {
    json!({
        "name": "github.create_issue",
        "description": "Opens an issue.",
        "declaration": "declare namespace github {\n /** Opens an issue. */\n function create_issue(args?: Record<string, unknown>): Promise<unknown>;\n}",
    })
}

#[test]
fn a_program_finds_its_tools_and_calls_what_it_found() {
    let transcript = with_tools(
        "const [best] = await search('weather forecast');
         const call = new Function('args', `return ${best.name}(args)`);
         return [best, await call({ city: 'Paris' })]",
    )
    .play_with_names();
    assert_eq!(transcript.rounds, [[r#"get-weather({"city":"Paris"})"#]]);
    assert_eq!(transcript.result["data"], json!([weather(), "get-weather"]));

    let forms = "const names = async (found) => (await found).map(({ name }) => name);
         return [await names(search('issue', { limit: 1 })), await names(search({ query: 'issue', limit: 1 })),
                 await names(search('issue', undefined)), await names(search('')), await names(search('zzzz qqqq'))]";
    assert_eq!(
        with_tools(forms).data(),
        json!([
            ["github.create_issue"],
            ["github.create_issue"],
            ["github.create_issue", "github.list_issues"],
            ["github.create_issue", "get_weather", "github.list_issues", "send_mail"],
            []
        ])
    );
}

#[test]
fn a_program_asks_for_several_steps_and_gets_the_best_tool_of_each_in_their_order() {
    let code = "const names = async (found) => (await found).map(({ name }) => name);
         const steps = ['weather forecast', 'send a mail'];
         return [await names(search(steps, { limit: 1 })), await names(search({ queries: steps, limit: 1 }))]";
    assert_eq!(with_tools(code).data(), json!([["get_weather", "send_mail"], ["get_weather", "send_mail"]]));
}

#[test]
fn a_tool_is_described_by_every_name_it_has() {
    let code =
        "const names = ['get-weather', 'get_weather', 'getWeather', 'github.create_issue', 'github.createIssue'];
         return Promise.all(names.map(describe))";
    let (weather, create_issue) = (weather(), create_issue());
    assert_eq!(with_tools(code).data(), json!([weather, weather, weather, create_issue, create_issue]));

    let unknown = "const settled = await Promise.allSettled(['get_wether', 'create_issue', 'zzzz'].map(describe));
         return settled.map(({ reason: { name, tool, message } }) => `${name} ${tool}: ${message}`)";
    assert_eq!(
        with_tools(unknown).data(),
        json!([
            r#"ToolError describe: no tool has the name "get_wether"; did you mean get_weather?"#,
            r#"ToolError describe: no tool has the name "create_issue"; did you mean github.create_issue?"#,
            r#"ToolError describe: no tool has the name "zzzz"; the tools are get_weather, github.create_issue, github.list_issues, send_mail"#,
        ])
    );
    let none = "try { await describe('a') } catch (e) { return e.message }";
    assert_eq!(
        ProgramStory::new(none).with("tools", json!([])).data(),
        r#"no tool has the name "a"; there are no tools"#
    );
}

#[test]
fn wrong_arguments_are_refused_before_they_count() {
    let calls = [
        "search()",
        "search(3)",
        "search('x', 3)",
        "search('x', { limit: 51 })",
        "search({ query: 'x', limit: 0.5 })",
        "search({ query: 'x', max: 1 })",
        "search(() => 'x')",
        "describe()",
        "describe(null)",
        "describe({ tool: 'a' })",
    ];
    let code = format!(
        "const settled = await Promise.allSettled([{}]);
         return settled.map(({{ reason }}) => `${{reason.name}}: ${{reason.message}}`).join('\\n')",
        calls.join(", ")
    );
    let said = ProgramStory::new(&code).with("limits", json!({ "calls": 1 })).data();
    insta::assert_snapshot!(said.as_str().expect("text"));
}

#[test]
fn a_lookup_settles_in_issue_order_takes_a_number_and_is_never_handed_out() {
    let transcript = ProgramStory::new(
        "const order = [];
         const note = (name, promise) => promise.then(() => order.push(name));
         const all = [note('a', a()), note('search', search('a')), note('b', b()), note('describe', describe('a'))];
         order.push('issued');
         await Promise.all(all);
         await search('later');
         await c();
         throw new Error(order.join(' '))",
    )
    .with("reuse", json!([{ "tool": "b", "args": {}, "ok": 1 }]))
    .play_with_names();
    assert_eq!(transcript.rounds, [["a({})"], ["c({})"]]);
    let error = &transcript.result["error"];
    assert_eq!(
        (&error["message"], &error["completed"], &error["unfinished"]),
        (
            &json!("issued search b describe a"),
            &json!([{ "call": 0, "tool": "a", "args": {} }, { "call": 2, "tool": "b", "args": {} }, { "call": 5, "tool": "c", "args": {} }]),
            &json!([])
        )
    );

    let forged = ProgramStory::new("return await search('a')")
        .with("journal", json!([{ "call": 0, "tool": "search", "args": ["a"], "ok": "forged" }]));
    let error = &forged.step()["result"]["error"];
    assert_eq!((&error["kind"], &error["actual"]), (&json!("diverged"), &json!({ "tool": "search", "args": ["a"] })));
}

#[test]
fn tools_and_programs_may_take_the_names() {
    let claimed = |tools: Value, code: &str| {
        let transcript = ProgramStory::new(code).with("tools", tools).play_with_names();
        (transcript.rounds.concat(), transcript.result["data"].clone())
    };
    let call = "return [await search({ q: 1 }), await describe('search').then(({ name }) => name)]";
    assert_eq!(
        claimed(json!([{ "name": "search" }]), call),
        (vec![r#"search({"q":1})"#.into()], json!(["search", "search"]))
    );
    let namespace = json!([{ "name": "web", "server": "search" }]);
    assert_eq!(
        claimed(namespace, "return [await search.web(), typeof describe]"),
        (vec!["search.web({})".into()], json!(["search.web", "function"]))
    );
    let alias = json!([{ "name": "Describe" }]);
    assert_eq!(claimed(alias, "return await describe()"), (vec!["Describe({})".into()], json!("Describe")));

    for own in [
        "function search() { return 7 } return search()",
        "const search = () => 7; return search()",
        "search = () => 7; return search()",
        "async function main(search = () => 7) { return search() }",
        "return ['search', 'describe'].filter((name) => name in tools).length + 7",
    ] {
        assert_eq!(ProgramStory::new(own).data(), 7, "{own}");
    }
    assert_eq!(undefined_functions(&Program::new("await search('x'); describe('y'); serch()")), ["serch"]);
}

#[test]
fn lookups_are_paid_for_in_calls_and_in_fuel() {
    let endless = "for (;;) await search('a', { limit: 1 })";
    for limits in [json!({ "calls": 10 }), json!({ "fuel": 5_000_000 })] {
        let error = ProgramStory::new(endless).with("limits", limits.clone()).error();
        let name = limits.as_object().and_then(|limits| limits.keys().next()).expect("one limit");
        assert_eq!((&error["kind"], &error["limit"]), (&json!("limit"), &json!(name)));
    }
    let many: Vec<Value> = (0..1_000).map(|n| json!({ "name": format!("tool_{n}") })).collect();
    let used =
        |tools: Value| ProgramStory::new("await search('a')").with("tools", tools).step()["usage"]["fuel"].clone();
    let (few, many) = (used(json!([])), used(json!(many)));
    assert!(few.as_u64() < many.as_u64(), "{few} {many}");
}
