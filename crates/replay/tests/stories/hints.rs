//! What is said where models stumble.

use serde_json::{Value, json};

use crate::client::ProgramStory;

fn tools() -> Value {
    let city = json!({ "type": "object", "properties": { "city": { "type": "string" }, "days": { "type": "integer" } }, "required": ["city"], "additionalProperties": false });
    json!([{ "name": "get_orders" }, { "name": "get_weather", "input_schema": city }])
}

fn failed(code: &str) -> Value {
    let transcript =
        ProgramStory::new(code).with("tools", tools()).play(|_, _| json!({ "ok": { "orders": [{ "id": 1 }] } }));
    transcript.result["error"].clone()
}

#[test]
fn messages_name_what_was_not_there() {
    for (code, message, hint) in [
        (
            "const page = await get_orders({});\nreturn page.map((o) => o.id)",
            "`page.map` is not a function",
            json!("`page` is no list; look at what it holds, for example with `return page`"),
        ),
        (
            "const page = await get_orders({});\nreturn page.data.length",
            "cannot read property 'length' of undefined: `page.data` is undefined",
            json!("`page` has no `data`; the answer of a tool is the value itself, with nothing around it"),
        ),
        (
            "const page = await get_orders({});\nconst text = page.content[0].text;",
            "cannot read property '0' of undefined: `page.content` is undefined",
            json!("`page` has no `content`; the answer of a tool is the value itself, with nothing around it"),
        ),
        (
            "const page = await get_orders({});\nreturn page.result.orders",
            "cannot read property 'orders' of undefined: `page.result` is undefined",
            json!("`page` has no `result`; the answer of a tool is the value itself, with nothing around it"),
        ),
        (
            "const page = await get_orders({});\nfor (const order of page) text(order.id)",
            "`page` is not iterable",
            json!("`page` is no list; look at what it holds, for example with `return page`"),
        ),
        ("const page = await get_orders({});\nconst x = page.total();", "`page.total` is not a function", Value::Null),
        (
            "const page = await get_orders({});\nreturn JSON.parse(page).orders",
            "JSON.parse was given an object, not text; answers of tools are parsed already, so use it as it is",
            Value::Null,
        ),
    ] {
        let error = failed(code);
        assert_eq!(
            (&error["message"], &error["hint"], &error["line"]),
            (&json!(message), &hint, &json!(2)),
            "{code}: {error}"
        );
    }
}

#[test]
fn what_javascript_has_elsewhere_is_told_with_what_there_is_instead() {
    for (code, message) in [
        ("await fetch('https://x.example')", "fetch is not defined: there is no network here; use the tools"),
        (
            "return process.env.HOME",
            "process is not defined: there is no process and no environment here; use the tools",
        ),
        (
            "fs.writeFileSync('a', 'b')",
            "fs is not defined: there are no files here; use the tools, and `return` what should be kept",
        ),
        ("return new Blob(['a'])", "Blob is not defined: use text, `TextEncoder`, `atob` and `btoa`"),
        ("module.exports = async () => 1", "module is not defined: there are no modules here; `return` the result"),
        ("document.title", "document is not defined: there is no browser here; use the tools"),
    ] {
        let error = failed(code);
        assert_eq!(error["name"], "ReferenceError", "{code}: {error}");
        assert_eq!(
            error["message"].as_str().and_then(|found| found.strip_prefix(message)),
            Some("; the tools are get_orders, get_weather"),
            "{error}"
        );
    }
    // A program that asks whether it is there gets by without it.
    assert_eq!(
        ProgramStory::new("return typeof process === 'undefined' ? 'sandbox' : process.version").data(),
        "sandbox"
    );
}

#[test]
fn another_language_is_told_which_one_is_expected() {
    for (code, language) in [
        ("import json\norders = get_orders()\nprint(json.dumps(orders))", "Python"),
        ("for order in get_orders():\n    print(order['id'])", "Python"),
        ("```python\ndef main():\n    return get_orders()\n```", "Python"),
        ("curl -s https://x.example/orders | jq .", "a shell script"),
    ] {
        let error = failed(code);
        assert_eq!(error["kind"], "syntax");
        assert_eq!(error["message"], format!("this is {language}; write the program in TypeScript or JavaScript"));
    }
}

#[test]
fn violations_are_there_as_data() {
    let code = "try { await get_weather({ city: 7, days: 'two', zip: 1 }) } catch (e) { return [e.name, e.tool, e.violations] }";
    let transcript = ProgramStory::new(code).with("tools", tools()).play_with_names();
    insta::assert_snapshot!(serde_json::to_string_pretty(&transcript.result["data"]).expect("it is JSON"));
    let error = failed("await get_weather({ city: 7 })");
    assert_eq!(error["tool"], "get_weather");
    assert_eq!(error["violations"], json!([{ "path": "city", "expected": "string", "found": "number 7" }]), "{error}");
}
