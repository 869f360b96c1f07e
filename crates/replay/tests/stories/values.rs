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

#[test]
fn json_is_read_as_the_engine_itself_would_read_it() {
    // With a reviver, the engine's own parser reads the text.
    let compared = value_of(
        r#"
        const random = (count) => Math.floor(Math.random() * count);
        const pick = (list) => list[random(list.length)];
        const space = () => pick(["", "", "", " ", "\n\t", " \r "]);
        const strings = ['""', '"a"', '"1234567"', '"12345678"', '"123456789 and more of it"', '"1234567\\n"', '"é"',
          '"日本 and \\u00e9"', '"\\"\\\\\\/\\b\\f\\r\\t"', '"\\ud83d\\ude00 😀"', '"\\ud800"', '"\ud800 alone"', '"\u007f\u0080"'];
        const numbers = ["0", "-0", "1", "-17", "2147483647", "2147483648", "-2147483648", "-2147483649", "999999999999999",
          "9007199254740993", "12345678901234567890", "0.1", "-0.5", "-0.0", "1.10", "123456.789012345", "0.30000000000000004",
          "5e-324", "1.7976931348623157e308", "1e400", "1E+3", "2e-7", "100000000000000.5", "0.000000000000001"];
        const names = ['"id"', '"name"', '"__proto__"', '"0"', '"12"', '"01"', '""', '"n\\u0061me"', '"é"', '"toString"',
          '"length"', '"a name of more than eight characters"', ...Array.from({ length: 150 }, (_, i) => `"member ${i}"`)];
        const number = () => pick([...numbers, String(random(1e9)), String(Math.random()), (Math.random() * 1e6).toFixed(random(12))]);
        const object = (keys, depth) =>
          `{${space()}${keys.map((key) => `${key}${space()}:${value(depth)}`).join(`${space()},${space()}`)}${space()}}`;
        const list = (length, of) => Array.from({ length }, of);
        const value = (depth) => space() + (() => {
          switch (random(depth > 2 ? 3 : 7)) {
            case 0: return pick(strings);
            case 1: return number();
            case 2: return pick(["true", "false", "null"]);
            case 3: return object(list(random(6), () => pick(names)), depth + 1);
            case 4: return `[${list(random(4), () => value(depth + 1)).join(",")}${space()}]`;
            default: {
              const keys = list(1 + random(5), () => pick(names));
              const row = () => object(random(5) ? keys : keys.slice(1), depth + 1);
              return `[${list(random(5), row).join(",")}]`;
            }
          }
        })() + space();
        const malformed = ["", "-", "-.5", ".5", "1.", "01", "-01.5", "+1", "1e", "0x1", "NaN", "tru", "nulll", "'a'", '"\\x"', '"\\u12"', '"a',
          '"\t"', "[1,]", "[,1]", "[1", "[1}", '{"a":1,}', '{"a"}', '{"a":}', "{a:1}", '{"a":1', "{1:1}", "1 2", "[] ]", "\u00a01", "1\u0000"];
        const broken = (text) => {
          const at = random(text.length + 1);
          return text.slice(0, at) + pick(["", ...'",:{}[]\\ 0-.eE+tn\u0000\u0001x']) + text.slice(at + random(2));
        };
        // Where two values differ first, if they do.
        const difference = (a, b, path) => {
          if (typeof a !== "object" || a === null || typeof b !== "object" || b === null) {
            return Object.is(a, b) ? undefined : `${path}: ${typeof a} ${a}, not ${typeof b} ${b}`;
          }
          const [ours, theirs] = [Object.keys(a), Object.keys(b)];
          const isAlike = Array.isArray(a) === Array.isArray(b) && Object.getPrototypeOf(a) === Object.getPrototypeOf(b);
          if (!isAlike || `${ours}` !== `${theirs}`) return `${path}: ${ours}, not ${theirs}`;
          for (const key of ours) {
            const found = difference(a[key], b[key], `${path}.${key}`);
            if (found) return found;
          }
        };
        const read = (parse) => {
          try { return { value: parse() } } catch (error) { return { error: `${error.name}: ${error.message}` } }
        };
        const counts = { read: 0, refused: 0 };
        for (let i = 0; i < 800; i++) {
          const text = malformed[i] ?? (i % 2 ? value(0) : broken(value(0)));
          const [ours, engine] = [read(() => JSON.parse(text)), read(() => JSON.parse(text, (_, value) => value))];
          const found = difference(ours, engine, "");
          if (found) throw new Error(`${found} in ${JSON.stringify(text)}`);
          counts["error" in ours ? "refused" : "read"]++;
          // What was read can be changed like any other object, and changes no other.
          if (ours.value !== null && typeof ours.value === "object") { ours.value.added = 1; delete ours.value.id }
        }
        return counts"#,
    );
    let [read, refused] = ["read", "refused"].map(|count| compared[count].as_u64().expect("a count"));
    assert!(read > 400 && refused > 180, "{compared}");
}

#[test]
fn case_is_converted_alike_in_short_and_wide_texts() {
    let differing = value_of(
        r#"
        const latin = Array.from({ length: 256 }, (_, code) => String.fromCharCode(code));
        const texts = [...latin, latin.slice(0, 128).join(""), latin.join(""), "", "Straße", "ΑΣ", "ﬁ"];
        // A text with one wide character is stored in another way.
        const wide = (text, convert) => convert(`${text}日`).slice(0, -1);
        const conversions = [(text) => text.toUpperCase(), (text) => text.toLowerCase()];
        return texts.filter((text) => conversions.some((convert) => convert(text) !== wide(text, convert)))"#,
    );
    assert_eq!(differing, json!([]));
}

#[test]
fn arrays_are_sorted_as_the_language_says() {
    let sorted = value_of(
        r#"
        const random = (count) => Math.floor(Math.random() * count);
        const list = (length, of) => Array.from({ length }, of);
        // Puts each value behind those that are not greater: slow, and stable.
        const reference = (values, compare) => values.reduce((sorted, value) => {
          const at = sorted.findIndex((other) => compare(value, other) < 0);
          return at < 0 ? [...sorted, value] : [...sorted.slice(0, at), value, ...sorted.slice(at)];
        }, []);
        const same = (a, b, what) => {
          if (a.length !== b.length || a.some((value, i) => !Object.is(value, b[i]))) throw new Error(`${what}: ${JSON.stringify([a, b])}`);
        };
        const byKey = (a, b) => a.key - b.key;
        let calls = 0;
        for (let length = 0; length < 90; length += length < 30 ? 1 : 7) {
          for (const keys of [1, 3, 1e9]) {
            const rows = list(length, (_, at) => ({ key: random(keys), at }));
            same([...rows].sort(byKey), reference(rows, byKey), "by a function");
            same(rows.toSorted((a, b) => b.key - a.key), reference(rows, (a, b) => b.key - a.key), "descending");
            const inOrder = rows.toSorted(byKey);
            calls = 0;
            same([...inOrder].sort((a, b) => (calls++, byKey(a, b))), inOrder, "in order");
            if (calls > length) throw new Error(`${calls} calls for ${length} values in order`);
          }
          const words = list(length, () => [random(50), "a" + random(9), "é", "日", null, true, 1.5, -3, undefined][random(9)]);
          const text = (a, b) => (String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0);
          const defined = words.filter((word) => word !== undefined);
          same([...words].sort(), [...reference(defined, text), ...words.filter((word) => word === undefined)], "as text");

          // A function that contradicts itself puts values in some order, and loses none.
          const numbers = list(length, (_, i) => i);
          for (const compare of [() => random(3) - 1, () => 1, () => -1, () => NaN, () => undefined, () => "x"]) {
            same([...numbers].sort(compare).sort((a, b) => a - b), numbers, "contradictions");
          }
          // So does one that throws or changes the array.
          const before = [...numbers];
          let left = random(2 * length + 1);
          try { before.sort((a, b) => { if (left-- === 0) throw new Error("enough"); return b - a }) } catch (error) {
            same(before, numbers, "thrown");
          }
          const changed = [...numbers].reverse();
          changed.sort((a, b) => { changed.length = 0; return a - b });
          if (length > 1) same(changed, numbers, "changed");
        }
        const sparse = [3, , 1, undefined, , 2];
        sparse.sort();
        const likeAnArray = Array.prototype.sort.call({ length: 4, 0: "b", 2: "a", 3: undefined, other: 1 });
        const many = list(5000, () => random(1e6));
        calls = 0;
        const smallest = [...many].sort((a, b) => (calls++, a - b))[0];
        return { sparse: [...sparse], holes: Object.keys(sparse), likeAnArray, few: calls < 58000 && smallest === Math.min(...many) }"#,
    );
    let expected = json!({
        "sparse": [1, 2, 3, null, null, null], "holes": ["0", "1", "2", "3"],
        "likeAnArray": { "0": "a", "1": "b", "length": 4, "other": 1 }, "few": true,
    });
    assert_eq!(sorted, expected);
}

#[test]
fn texts_are_put_together_and_searched_alike_however_they_are_stored() {
    let outcome = value_of(
        r#"
        const random = (count) => Math.floor(Math.random() * count);
        const pick = (list) => list[random(list.length)];
        const pieces = ["", "a", "some words", "\u00ff", "é", "日本", "😀", "x".repeat(40), "0123456789".repeat(30), "y".repeat(600), 0, -1,
          2147483647, -2147483648, 1.5, true, null, undefined, 12n];
        const check = (found, expected, what) => {
          if (found !== expected) throw new Error(`${what}: ${found.length} characters, not ${expected.length}`);
        };
        let byClosure = "";
        const append = (piece) => { byClosure += piece };
        for (let round = 0; round < 14; round++) {
          let text = pick(["", "z".repeat(9000), "日".repeat(5000)]);
          const parts = [text], kept = [];
          byClosure = text;
          const narrow = pieces.filter((piece) => round % 3 || !/[日😀]/.test(piece));
          for (let i = 0; i < 150; i++) {
            const piece = pick(narrow), other = pick(narrow);
            switch (random(6)) {
              case 0: text += piece; parts.push(String(piece)); break;
              case 1: text += `${piece}${other}:`; parts.push([String(piece), String(other), ":"].join("")); break;
              case 2: text = text + "line " + i + "\n"; parts.push("line ", String(i), "\n"); break;
              case 3: { const was = text; text += "more"; parts.push("more"); kept.push([was, parts.length - 1]); break; }
              case 4: { const count = random(700); text += "v".repeat(count); text += piece; parts.push("v".repeat(count), String(piece)); break; }
              default: { const twice = (text += "!") + "?"; parts.push("!"); kept.push([twice.slice(0, -1), parts.length]); }
            }
          }
          text += "w".repeat(500 + round * 10);
          text += "";
          parts.push("w".repeat(500 + round * 10));
          const whole = parts.join("");
          for (const part of parts.slice(1)) append(part);
          check(text, whole, "appended");
          check(byClosure, whole, "appended by a closure");
          for (const [was, count] of kept) check(was, parts.slice(0, count).join(""), "kept");

          const needle = pick(["\n", "!", "line 1", "日", "q", "\u00ff", "more!", ":"]);
          const at = [];
          for (let i = 0; i + needle.length <= whole.length; i++) if (whole.slice(i, i + needle.length) === needle) at.push(i);
          const from = random(whole.length);
          check(String(text.indexOf(needle, from)), String(at.find((i) => i >= from) ?? -1), "found");
          check(text.split(needle).join(needle), whole, "split");
          check(String(text.includes(needle)), String(at.length > 0), "included");
        }
        const own = { toString: () => "text", valueOf: () => 1 };
        const unusable = [() => `${Symbol()}`, () => "a".concat(Symbol()), () => "" + Symbol()].map((make) => {
          try { return make() } catch (error) { return error.name }
        });
        // Nearly as long as texts may be; they share their parts, and take little memory.
        let longest = "z".repeat(574), part = "z".repeat(1024);
        for (;; part += part) {
          longest += part;
          if (part.length === 2 ** 29) break;
        }
        let refused = "";
        try { for (let i = 0; i < 9; i++) longest += "y".repeat(100) } catch (error) { refused = error.message }
        const last = longest.length;
        try { longest += "y".repeat(100) } catch (error) { refused += `, ${error.message}` }
        return { own: `${own}${[1, [2]]}` + own, unusable, refused, lengths: [last, longest.length] }"#,
    );
    let errors = ["TypeError", "TypeError", "TypeError"];
    let expected = json!({
        "own": "text1,21", "unusable": errors, "refused": "string too long, string too long",
        "lengths": [1_073_741_774, 1_073_741_774],
    });
    assert_eq!(outcome, expected);
}

#[test]
fn elements_are_added_only_to_arrays_that_take_them() {
    let outcome = value_of(
        r#"
        class Mine extends Array { static get [Symbol.species]() { return kind } }
        const frozen = function () { return Object.freeze([]) }, fixed = function () { return Object.defineProperty([], "length", { writable: false }) };
        const closed = function () { return Object.preventExtensions([]) };
        const log = [];
        const watched = function () { return new Proxy([], { defineProperty: (target, name, how) => (log.push(name), Reflect.defineProperty(target, name, how)) }) };
        let kind = Mine;
        const of = (make) => { try { const made = make(); return [made.constructor.name, [...made]] } catch (error) { return error.name } };
        const outcomes = [];
        for (const species of [Mine, Array, frozen, fixed, closed, watched, Object]) {
          kind = species;
          const mine = Mine.from([1, 2, 3]);
          const plain = species === Object ? () => Object.keys(mine.map((x) => x)).length : undefined;
          outcomes.push(plain ? plain() : of(() => mine.map((x) => x * 2)), plain ? 0 : of(() => mine.filter((x) => x > 1)));
        }
        const holes = [1, , 3].map((x) => x);
        const spread = [...[1, 2], , ...new Set([3])];
        return { outcomes, log, holes: Object.keys(holes), spread: [spread.length, Object.keys(spread)], split: "a,b,,c".split(",", 3) }"#,
    );
    let refused = "TypeError";
    let outcomes = json!([
        ["Mine", [2, 4, 6]],
        ["Mine", [2, 3]],
        ["Array", [2, 4, 6]],
        ["Array", [2, 3]],
        refused,
        refused,
        refused,
        refused,
        refused,
        refused,
        ["Array", [2, 4, 6]],
        ["Array", [2, 3]],
        3,
        0
    ]);
    let expected = json!({
        "outcomes": outcomes, "log": ["0", "1", "2", "0", "1"], "holes": ["0", "2"],
        "spread": [4, ["0", "1", "3"]], "split": ["a", "b", ""],
    });
    assert_eq!(outcome, expected);
}

#[test]
fn functions_that_are_resumed_with_an_error_throw_it_where_they_stand() {
    let outcome = value_of(
        r#"
        function* counting() { let n = 0; for (;;) try { yield n++ } catch (error) { n += error.message.length * 100 } finally { n += 10 } }
        const numbers = counting();
        const counted = [numbers.next().value, numbers.throw(new Error("abc")).value, numbers.next().value];
        function* once() {
          yield 1 }
        const started = once();
        started.next();
        let uncaught;
        try { started.throw(null) } catch (error) { uncaught = [error, started.next().done] }
        async function waiting(promise) { try { return await promise } catch (error) { return `caught ${error}` } finally { counted.push("finally") } }
        const inLoop = async () => { for (const reason of [1, 2]) { try { await Promise.reject(reason) } catch (error) { if (error === 2) return "second" } } };
        async function* values() { try { yield 1 } catch (error) { yield `got ${error}` } }
        const stream = values();
        await stream.next();
        const nested = async () => { await (async () => { await Promise.reject(new RangeError("deep")) })() };
        return { counted, uncaught, waited: await waiting(Promise.reject("a reason")), inLoop: await inLoop(),
          streamed: (await stream.throw("it")).value, nested: await nested().catch((error) => `${error}`),
          early: (() => { try { later = 1; let later } catch (error) { return error.message } })() }"#,
    );
    let expected = json!({
        "counted": [0, 311, 322, "finally"], "uncaught": [null, true], "waited": "caught a reason", "inLoop": "second",
        "streamed": "got it", "nested": "RangeError: deep", "early": "later is not initialized",
    });
    assert_eq!(outcome, expected);
}
