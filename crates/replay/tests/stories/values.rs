//! What crosses the border: arguments and results out, answers in.

use serde_json::{Value, json};

use crate::client::{ProgramStory, value_of};

#[test]
fn what_json_cannot_carry_has_a_conversion_in_results() {
    let rows = [
        ("return undefined", json!(null)),
        ("return", json!(null)),
        (
            "return { gone: undefined, kept: null, list: [undefined, , 1] }",
            json!({ "kept": null, "list": [null, null, 1] }),
        ),
        (
            "return [1n, -(2n ** 63n), 2n ** 64n - 1n, 2n ** 64n]",
            json!([1, i64::MIN, u64::MAX, "18446744073709551616"]),
        ),
        ("return [NaN, Infinity, -0, 1e21, 0.1]", json!([null, null, 0, 1e21, 0.1])),
        ("return [new Date(0), new Date(NaN)]", json!(["1970-01-01T00:00:00.000Z", null])),
        ("return new Map([['x', 1], [2, new Map()]])", json!({ "x": 1, "2": {} })),
        ("return new Map([[{ k: 1 }, 'v']])", json!([[{ "k": 1 }, "v"]])),
        ("return new Map([[1, 'a'], ['1', 'b']])", json!([[1, "a"], ["1", "b"]])),
        (
            "return await Promise.any([Promise.reject(new Error('x'))]).catch((e) => e)",
            json!({ "name": "AggregateError", "message": "", "errors": [{ "name": "Error", "message": "x" }] }),
        ),
        (
            "try { atob('*') } catch (e) { return e }",
            json!({ "name": "InvalidCharacterError", "message": "The string to be decoded is not correctly encoded" }),
        ),
        ("return new Set(['x', new Set([1])])", json!(["x", [1]])),
        (
            "return [/a+/gi, Symbol('s'), () => 1, class Name {}]",
            json!(["/a+/gi", "[Symbol(s)]", "[Function: anonymous]", "[Function: Name]"]),
        ),
        (
            "const e = new TypeError('no', { cause: 'why' }); e.code = 7; return e",
            json!({ "name": "TypeError", "message": "no", "code": 7, "cause": "why" }),
        ),
        (
            "return [new Uint8Array([1, 2]), new Float64Array([0.5]), new ArrayBuffer(2)]",
            json!([[1, 2], [0.5], [0, 0]]),
        ),
        ("return [Object(1), Object('s'), Object(true)]", json!([1, "s", true])),
        (
            "return [new URL('https://a.b/c?d=e f'), new URLSearchParams({ q: 'x y' })]",
            json!(["https://a.b/c?d=e%20f", "q=x+y"]),
        ),
        ("const o = { a: {} }; o.a.o = o; return o", json!({ "a": { "o": "[Circular]" } })),
        ("return { toJSON: () => ({ made: 1 }) }", json!({ "made": 1 })),
        ("return ['\\ud800', '\\u{1f600}', '\\0\"\\\\']", json!(["\u{fffd}", "😀", "\0\"\\"])),
        ("return new (class Point { constructor() { this.x = 1 } get y() { return 2 } })()", json!({ "x": 1 })),
        ("return [new WeakMap(), (function* () {})()]", json!(["[object WeakMap]", "[object Generator]"])),
        ("return Object.create({ inherited: 1 }, { own: { value: 2, enumerable: true } })", json!({ "own": 2 })),
    ];
    for (code, expected) in rows {
        assert_eq!(value_of(code), expected, "{code}");
    }
}

#[test]
fn arguments_convert_the_same_but_refuse_what_would_mislead_a_tool() {
    let sent = ProgramStory::new(
        "await a({ when: new Date(0), tags: new Set(['x']), n: 12345678901234567n, skip: undefined })",
    )
    .play_with_names();
    assert_eq!(sent.rounds, [[r#"a({"when":"1970-01-01T00:00:00.000Z","tags":["x"],"n":12345678901234567})"#]]);

    let rows = [
        ("a({ f() {} })", "arguments.f is a Function, which cannot be sent to a tool"),
        ("a({ list: [1, Symbol()] })", "arguments.list[1] is a Symbol, which cannot be sent to a tool"),
        ("a({ deep: { p: b() } })", "arguments.deep.p: `b(…)` is a promise: write `await` before it"),
        (
            "(() => { const o = {}; o.me = o; return a(o) })()",
            "arguments.me refers back to itself; a cycle cannot be sent to a tool",
        ),
        ("a({ w: new WeakMap() })", "arguments.w is a value without a JSON form, which cannot be sent to a tool"),
        ("a('text')", "a: takes one object argument, like a({}); found string \"text\""),
    ];
    for (call, expected) in rows {
        let code = format!("try {{ await {call} }} catch (e) {{ return e.name + ': ' + e.message }}");
        let message = ProgramStory::new(&code).play_with_names().result["data"].as_str().unwrap_or_default().to_owned();
        assert!(message.starts_with("TypeError: ") && message.contains(expected), "{call}: {message}");
    }
}

#[test]
fn arguments_are_checked_before_the_call_leaves_the_program() {
    let tools = json!([{ "name": "web_search", "input_schema": {
        "type": "object", "required": ["query"], "additionalProperties": false,
        "properties": { "query": { "type": "string" }, "limit": { "type": "integer", "maximum": 100 } } } }]);
    let transcript = ProgramStory::new(
        "const said = [];
         for (const args of [{}, { query: 3 }, { query: 'x', limit: 500 }, { q: 'x', query: 'y' }, { query: 'fine' }]) {
           try { await webSearch(args) } catch (e) { said.push(e.message) }
         }
         return said",
    )
    .with("tools", tools)
    .play_with_names();
    assert_eq!(transcript.rounds, [[r#"web_search({"query":"fine"})"#]], "nothing invalid was sent");
    insta::assert_snapshot!(serde_json::to_string_pretty(&transcript.result["data"]).expect("JSON"));
}

#[test]
fn answers_are_decoded_and_keep_every_digit() {
    let code = "const x = await a(); return [typeof x, x]";
    let rows: [(Value, Value); 11] = [
        (json!({ "ok": { "n": 1 } }), json!(["object", { "n": 1 }])),
        (json!({ "ok": "{\"n\": [1, 2]}" }), json!(["object", { "n": [1, 2] }])),
        (json!({ "ok": " [1] " }), json!(["object", [1]])),
        (json!({ "ok": "\"quoted\"" }), json!(["string", "quoted"])),
        (json!({ "ok": "42" }), json!(["number", 42])),
        (json!({ "ok": "false\n" }), json!(["boolean", false])),
        (json!({ "ok": "null" }), json!(["object", null])),
        (json!({ "ok": "007" }), json!(["string", "007"])),
        (json!({ "ok": "{broken" }), json!(["string", "{broken"])),
        (json!({ "ok": 42 }), json!(["number", 42])),
        (json!({ "ok": null }), json!(["object", null])),
    ];
    for (answer, expected) in rows {
        assert_eq!(ProgramStory::new(code).play(|_, _| answer.clone()).result["data"], expected, "{answer}");
    }

    let typed = |schema: Value, text: &str| {
        let tools = json!([{ "name": "a", "outputSchema": schema }]);
        ProgramStory::new(code).with("tools", tools).play(|_, _| json!({ "ok": text })).result["data"].clone()
    };
    assert_eq!(typed(json!({ "type": "integer" }), "42"), json!(["number", 42]));
    assert_eq!(typed(json!({ "type": "string" }), "{\"n\": 1}"), json!(["string", "{\"n\": 1}"]));
    assert_eq!(typed(json!({ "type": "boolean" }), "true"), json!(["boolean", true]));

    let big = ProgramStory::new(
        "const { id, list, e } = await a();
         await b({ id });
         return [typeof id, id === list[0].id, String(id), id, e, JSON.stringify({ id })]",
    )
    .play(|_, _| json!({ "ok": "{\"id\": 12345678901234567890, \"list\": [{\"id\": 12345678901234567890}], \"e\": 1.23456789012345678}" }));
    assert_eq!(big.rounds[1], [r#"b({"id":12345678901234567890})"#]);
    assert_eq!(
        big.result["data"],
        json!([
            "bigint",
            true,
            "12345678901234567890",
            12_345_678_901_234_567_890_u64,
            1.234_567_890_123_456_7,
            "{\"id\":\"12345678901234567890\"}"
        ])
    );
}

#[test]
fn the_standard_library_that_generated_code_reaches_for_is_there() {
    let rows = [
        ("return (1234567.891).toLocaleString()", json!("1,234,567.891")),
        (
            "return new Intl.NumberFormat('en-US', { style: 'currency', currency: 'EUR' }).format(-1234.5)",
            json!("-€1,234.50"),
        ),
        (
            "return new Date(0).toLocaleDateString('en-US', { weekday: 'long', year: 'numeric', month: 'short', day: 'numeric' })",
            json!("Thursday, Jan 1, 1970"),
        ),
        (
            "return new Date(1720000000000).toLocaleString('en-US', { timeZone: 'America/New_York' })",
            json!("7/3/2024, 5:46:40 AM"),
        ),
        (
            "return ['b', 'ä', 'A', 'a', 'B', 'z10', 'z9'].sort((x, y) => x.localeCompare(y, undefined, { numeric: true }))",
            json!(["a", "A", "ä", "b", "B", "z9", "z10"]),
        ),
        ("try { return (1).toLocaleString('xx-YY') } catch (e) { return e.name }", json!("RangeError")),
        (
            "const u = new URL('../x?a=1&b=2#h', 'https://user:pw@example.com:8080/p/q/'); u.searchParams.delete('a'); u.hash = ''; return [u.href, u.origin, u.searchParams.get('b')]",
            json!(["https://user:pw@example.com:8080/p/x?b=2", "https://example.com:8080", "2"]),
        ),
        ("try { new URL('nonsense') } catch (e) { return e.message }", json!("Invalid URL: nonsense")),
        (
            "return [btoa('hi'), atob('aGk='), new TextDecoder().decode(new TextEncoder().encode('héllo 😀'))]",
            json!(["aGk=", "hi", "héllo 😀"]),
        ),
        (
            "const o = { d: new Date(0), m: new Map([[1, new Set([2])]]) }; o.self = o; const c = structuredClone(o); return [c !== o, c.self === c, c.d.getTime(), [...c.m.get(1)]]",
            json!([true, true, 0, [2]]),
        ),
        (
            "const c = new AbortController(); const seen = []; c.signal.addEventListener('abort', () => seen.push(c.signal.reason.name)); c.abort(); try { c.signal.throwIfAborted() } catch (e) { seen.push(e.message) } return seen",
            json!(["AbortError", "This operation was aborted"]),
        ),
        (
            "const s = AbortSignal.timeout(50); await new Promise((r) => s.addEventListener('abort', r)); return s.reason.name",
            json!("TimeoutError"),
        ),
        ("return await new Promise((resolve) => queueMicrotask(() => resolve('later')))", json!("later")),
        ("return [1, 2, 3, 4].findLast((x) => x % 2) + Object.groupBy([1, 2], (x) => x).length", json!(null)),
        (
            "return [structuredClone([1n])[0] === 1n, [3, 1, 2].toSorted(), 'x'.at(-1), Object.fromEntries([['k', 1]])]",
            json!([true, [1, 2, 3], "x", { "k": 1 }]),
        ),
    ];
    for (code, expected) in rows {
        assert_eq!(value_of(code), expected, "{code}");
    }
}

#[test]
fn logs_read_like_a_console() {
    let transcript = ProgramStory::new(
        "console.log('plain', 1, true, null, undefined, { a: [1, 'x'] }, [new Date(0)], 5n, NaN);
         console.warn('%s has %d items, %o', 'cart', 3, { x: 1 });
         console.error(new RangeError('bad'), () => 1);
         console.group('outer'); console.info('inside'); console.groupEnd();
         console.table([{ a: 1, b: 'x' }, { a: 22 }]);
         console.count(); console.count(); console.assert(1 > 2, 'math');
         const loop = {}; loop.loop = loop; console.debug(loop, Promise.resolve()); a();",
    )
    .play_with_names();
    let levels: Vec<&Value> =
        transcript.steps[0]["logs"].as_array().expect("logs").iter().map(|line| &line["level"]).collect();
    assert_eq!(levels[..4], [&json!("log"), &json!("warn"), &json!("error"), &json!("log")]);
    insta::assert_snapshot!(transcript.logs.join("\n"));
}
