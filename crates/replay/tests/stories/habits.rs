//! Programs in the styles of other systems: what models have learned to write works here too.

use serde_json::{Value, json};

use crate::client::ProgramStory;

/// One program of the corpus: its style, its source, the calls that it makes, and what it ends with.
struct Sample {
    style: String,
    code: String,
    calls: Vec<String>,
    /// The result; or, where a program returns nothing, what it wrote.
    end: String,
}

/// Samples are separated by lines `=== style`; a line `--- ` begins a call, `>>> ` the end.
fn corpus() -> Vec<Sample> {
    let text = include_str!("habits/corpus.txt");
    let parts = text.split("\n=== ").skip(1);
    parts
        .map(|part| {
            let (style, rest) = part.split_once('\n').expect("a style");
            let is_code = |line: &&str| !line.starts_with("--- ") && !line.starts_with(">>> ");
            let code: Vec<&str> = rest.lines().take_while(is_code).collect();
            let after = rest.lines().skip(code.len());
            let calls = after.clone().filter_map(|line| line.strip_prefix("--- ")).map(str::to_owned).collect();
            let end: Vec<&str> = after.filter_map(|line| line.strip_prefix(">>> ")).collect();
            Sample { style: style.to_owned(), code: code.join("\n"), calls, end: end.join("\n") }
        })
        .collect()
}

/// An office with a shop, as tools of a client and of two servers.
fn tools() -> Value {
    let object = |properties: Value, required: Value| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let text = || json!({ "type": "string" });
    let tool = |name: &str, properties: Value, required: Value| json!({ "name": name, "description": format!("Tool {name}."), "input_schema": object(properties, required) });
    let of = |server: &str, name: &str, properties: Value, required: Value| {
        let mut tool = tool(name, properties, required);
        tool["server"] = json!(server);
        tool
    };
    json!([
        tool("web_search", json!({ "query": text(), "limit": { "type": "integer" } }), json!(["query"])),
        tool("get_weather", json!({ "city": text(), "unit": { "enum": ["c", "f"] } }), json!(["city"])),
        tool("get_order", json!({ "id": { "type": "integer" } }), json!(["id"])),
        tool("list_orders", json!({ "status": text() }), json!([])),
        tool(
            "send_email",
            json!({ "subject": text(), "to": text(), "body": text() }),
            json!(["to", "subject", "body"])
        ),
        tool(
            "math.stats.mean",
            json!({ "numbers": { "type": "array", "items": { "type": "number" } } }),
            json!(["numbers"])
        ),
        tool("mcp__drive__get_document", json!({ "documentId": text() }), json!(["documentId"])),
        of("github", "create_issue", json!({ "repo": text(), "title": text() }), json!(["repo", "title"])),
        of("github", "issues_list", json!({ "repo": text() }), json!(["repo"])),
        of("google-calendar", "list-events", json!({ "day": text() }), json!([])),
    ])
}

fn answer(tool: &str, args: &Value) -> Value {
    json!({ "ok": match tool {
        "web_search" => json!([{ "title": format!("About {}", args["query"].as_str().unwrap_or_default()), "url": "https://a.example" }]),
        "get_weather" => json!({ "city": args["city"], "temperature": 21 }),
        "get_order" => json!({ "id": args["id"], "total": 10 }),
        "list_orders" => json!({ "orders": [{ "id": 1 }, { "id": 2 }] }),
        "send_email" => json!({ "sent": true }),
        "math.stats.mean" => json!(2),
        "mcp__drive__get_document" => json!({ "content": "minutes" }),
        "github.create_issue" => json!({ "number": 7 }),
        "github.issues_list" => json!([{ "number": 7, "title": "Bug" }]),
        _ => json!([{ "title": "Standup" }]),
    } })
}

#[test]
fn programs_in_the_styles_of_other_systems_run() {
    let samples = corpus();
    assert!(samples.len() >= 60, "{}", samples.len());
    let mut wrong = Vec::new();
    for sample in samples {
        let transcript = ProgramStory::new(&sample.code).with("tools", tools()).play(answer);
        let end = match (&transcript.result["data"], transcript.result["status"].as_str()) {
            (Value::Null, Some("success")) => transcript.logs.join("\n"),
            (data, Some("success")) => data.to_string(),
            (_, _) => transcript.result["error"]["message"].as_str().unwrap_or_default().to_owned(),
        };
        let calls: Vec<String> = transcript.rounds.concat();
        if (&calls, &end) != (&sample.calls, &sample.end) {
            wrong.push(format!("=== {}\n--- {}\n>>> {end}\n", sample.style, calls.join("\n--- ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

/// What a program says of its own error.
fn caught(code: &str) -> String {
    let code =
        format!("try {{ {code}; return 'nothing was thrown' }} catch (e) {{ return e.name + ': ' + e.message }}");
    let transcript = ProgramStory::new(&code).with("tools", tools()).play(answer);
    let data = transcript.result["data"].as_str().map(str::to_owned);
    data.unwrap_or_else(|| transcript.result["error"]["message"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_promise_is_not_a_value() {
    let of_tool = "TypeError: `get_order(…)` is a promise: write `await` before it";
    for code in [
        "const order = get_order({ id: 1 }); web_search({ query: order.total })",
        "const { total } = get_order({ id: 1 })",
        "get_order({ id: 1 }).map((x) => x)",
        "get_order({ id: 1 })?.total",
        "get_order({ id: 1 })[0]",
        "`order: ${get_order({ id: 1 })}`",
        "'order: ' + get_order({ id: 1 })",
        "String(get_order({ id: 1 }))",
        "get_order({ id: 1 }).toString()",
        "get_order({ id: 1 }) > 3",
        "JSON.stringify({ order: get_order({ id: 1 }) })",
        "({ ...get_order({ id: 1 }) })",
        "Object.keys(get_order({ id: 1 }))",
        "for (const line of get_order({ id: 1 })) ;",
        "const [first] = get_order({ id: 1 })",
        "console.log('the order', get_order({ id: 1 }))",
        "text(get_order({ id: 1 }))",
    ] {
        assert_eq!(caught(code), of_tool, "{code}");
    }
    assert_eq!(
        caught("await web_search({ query: get_order({ id: 1 }) })"),
        "TypeError: arguments.query: `get_order(…)` is a promise: write `await` before it"
    );
    let of_any = "TypeError: this is a promise: write `await` before it";
    assert_eq!(caught("const load = async () => get_order({ id: 1 }); load().total"), of_any);
    assert_eq!(caught("`${get_order({ id: 1 }).then((o) => o.total)}`"), of_any);
}

#[test]
fn a_promise_stays_a_promise() {
    let code = "
        const p = get_order({ id: 1 });
        p.label = 'mine';
        const kinds = [p instanceof Promise, typeof p.then, p.label, 'total' in p, Object.prototype.toString.call(p), p.hasOwnProperty('label')];
        const all = await Promise.all([p, p.then((o) => o.total), Promise.race([p]), (async () => p)()]);
        const settled = (await Promise.allSettled([p]))[0].status;
        const cache = {}; cache.a ??= p; const again = cache.a || get_order({ id: 2 });
        console.log(Promise.resolve(1));
        return [kinds, all[1], settled, (await again).id, await p.finally(() => 1).then(({ id }) => id)]";
    let transcript = ProgramStory::new(code).with("tools", tools()).play(answer);
    assert_eq!(
        (&transcript.result["data"], &transcript.logs[..], transcript.rounds.concat().len()),
        (
            &json!([[true, "function", "mine", false, "[object Promise]", true], 10, "fulfilled", 1, 1]),
            &["\"[Promise]\"".to_owned()][..],
            1
        )
    );
}

#[test]
fn a_tools_own_name_wins() {
    let named =
        ["text", "print", "emit", "notify", "sleep", "require", "callTool", "codemode", "api", "ALL_TOOLS", "image"];
    let list: Vec<Value> = named.iter().map(|name| json!({ "name": name })).collect();
    for name in named {
        let code = format!("return await {name}({{}})");
        let transcript = ProgramStory::new(&code).with("tools", json!(list)).play_with_names();
        assert_eq!((&transcript.result["data"], &transcript.logs[..]), (&json!(name), &[][..]), "{name}");
    }
    // A server's tool too: what it would have been asked to do must not only be printed.
    let slack = json!([{ "name": "notify", "server": "slack" }]);
    let transcript = ProgramStory::new("await notify({}); return 1").with("tools", slack).play_with_names();
    assert_eq!(transcript.rounds, [["slack.notify({})"]]);
    let two = json!([{ "name": "create", "server": "jira" }, { "name": "create", "server": "github" }]);
    let error = ProgramStory::new("await create({})").with("tools", two).error();
    assert_eq!(
        error["message"],
        "create is not defined: no tool has this name; did you mean github.create or jira.create?"
    );
}

#[test]
fn what_cannot_be_imported_is_said_where_it_is_imported() {
    for (code, message, line) in [
        (
            "import { nope } from \"tools\";\nreturn 1",
            "cannot import `nope` from \"tools\": no tool has this name; the tools are web_search, get_weather, get_order, list_orders, send_email, math_stats_mean, mcp__drive__get_document, github.create_issue, github.issues_list, google_calendar.list_events",
            1,
        ),
        (
            "// files\nimport fs from 'fs';\nfs.readFileSync('a')",
            "cannot import \"fs\": there are no files here; use the tools",
            2,
        ),
        (
            "import { get_ordr } from './tools'",
            "cannot import `get_ordr` from \"./tools\": no tool has this name; did you mean get_order?",
            1,
        ),
        (
            "const axios = require('axios');\nawait axios.get('https://x')",
            "cannot import \"axios\": there is no network here; use the tools",
            1,
        ),
        (
            "const { readFile } = await import('node:fs/promises')",
            "cannot import \"node:fs/promises\": there are no files here; use the tools",
            1,
        ),
    ] {
        let error = ProgramStory::new(code).with("tools", tools()).error();
        let found = error["message"].as_str().unwrap_or_default();
        assert!(found.starts_with(message), "{code}\n{found}");
        assert_eq!((&error["name"], &error["line"]), (&json!("ReferenceError"), &json!(line)), "{code}");
    }
}

#[test]
fn positional_arguments_fill_properties_only_when_every_value_fits() {
    for (call, sent) in [
        ("web_search('news', 3)", r#"web_search({"query":"news","limit":3})"#),
        // Required properties first, in the order of the schema.
        ("send_email('hi', 'ann@x', 'text')", r#"send_email({"subject":"hi","to":"ann@x","body":"text"})"#),
        ("web_search('news', { limit: 3 })", r#"web_search({"query":"news","limit":3})"#),
        ("web_search('news', undefined)", r#"web_search({"query":"news"})"#),
        ("tools['math.stats.mean']([1, 2, 3])", r#"math.stats.mean({"numbers":[1,2,3]})"#),
        ("Promise.all(['a'].map(web_search))", r#"web_search({"query":"a"})"#),
        ("Promise.all(Array.from(['a'], web_search))", r#"web_search({"query":"a"})"#),
        ("web_search.call(null, 'news', 3)", r#"web_search({"query":"news","limit":3})"#),
        ("web_search({ query: 'news' }, 3)", r#"web_search({"query":"news"})"#),
    ] {
        let transcript = ProgramStory::new(&format!("await {call}")).with("tools", tools()).play(answer);
        assert_eq!(transcript.rounds.concat(), [sent], "{call}: {}", transcript.result);
    }
    for (call, message) in [
        (
            "web_search('news', 'three')",
            "web_search: takes one object argument, like web_search({ query: … }); found string \"news\", string \"three\"",
        ),
        ("get_order('1')", "get_order: takes one object argument, like get_order({ id: … }); found string \"1\""),
        (
            "get_weather('Oslo', 'c', 1)",
            "get_weather: takes one object argument, like get_weather({ city: … }); found string \"Oslo\", string \"c\", number 1",
        ),
    ] {
        assert_eq!(caught(&format!("await {call}")), format!("TypeError: {message}"));
    }
}

#[test]
fn errors_in_imports_and_after_them_are_placed_in_the_models_source() {
    let code = "import { get_order } from 'tools';\nimport * as github from './servers/github';\n\nconst x: any = null;\nconst o = await get_order({ id: 1 });\nreturn x.y";
    let error = ProgramStory::new(code).with("tools", tools()).play(answer).result["error"].clone();
    assert_eq!((&error["line"], &error["column"]), (&json!(6), &json!(8)), "{error}");
}
