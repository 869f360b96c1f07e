//! What the model may write, how it names tools, and how its mistakes are shown.

use serde_json::{Value, json};

use crate::client::{ProgramStory, value_of};

#[test]
fn every_shape_of_program_is_the_same_program() {
    let shapes = [
        "const x: string = await a(); return x + '!'",
        "async function main() { return (await a()) + '!' }",
        "async function run(): Promise<string> { return (await a()) + '!' }",
        "export default async function () { return (await a()) + '!' }",
        "async () => { return (await a()) + '!' }",
        "(async () => (await a()) + '!');",
        "(async () => { return (await a()) + '!' })()",
        "const main = async () => (await a()) + '!';",
        "const x = await a();\nx + '!'",
        "async function main() { return (await a()) + '!' }\nmain()",
        "```ts\nconst x = await a();\nreturn x + '!'\n```",
        "Here is the program:\n\n```typescript\nexport default async () => (await a()) + '!'\n```\nIt calls a.",
        "enum E { Bang = '!' }\nnamespace N { export const f = async (t: () => Promise<string>) => (await t()) + E.Bang }\nreturn N.f(a as any)",
    ];
    for code in shapes {
        let transcript = ProgramStory::new(code).play_with_names();
        assert_eq!(
            (&transcript.rounds[..], &transcript.result["data"]),
            (&[vec!["a({})".to_owned()]][..], &json!("a!")),
            "{code}"
        );
    }
}

#[test]
fn tools_answer_to_their_exact_name_their_identifier_and_its_camel_case() {
    let tools = json!([
        { "name": "web_search" }, { "name": "get-weather.v2" }, { "name": "delete" }, { "name": "größe" },
        { "name": "create_issue", "server": "github" }, { "name": "weird name!", "server": "my server" },
    ]);
    let transcript = ProgramStory::new(
        "await web_search(); await webSearch(); await tools.web_search(); await tools['get-weather.v2'](); await get_weather_v2();
         await tools.delete(); await delete_(); await größe(); await github.create_issue(); await github.createIssue(); await tools.github.create_issue(); await tools['github.create_issue']();
         await my_server['weird name!'](); await my_server.weird_name_();
         return [Object.keys(tools).includes('web_search'), 'nope' in tools, Object.keys(github), typeof github.then, String(web_search.name)]",
    )
    .with("tools", tools)
    .play_with_names();
    let called: Vec<&str> = transcript.rounds.iter().map(|round| round[0].as_str()).collect();
    assert_eq!(
        called,
        [
            "web_search({})",
            "web_search({})",
            "web_search({})",
            "get-weather.v2({})",
            "get-weather.v2({})",
            "delete({})",
            "delete({})",
            "größe({})",
            "github.create_issue({})",
            "github.create_issue({})",
            "github.create_issue({})",
            "github.create_issue({})",
            "my server.weird name!({})",
            "my server.weird name!({})",
        ]
    );
    assert_eq!(
        transcript.result["data"],
        json!([true, false, ["create_issue", "createIssue"], "undefined", "web_search"])
    );
}

#[test]
fn a_namespace_is_one_object_however_it_is_reached_first() {
    let tools = json!([
        { "name": "create_issue", "server": "github" }, { "name": "list", "server": "my server" },
        { "name": "list", "server": "Math" }, { "name": "odd.name" },
    ]);
    let program = |first: &str| {
        format!(
            "const first = {first};
             const described = Object.getOwnPropertyDescriptor(globalThis, 'my_server');
             const before = [first, 'github.create_issue' in tools, 'github.nope' in tools, 'my server.list' in tools,
               tools.github === github, tools['github.create_issue'] === github.createIssue, tools['odd.name'] === odd_name,
               [typeof described.value, described.writable, described.enumerable, described.configurable],
               Object.keys(tools), typeof tools.github.then];
             github = {{ mine: true }}; delete tools.my_server;
             return [before, github, 'mine' in tools.github]"
        )
    };
    for first in ["typeof github", "typeof tools.github", "typeof tools['github.create_issue'] && 'object'"] {
        let transcript = ProgramStory::new(&program(first)).with("tools", tools.clone()).play_with_names();
        assert_eq!(
            transcript.result["data"],
            json!([
                [
                    "object", true, false, true, true, true, true,
                    ["object", true, false, true],
                    ["odd_name", "oddName", "odd.name", "Math_", "github", "my_server"], "undefined"
                ],
                { "mine": true },
                false
            ]),
            "{first}"
        );
    }
}

#[test]
fn an_unknown_function_is_answered_with_the_closest_tools() {
    let tools = json!([{ "name": "web_search" }, { "name": "create_issue", "server": "github" }]);
    let message = |call: &str| {
        let code = format!("try {{ {call} }} catch (e) {{ return e.name + ': ' + e.message }}");
        let data = ProgramStory::new(&code).with("tools", tools.clone()).data();
        data.as_str().expect("a message").to_owned()
    };
    let messages = [
        "web_serch({})",
        "searchWeb()",
        "tools.web_serch({})",
        "github.create_isue()",
        "fetch('https://x.y')",
        "require('fs')",
    ]
    .map(message);
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn errors_are_shown_in_the_models_own_source() {
    let failed = |code: &str| {
        let error = ProgramStory::new(code).error();
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        format!(
            "{} {}:{} {}: {}\n{}\n{}",
            text("kind"),
            error["line"],
            error["column"],
            text("name"),
            text("message"),
            text("frame"),
            text("stack")
        )
    };
    let reports = [
        "interface Point { x: number }\n\nfunction deep(p: Point): number {\n  return (p as any).y.z;\n}\nawait a();\nreturn deep({ x: 1 });",
        "```ts\nconst x: number = 1;\nreturn x +;\n```",
        "import fs from 'fs';\nreturn 1",
        "const x = 1;\nthrow { code: 7, why: ['a'] }",
        "let x = 1; let x = 2;",
        "return await Promise.any([Promise.reject(new Error('one')), Promise.reject('two')])",
        "try { JSON.parse('{') } catch (e) { throw new Error('outer', { cause: e }) }",
    ]
    .map(failed);
    insta::assert_snapshot!(reports.join("\n---\n"));
}

#[test]
fn every_kind_of_mistake_is_placed_on_its_line() {
    let rows = [
        ("const a = 1;\nconst b = 2;\nconst { items } = (await a_null()) as any;", 3),
        ("const x: any = undefined;\nconst y = 1;\nlet { d } = x;", 3),
        ("function q(x) {\n  const [first] = x;\n}\n\nq(null)", 2),
        (
            "class A {\n  items: any;\n  list() {\n    console.log(1);\n    return this.items.length;\n  }\n}\nnew A().list()",
            5,
        ),
        ("enum E {\n  A,\n  B\n}\n(null as any).x", 5),
        ("const s = '😀é';\n(null as any).x", 2),
        ("const n = 1;\nbtoa('é€')", 2),
        ("let n = 0;\nwhile (true) {\n  n++\n}", 3),
        ("let n = 0;\nfor (;;) {\n  await a()\n}", 3),
    ];
    for (code, line) in rows {
        let code = code.replace("a_null()", "Promise.resolve(null)");
        let error = ProgramStory::new(&code).with("limits", json!({ "fuel": 3_000_000, "calls": 3 })).error();
        assert_eq!(error["line"], line, "{code}: {error}");
    }
}

#[test]
fn an_uncaught_tool_error_points_at_its_call() {
    let transcript = ProgramStory::new("const q = 1;\nreturn await web_search({ q });")
        .play(|_, _| json!({ "error": { "message": "quota", "data": [1] } }));
    let error = &transcript.result["error"];
    let fields =
        ["kind", "name", "message", "tool", "data", "line", "column", "completed"].map(|key| error[key].clone());
    assert_eq!(
        fields,
        [
            json!("exception"),
            json!("ToolError"),
            json!("quota"),
            json!("web_search"),
            json!([1]),
            json!(2),
            json!(14),
            json!([{ "call": 0, "tool": "web_search", "args": { "q": 1 } }])
        ]
    );
}

#[test]
fn code_made_at_run_time_works_and_reaches_nothing() {
    assert_eq!(
        value_of("return [eval('1 + 1'), new Function('return typeof a')(), (0, eval)('typeof tools')]"),
        json!([2, "function", "object"])
    );
    let refused = value_of("try { await import('fs') } catch (e) { return e.message }");
    assert_eq!(
        refused,
        "cannot import \"fs\": there are no files here; use the tools; the tools are a, b, c, web_search"
    );
    let globals = value_of(
        "return ['process', 'require', 'Deno', 'fetch', 'Atomics', 'std', 'os', 'gc'].filter((name) => name in globalThis)",
    );
    assert_eq!(globals, Value::Array(Vec::new()));
}
