//! The names of tools are ordinary properties, whatever a program does with them: they are made when they are first used, which
//! only `WeakRef` and the memory of the program can tell.

use std::fmt::Write as _;

use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};
use proptest::test_runner::Config;
use serde_json::{Value, json};

use crate::client::ProgramStory;

/// Names of every kind: with aliases, no identifiers, an index, one of a built-in, and such that every object has.
fn tools() -> Value {
    json!([
        { "name": "a" }, { "name": "web_search" }, { "name": "get-weather.v2" }, { "name": "delete" }, { "name": "7" },
        { "name": "Event" }, { "name": "then" }, { "name": "toString" },
        { "name": "list", "server": "github" }, { "name": "create_issue", "server": "github" },
        { "name": "then", "server": "github" }, { "name": "2", "server": "github" },
        { "name": "list", "server": "my server" },
    ])
}

/// The result of a program, or its error, and what it wrote.
fn outcome(code: &str) -> String {
    let transcript = ProgramStory::new(code).with("tools", tools()).play_with_names();
    let result = &transcript.result;
    let end = if result["status"] == "success" { &result["data"] } else { &result["error"]["message"] };
    transcript.logs.iter().fold(end.to_string(), |text, line| text + "\n    " + line)
}

/// Part of every program here: shows functions by their names, and of the keys of an object those that matter.
const SHOW: &str = "
    const builtins = new Set(['Array', 'Event', 'console', 'tools', 'Intl']);
    const known = new Set(['a', 'web_search', 'webSearch', 'get_weather_v2', 'getWeatherV2', 'delete_', '_7', 'then_', 'toString_', 'github', 'my_server',
      'search', 'describe', 'mine', 'other', 'habit', 'store', ...builtins]);
    const keys = (o, names = Reflect.ownKeys(o)) => names.filter((name) => o !== globalThis || known.has(name)).map(String).join(' ');
    const show = (v) => typeof v === 'function' ? `function ${v.name}/${v.length}` : typeof v === 'object' && v !== null ? `{${Object.keys(v)}}` : String(v);
    const own = (o, name) => { const d = Object.getOwnPropertyDescriptor(o, name); return d && `${'value' in d ? show(d.value) : `get ${show(d.get)}`} ${d.writable ? 'w' : ''}${d.enumerable ? 'e' : ''}${d.configurable ? 'c' : ''}` };
    const attempt = (f) => { try { return f() } catch (error) { return `${error.name}: ${error.message}` } };
    const sloppy = (code, ...args) => attempt(() => new Function('o', code)(...args));";

/// What a program does with an object that holds tools: `O` the object, `X` and `Y` names of tools, `Z` another name of `Y`.
const OPERATIONS: &[&str] = &[
    "return [typeof O.X, typeof O['Y'], O.Y === O.Z, O.X === O.X, O.X.name, O.Z.name, show(O.Z)]",
    "return ['X' in O, 'Z' in O, Object.hasOwn(O, 'X'), Object.prototype.hasOwnProperty.call(O, 'Z'), Object.prototype.propertyIsEnumerable.call(O, 'X'), 'nope' in O, Object.hasOwn(O, 'nope')]",
    "return [own(O, 'X'), own(O, 'Z'), own(O, 'nope'), own(O, 'mine')]",
    "return Object.entries(Object.getOwnPropertyDescriptors(O)).filter(([name]) => name === 'X' || name === 'Z').map(([name, d]) => [name, show(d.value), d.writable, d.enumerable, d.configurable])",
    "return [keys(O), keys(O, Object.keys(O)), keys(O, Object.getOwnPropertyNames(O))]",
    "O.Z; O.mine = 1; O.Y; return keys(O)",
    "O.mine = 1; O.X; O.other = 2; O.Z; O.X = 5; return [keys(O), own(O, 'X'), own(O, 'mine'), own(O, 'Z'), own(O, 'Y')]",
    // Deletes
    "return [delete O.X, delete O.X, Object.hasOwn(O, 'X'), 'X' in O, keys(O), delete O.nope, delete O.Z, Object.hasOwn(O, 'Y'), keys(O)]",
    "O.X; return [delete O.X, own(O, 'X'), keys(O)]",
    "O.X; delete O.X; O.X = 1; return [own(O, 'X'), keys(O)]",
    "delete O.X; O.X = 1; O.mine = 2; return [own(O, 'X'), keys(O)]",
    "delete O.X; O.mine = 1; Object.defineProperty(O, 'X', { value: 1 }); return [own(O, 'X'), keys(O), attempt(() => delete O.X), own(O, 'X')]",
    "const f = O.Y; delete O.Y; return [O.Z === f, own(O, 'Z'), delete O.Z, own(O, 'Z'), typeof f]",
    "delete O.X; delete O.Y; delete O.Z; O.Z = 1; O.Y = 2; O.X = 3; return keys(O)",
    "const before = keys(O); delete O.X; O.X = 1; return [before, keys(O)]",
    "for (const name of Reflect.ownKeys(O)) if (known.has(name) && !builtins.has(name)) delete O[name]; O.X = 1; return [keys(O), 'Y' in O]",
    "return [Reflect.deleteProperty(O, 'X'), Reflect.deleteProperty(O, 'nope'), Reflect.has(O, 'X'), Reflect.has(O, 'Y'), Reflect.get(O, 'Y') === O.Z]",
    // Writes
    "O.X = 5; return [O.X, own(O, 'X'), keys(O)]",
    "O.Z = 5; return [own(O, 'Z'), own(O, 'Y'), keys(O)]",
    "O.X ??= 5; O.mine ??= 6; O.Y ||= 7; O.Z &&= 8; return [own(O, 'X'), own(O, 'mine'), own(O, 'Y'), own(O, 'Z')]",
    "return [Reflect.set(O, 'X', 1), Reflect.set(O, 'mine', 2), own(O, 'X'), own(O, 'mine')]",
    "return [attempt(() => { 'use strict'; O.X = 1; return O.X }), sloppy('o.Y = 2; return o.Y', O), keys(O)]",
    "O[Symbol.for('mine')] = 1; O[5] = 'five'; O['05'] = 6; return [O[5], O[Symbol.for('mine')], keys(O), Reflect.ownKeys(O).length - Object.getOwnPropertyNames(O).length]",
    "Object.assign(O, { mine: 1, X: 2, other: 3 }); return [keys(O), own(O, 'X'), own(O, 'mine')]",
    // Definitions
    "Object.defineProperty(O, 'X', { value: 1 }); return [own(O, 'X'), keys(O)]",
    "Object.defineProperty(O, 'X', {}); return [own(O, 'X'), keys(O)]",
    "Object.defineProperty(O, 'X', { enumerable: false }); Object.defineProperty(O, 'Y', { enumerable: true }); return [own(O, 'X'), own(O, 'Y'), keys(O, Object.keys(O))]",
    "Object.defineProperty(O, 'X', { writable: false }); return [attempt(() => { 'use strict'; O.X = 1 }), sloppy('o.X = 1', O), own(O, 'X')]",
    "Object.defineProperty(O, 'X', { configurable: false }); return [attempt(() => { 'use strict'; delete O.X }), Reflect.deleteProperty(O, 'X'), Reflect.defineProperty(O, 'X', { get() {} }), own(O, 'X'), keys(O)]",
    "Object.defineProperty(O, 'X', { get() { return this === O }, configurable: true }); return [O.X, own(O, 'X'), Object.create(O).X, keys(O)]",
    "let set; Object.defineProperty(O, 'X', { set(v) { set = v } }); O.X = 7; return [set, O.X, own(O, 'X')]",
    "Object.defineProperty(O, 'mine', { value: 1 }); return [own(O, 'mine'), keys(O)]",
    "return [Reflect.defineProperty(O, 'X', { value: 1, writable: false, configurable: false }), Reflect.defineProperty(O, 'X', { value: 2 }), own(O, 'X')]",
    "Object.defineProperties(O, { X: { value: 1 }, mine: { value: 2 } }); return [own(O, 'X'), own(O, 'mine')]",
    "O.__defineGetter__?.('X', () => 9); return [O.X, own(O, 'X')]",
    // All names
    "const names = []; for (const name in O) names.push(name); return keys(O, names)",
    "for (const name in O) { if (name === 'X') delete O.Y } const names = []; for (const name in Object.create(O)) names.push(name); return keys(O, names)",
    "return [keys(O, Object.keys({ ...O })), keys(O, Object.keys(Object.assign({}, O))), Object.values(O).length, Object.entries(O).length]",
    "O.X = 1; O.mine = [2]; return [JSON.stringify(O), keys(O, Object.keys(O))]",
    "O.mine = 1; const { X, mine, nope, ...rest } = O === globalThis ? { X: O.X, mine: O.mine } : { ...O, nope: 0 }; return [show(X), mine, nope, Object.keys(rest)]",
    "const { X, Y: renamed, Z = 1, mine = 2 } = Object.setPrototypeOf(O, null); return [show(X), show(renamed), show(Z), mine]",
    "const { X, ...rest } = O; return [show(X), 'X' in rest, keys(O, Object.keys(rest))]",
    "O.Z; Object.freeze(O); return [own(O, 'X'), own(O, 'Z'), attempt(() => { 'use strict'; O.X = 1 }), attempt(() => { 'use strict'; O.mine = 1 }), attempt(() => { 'use strict'; delete O.Y }), Object.isFrozen(O), keys(O)]",
    "delete O.Y; Object.seal(O); O.X = 1; return [own(O, 'X'), own(O, 'Z'), Object.hasOwn(O, 'Y'), sloppy('o.Y = 1', O), Object.isSealed(O), Object.isFrozen(O), keys(O)]",
    "delete O.Y; O.mine = 1; Object.preventExtensions(O); return [typeof O.X, own(O, 'Y'), attempt(() => { 'use strict'; O.Y = 1 }), delete O.X, attempt(() => { 'use strict'; O.X = 1 }), Object.isExtensible(O), keys(O)]",
    "return [Object.isExtensible(O), Object.isFrozen(O), Object.isSealed(O), keys(O)]",
    "console.log(O === globalThis ? Object.keys(O).length : O); O.mine = 1; return keys(O)",
    // Through other objects
    "const child = Object.create(O); child.X = 1; return [own(child, 'X'), own(O, 'X'), child.Y === O.Y, 'Z' in child, Object.hasOwn(child, 'Z'), keys(O)]",
    "Object.defineProperty(O, 'X', { writable: false }); const child = Object.create(O); return [attempt(() => { 'use strict'; child.X = 1 }), Object.hasOwn(child, 'X')]",
    "const other = {}; return [Reflect.set(O, 'X', 1, other), own(other, 'X'), own(O, 'X'), Reflect.get(O, 'Y', other) === O.Y, Reflect.set({}, 'Z', 3, O), own(O, 'Z'), own(O, 'Y'), Reflect.set({}, 'mine', 3, O), keys(O)]",
    "const proxy = new Proxy(O, {}); proxy.mine = 1; return [typeof proxy.X, 'Y' in proxy, delete proxy.Y, proxy.Y === O.Y, own(proxy, 'Z'), keys(O, Reflect.ownKeys(proxy)), Object.isExtensible(proxy)]",
    "const seen = []; const proxy = new Proxy(O, { get: (o, name, r) => { seen.push(name); return Reflect.get(o, name, r) }, has: (o, name) => { seen.push(`has ${name}`); return Reflect.has(o, name) } }); return [typeof proxy.X, 'Y' in proxy, seen]",
    "return sloppy('with (o) { return [typeof X, Y === Z, typeof nope_at_all] }', O === globalThis ? O : { ...O })",
    "class Base { constructor(o) { return o } } class Marked extends Base { #mark = 1; static has(o) { return #mark in o } } new Marked(O); return [Marked.has(O), keys(O)]",
    "Object.prototype.mine = 'inherited'; Object.defineProperty(Object.prototype, 'X', { set() { throw 1 }, get() { return 'hidden' }, configurable: true }); O.X = 5; const found = [O.X, attempt(() => O.mine)]; delete Object.prototype.X; delete Object.prototype.mine; return found",
    "Object.setPrototypeOf(O, null); return [typeof O.X, O.nope, 'Y' in O, 'nope' in O, Reflect.ownKeys(O).includes('Z')]",
    "Object.setPrototypeOf(O, { inherited: 1, X: 2 }); return [typeof O.X, O.inherited, delete O.X, O.X, own(O, 'X')]",
    "return [Object.prototype.toString.call(O), O instanceof Object, typeof O, Array.isArray(O), Array.prototype.slice.call(O).length, attempt(() => [...O])]",
    "O.X.mark = 1; const marked = O.X; O.X = 0; return [marked.mark, typeof marked, await marked({ n: 1 })]",
    "return [await O.X(), await O['Z']({ n: 1 }), await O.X.call(null), await [{ i: 1 }].map(O.Y)[0]]",
];

/// What concerns one object only, or several together.
const STORIES: &[&str] = &[
    // Globals as variables
    "return [typeof a, typeof nope, typeof webSearch, web_search === webSearch, tools.a === a, tools.webSearch === web_search, tools['get-weather.v2'] === get_weather_v2]",
    "return [attempt(() => nope_at_all), attempt(() => nope_at_all()), attempt(() => { 'use strict'; nope_at_all = 1 })]",
    "a = 5; return [a, own(globalThis, 'a'), show(tools.a), keys(globalThis)]",
    "tools.a = 5; return [show(a), own(tools, 'a')]",
    "return [sloppy('a = 5; return a'), own(globalThis, 'a'), sloppy('mine = 6; return mine'), own(globalThis, 'mine'), keys(globalThis)]",
    "return [sloppy('return delete a'), typeof a, attempt(() => a), typeof tools.a, sloppy('a = 1; return a'), keys(globalThis)]",
    "return [sloppy('return delete nope'), sloppy('a++; return a'), own(globalThis, 'a')]",
    "(0, eval)('var a'); return [own(globalThis, 'a'), keys(globalThis)]",
    "(0, eval)('var a = 1; var mine = 2'); return [own(globalThis, 'a'), own(globalThis, 'mine'), delete globalThis.a, delete globalThis.mine, keys(globalThis)]",
    "(0, eval)('function a() { return 1 } function mine() {}'); return [own(globalThis, 'a'), own(globalThis, 'mine'), a(), keys(globalThis)]",
    "(0, eval)('let a = 1; const web_search = 2; let mine = 3'); return [(0, eval)('a + web_search + mine'), own(globalThis, 'a'), own(globalThis, 'mine'), attempt(() => (0, eval)('var web_search'))]",
    "delete globalThis.a; (0, eval)('var a'); return [own(globalThis, 'a'), keys(globalThis)]",
    "Object.preventExtensions(globalThis); return [attempt(() => (0, eval)('var mine')), attempt(() => (0, eval)('var a = 2; a')), own(globalThis, 'a')]",
    "var a = 1; return [a, typeof globalThis.a, typeof tools.a]",
    "function web_search() { return 'own' } return [web_search(), await webSearch(), await tools.web_search()]",
    "const { a, webSearch: find, ...rest } = tools; return [await a(), await find(), Object.keys(rest)]",
    "async function main({ a, webSearch, github }) { return [await a(), await webSearch(), await github.list()] }",
    "return [typeof Event, own(globalThis, 'Event'), own(tools, 'Event'), Event === tools.Event, keys(globalThis), delete globalThis.Event, typeof Event, typeof tools.Event, keys(globalThis)]",
    "return [typeof search, typeof describe, own(globalThis, 'search'), 'search' in tools, Object.hasOwn(tools, 'search'), typeof tools.search, delete globalThis.search, typeof search, typeof tools.describe]",
    "store('x', 1); habit = 1; return keys(globalThis)",
    // `tools` and what its prototype finds
    "return [tools[7] === _7, tools['7'] === _7, tools._7 === _7, own(tools, 7), own(globalThis, 7), keys(tools)]",
    "return [typeof tools.then, typeof tools.toString, tools.toString === toString_, typeof tools.valueOf, own(tools, 'toString'), own(globalThis, 'toString')]",
    "return [tools['github.list'] === github.list, tools['github.createIssue'] === github.create_issue, tools.github_list === github.list, tools.create_issue === github.create_issue, tools.getWeather_v2 === get_weather_v2]",
    "github.list = 5; delete github.create_issue; return [tools['github.list'], show(tools['github.create_issue']), tools['github.create_issue'] === tools['github.create_issue'], show(tools['github.createIssue']), keys(github)]",
    "delete tools.a; return [typeof tools.a, tools.a === a, 'a' in tools, Object.hasOwn(tools, 'a'), await tools.a()]",
    "return [attempt(() => tools.nope), attempt(() => tools.web_serch()), attempt(() => github.nope), attempt(() => github.lst()), Object.keys(tools).length, attempt(() => tools.nope)]",
    "const module = await import('github'); return [module.list === github.list, module.createIssue === github.create_issue]",
    "return [await callTool('a'), await callTool('github', 'list'), await callTool({ name: 'web_search' }), await tools['github.list']()]",
    "return [await mcp.github.list(), await codemode.a(), codemode === tools, api.github === github]",
    // Namespaces
    "return [tools.github === github, own(globalThis, 'github'), own(tools, 'github'), own(globalThis, 'my_server'), keys(github), keys(my_server), keys(tools)]",
    "delete globalThis.github; return [attempt(() => typeof github), tools.github.list === tools['github.list'], keys(globalThis), keys(tools)]",
    "github = 5; return [github, typeof tools.github, own(globalThis, 'github'), show(tools['github.list'])]",
    "Object.defineProperty(tools, 'github', { value: 1 }); return [tools.github, typeof github, keys(tools)]",
    "return ['github' in tools, 'my server' in tools, Object.hasOwn(tools, 'github'), Object.hasOwn(globalThis, 'my_server'), typeof tools['my server'].list]",
    "return [github[2] === github._2, own(github, '2'), typeof github.then, attempt(() => github.then_.name), keys(github)]",
    "Object.freeze(github); return [attempt(() => { 'use strict'; github.list = 1 }), Object.isFrozen(github), Object.isFrozen(tools), typeof tools['github.list']]",
    "const before = [a, web_search, tools['delete'], github.list]; Reflect.ownKeys(globalThis); Reflect.ownKeys(tools); Reflect.ownKeys(github); return [a, webSearch, delete_, tools.github.list].map((f, i) => f === before[i])",
    "Reflect.ownKeys(tools); const f = tools.web_search; return [f === webSearch, f === web_search, tools.delete === delete_, tools['get-weather.v2'] === getWeatherV2]",
    // Many deletes move the properties that are left.
    "for (const name of ['Array', 'Map', 'Set', 'Date', 'Proxy', 'WeakMap', 'WeakSet', 'URL', 'Intl', 'escape', 'unescape']) delete globalThis[name]; a; mine = 1; delete globalThis.web_search; globalThis.Array = 2; return keys(globalThis)",
    "for (let i = 0; i < 50; i++) { globalThis[`x${i}`] = i; tools[`x${i}`] = i; if (i % 5) { delete globalThis[`x${i}`]; delete tools[`x${i}`] } } a; webSearch; return [keys(globalThis), keys(tools)]",
    "return [structuredClone({ ...Object.fromEntries(Object.entries(tools).map(([name, f]) => [name, typeof f])) }), attempt(() => structuredClone(tools))]",
    "return tools",
    "return { github, a: 1 }",
    "return await Promise.all([tools, github].map(async (o) => keys(await o)))",
    "console.log(github, a, [tools.my_server]); console.log(`${a}`.length > 0); return 1",
];

/// The expectations were written when all functions were defined before a program started.
#[test]
fn a_name_is_an_ordinary_property_whatever_a_program_does_with_it() {
    let mut said = String::new();
    let objects = [
        ("globalThis", ["a", "web_search", "webSearch"]),
        ("tools", ["a", "web_search", "webSearch"]),
        ("github", ["list", "create_issue", "createIssue"]),
    ];
    for operation in OPERATIONS {
        writeln!(said, "{operation}").expect("text");
        for (object, names) in objects {
            let code = ["X", "Y", "Z"]
                .iter()
                .zip(names)
                .fold(with_word(operation, "O", object), |code, (word, name)| with_word(&code, word, name));
            writeln!(said, "  {object}: {}", outcome(&format!("{SHOW}\n{code}"))).expect("text");
        }
    }
    for story in STORIES {
        writeln!(said, "{story}\n  {}", outcome(&format!("{SHOW}\n{story}"))).expect("text");
    }
    insta::assert_snapshot!(said);
}

/// Replaces a word of one letter, where it stands alone.
fn with_word(code: &str, word: &str, by: &str) -> String {
    let is_part = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    let mut parts = code.split(word).peekable();
    let mut replaced = String::new();
    while let Some(part) = parts.next() {
        replaced.push_str(part);
        if let Some(next) = parts.peek() {
            let is_inside = is_part(replaced.chars().last()) || is_part(next.chars().next());
            replaced.push_str(if is_inside { word } else { by });
        }
    }
    replaced
}

/// Tools of a client, or of one server.
fn many(count: usize, server: Option<&str>) -> Value {
    (0..count).map(|n| json!({ "name": format!("tool_{n}"), "server": server })).collect()
}

#[test]
fn starting_a_program_costs_the_same_with_any_number_of_tools() {
    let programs = [
        (None, "return 1"),
        (None, "return await tool_1({ n: 1 })"),
        (
            None,
            "return [typeof nope, tools.tool_1 === tool_1, 'tool_0' in tools, delete tools.tool_0, globalThis.mine = 1]",
        ),
        (Some("office"), "return [typeof office, office.tool_1.name, tools.office === office]"),
        (Some("office"), "return await office.tool1()"),
    ];
    for (server, code) in programs {
        let used = |count| ProgramStory::new(code).with("tools", many(count, server)).step()["usage"].clone();
        assert_eq!(used(2), used(2_000), "{code}");
    }
}

#[test]
fn a_program_pays_for_each_name_that_it_asks_for() {
    let names = "for (let i = 0; ; i++) tools[`mine_${i}`] = i";
    let absent = "for (let i = 0; ; i++) if (`nope_${i}` in globalThis) return i";
    for code in [names, absent] {
        let story = ProgramStory::new(code).with("limits", json!({ "fuel": 20_000_000, "memory_bytes": 64 << 20 }));
        assert_eq!(story.error()["limit"], "fuel", "{code}");
    }
}

#[test]
fn names_that_there_is_no_memory_for_are_missed_by_nobody_once_there_is() {
    let code = "
        const all = [], room = [];
        const reserve = [new Uint8Array(1 << 21)];
        for (let bytes = 1 << 20; bytes >= 64; bytes >>= 1) {
          try { for (;;) all.push(new Uint8Array(bytes)) } catch {}
        }
        const said = [];
        for (const use of [() => Object.keys(tools), () => office.tool_7, () => tool_7, () => tools.tool_8, () => Object.keys(office), () => Reflect.ownKeys(globalThis), () => delete tools.tool_9]) {
          try { use() } catch (error) { said.push(error.name) }
        }
        reserve.length = all.length = 0;
        return [said.length > 0 && said.every((name) => name === 'InternalError'), Object.keys(tools).length, Object.keys(office).length,
          Reflect.ownKeys(globalThis).filter((name) => typeof name === 'string' && name.startsWith('tool_')).length, tools.tool_1999 === tool_1999, typeof office.tool_1999]";
    let mut tools = many(2_000, None);
    tools.as_array_mut().expect("a list").extend(many(2_000, Some("office")).as_array().expect("a list").clone());
    let story = ProgramStory::new(code).with("tools", tools).with("limits", json!({ "memory_bytes": 16 << 20 }));
    // Each tool has two names. One of them is deleted, if there was memory to remember it.
    let data = story.data();
    let names = data[1].as_u64().expect("a number");
    assert!(names == 4_001 || names == 4_000, "{data}");
    assert_eq!(
        data.as_array().expect("a list")[2..],
        [json!(4_000), json!(2_000), json!(true), json!("function")],
        "{data}"
    );
    assert_eq!(data[0], true);
}

/// Fills the memory, and then frees it piece by piece until each name could be used.
const USE_EACH: &str = "
    const all = [];
    for (let bytes = 1 << 20; bytes >= 64; bytes >>= 1) {
      try { for (;;) all.push(new Uint8Array(bytes)) } catch {}
    }
    let errors = 0;
    const each = (count, use) => { for (let i = 0; i < count && all.length;) { try { use(i); i++ } catch { errors++; all.pop() } } };";

#[test]
fn a_name_is_there_once_however_often_there_was_no_memory_for_it() {
    let code = "
        each(1500, (i) => tools[`tool_${i}`]);
        each(1500, (i) => delete tools[`tool_${i}`]);
        all.length = 0;
        const keys = Object.keys(tools), wrong = [];
        for (let i = 0; i < 2000; i++) if (Object.hasOwn(tools, `tool_${i}`) !== i >= 1500) wrong.push(i);
        return [errors > 1, keys.length, new Set(keys).size, wrong, typeof tools.tool_1999]";
    let limits = json!({ "memory_bytes": 8 << 20 });
    let story = ProgramStory::new(&format!("{USE_EACH}{code}")).with("tools", many(2_000, None)).with("limits", limits);
    // Each tool has two names, `tools` also has `search` and `describe`.
    assert_eq!(story.data(), json!([true, 2_500, 2_500, [], "function"]));
}

#[test]
fn a_namespace_is_found_however_often_there_was_no_memory_for_it() {
    let code = "
        each(300, (i) => tools[`s${i}`]);
        all.length = 0;
        const missing = [];
        for (let i = 0; i < 300; i++) if (typeof tools[`s${i}`]?.f !== 'function' || tools[`s${i}`] !== globalThis[`s${i}`]) missing.push(i);
        return [errors > 1, missing, Object.keys(tools).length]";
    let tools: Value = (0..300).map(|n| json!({ "name": "f", "server": format!("s{n}") })).collect();
    let limits = json!({ "memory_bytes": 8 << 20 });
    let story = ProgramStory::new(&format!("{USE_EACH}{code}")).with("tools", tools).with("limits", limits);
    assert_eq!(story.data(), json!([true, [], 300]));
}

#[test]
fn a_name_that_is_not_ascii_is_not_taken_for_another_one() {
    let tools = json!([{ "name": "é" }, { "name": "b" }, { "name": "名前", "server": "büro" }]);
    // The bytes of `é` in UTF-8, read as Latin-1, are `Ã©`.
    let code = r#"
        const other = { "Ã©": 1, "å\u0090\u008då\u0089\u008d": 2, "bÃ¼ro": 3 };
        const parsed = JSON.parse('{"Ã©": 1, "é": 2}');
        return [typeof tools["é"], tools["é"].name, "é" in tools, "Ã©" in tools, Object.keys(tools), other.é, other["é"],
          parsed["é"], Object.keys(parsed), Object.keys(tools.büro), typeof büro["名前"], await tools["é"]({ n: 1 }), await büro["名前"]()]"#;
    let transcript = ProgramStory::new(code).with("tools", tools).play_with_names();
    assert_eq!(
        transcript.result["data"],
        json!([
            "function",
            "é",
            true,
            false,
            ["é", "b", "büro"],
            null,
            null,
            2,
            ["Ã©", "é"],
            ["名前"],
            "function",
            "é",
            "büro.名前"
        ])
    );
}

#[test]
fn a_name_that_was_looked_for_takes_no_memory() {
    let room = |object: &str| {
        let code = format!(
            "let big = 'x'.repeat(9 << 20); big in {object}; big = null; const all = [];
             try {{ for (;;) all.push(new Uint8Array(1 << 20)) }} catch {{}} return all.length"
        );
        let story =
            ProgramStory::new(&code).with("limits", json!({ "memory_bytes": 32 << 20, "fuel": 4_000_000_000_u64 }));
        story.data()
    };
    assert_eq!(room("tools"), room("({})"));
}

/// Runs operations on an object with tools and on an ordinary object with the same properties. Returns where they differ.
const COMPARE: &str = r"
const { ownKeys, set, get, has, defineProperty, deleteProperty, getOwnPropertyDescriptor, preventExtensions, isExtensible } = Reflect;
const { hasOwn, freeze, seal, isFrozen, isSealed, keys, create } = Object;
const { stringify } = JSON, evaluate = eval, compare = new Set(NAMES);
const real = OBJECT, isGlobal = real === globalThis, model = create(null), functions = new Map(), meant = new Map();
for (const name of BUILTINS) defineProperty(model, name, { value: real[name], writable: true, configurable: true });
for (const [name, stands_for] of LIST) {
  if (!meant.has(stands_for)) meant.set(stands_for, () => stands_for);
  defineProperty(model, name, { value: meant.get(stands_for), writable: true, configurable: true, enumerable: !isGlobal });
}
const tokens = new Map([...meant].map(([name, f]) => [f, name])), builtins = new Set(BUILTINS.map((name) => real[name]));
const meaning = (value) => {
  if (typeof value === 'function') return value.name;
  return typeof value === 'object' && !hasOwn(value, 'marker') ? (hasOwn(value, 'createIssue') ? 'github' : 'my_server') : undefined;
};
const shown = (value, isReal) => {
  if (builtins.has(value)) return 'built in';
  const name = isReal ? meaning(value) : tokens.get(value);
  if (!meant.has(name)) return stringify(value);
  if (isReal && !functions.has(name)) functions.set(name, value);
  return !isReal || functions.get(name) === value ? `tool ${name}` : `another ${name}`;
};
const described = (o, name) => {
  const d = getOwnPropertyDescriptor(o, name);
  return d && ['value' in d ? shown(d.value, o === real) : 'accessor', d.writable, d.enumerable, d.configurable];
};
const relevant = (names) => names.filter((name) => compare.has(name));
const run = ([what, name, detail], o) => {
  switch (what) {
    case 'get': return hasOwn(o, name) ? shown(o[name], o === real) : 'absent';
    case 'describe': return described(o, name);
    case 'own': return [hasOwn(o, name), hasOwn(o, name) && has(o, name)];
    case 'set': return set(o, name, { marker: detail });
    case 'assign': try { o[name] = detail; return true } catch (error) { return error.name }
    case 'set through': { const other = {}; return [set(o, name, detail, other), stringify(other)] }
    case 'set in': return set({}, name, detail, o);
    case 'inherit': { const child = create(o); try { child[name] = 1 } catch {} return hasOwn(child, name) }
    case 'define': return defineProperty(o, name, detail);
    case 'accessor': return defineProperty(o, name, { get: () => detail, configurable: true });
    case 'delete': return deleteProperty(o, name);
    case 'keys': return relevant(ownKeys(o));
    case 'spread': return relevant(keys({ ...o }));
    case 'loop': { const names = []; for (const name in o) names.push(name); return relevant(names) }
    case 'describe all': return relevant(ownKeys(o)).map((name) => [name, described(o, name)]);
    case 'var': if (!isGlobal) return; if (o === real) { try { evaluate(`var ${name}`) } catch {} } else if (isExtensible(o) && !hasOwn(o, name)) defineProperty(o, name, { value: undefined, writable: true, enumerable: true, configurable: true }); return described(o, name);
    case 'preventExtensions': return preventExtensions(o);
    case 'seal': seal(o); return isSealed(o);
    case 'freeze': freeze(o); return isFrozen(o);
    default: return [isExtensible(o), isSealed(o), isFrozen(o)];
  }
};
const differences = [];
for (const operation of [...OPERATIONS, ['describe all'], ['keys']]) {
  const [really, expected] = [real, model].map((o) => stringify(run(operation, o)) ?? 'undefined');
  if (really !== expected) differences.push([operation, really, expected]);
}
return differences";

/// An object, the built-ins that are compared, and what its names mean, in the order of its properties.
#[derive(Debug)]
struct Compared {
    object: &'static str,
    builtins: &'static [&'static str],
    names: &'static [(&'static str, &'static str)],
}

const COMPARED: [Compared; 3] = [
    Compared {
        object: "globalThis",
        builtins: &["escape", "Intl"],
        names: &[
            ("a", "a"),
            ("web_search", "web_search"),
            ("webSearch", "web_search"),
            ("get_weather_v2", "get_weather_v2"),
            ("getWeatherV2", "get_weather_v2"),
            ("github", "github"),
            ("my_server", "my_server"),
            ("search", "search"),
        ],
    },
    Compared {
        object: "tools",
        builtins: &[],
        names: &[
            ("a", "a"),
            ("web_search", "web_search"),
            ("webSearch", "web_search"),
            ("get_weather_v2", "get_weather_v2"),
            ("getWeatherV2", "get_weather_v2"),
            ("get-weather.v2", "get_weather_v2"),
            ("7", "_7"),
            ("github", "github"),
            ("my_server", "my_server"),
        ],
    },
    Compared {
        object: "github",
        builtins: &[],
        names: &[
            ("list", "list"),
            ("create_issue", "create_issue"),
            ("createIssue", "create_issue"),
            ("_2", "_2"),
            ("2", "_2"),
        ],
    },
];

fn program(compared: &Compared, operations: &[Value]) -> String {
    let names: Vec<&str> =
        compared.names.iter().map(|(name, _)| *name).chain(compared.builtins.iter().copied()).chain(OWN).collect();
    let list: Vec<[&str; 2]> = compared.names.iter().map(|(name, meant)| [*name, *meant]).collect();
    COMPARE
        .replace("OPERATIONS", &json!(operations).to_string())
        .replace("OBJECT", compared.object)
        .replace("BUILTINS", &json!(compared.builtins).to_string())
        .replace("LIST", &json!(list).to_string())
        .replace("NAMES", &json!(names).to_string())
}

/// Names that the program adds.
const OWN: [&str; 2] = ["mine", "other"];

fn operation(compared: &'static Compared) -> impl Strategy<Value = Value> {
    let names: Vec<&str> =
        compared.names.iter().map(|(name, _)| *name).chain(compared.builtins.iter().copied()).chain(OWN).collect();
    let of_a_name = prop_oneof![
        4 => Just("get"), 2 => Just("describe"), 1 => Just("own"), 2 => Just("set"), 2 => Just("assign"), 1 => Just("set through"),
        1 => Just("set in"), 1 => Just("inherit"), 2 => Just("accessor"), 4 => Just("delete"), 1 => Just("var"),
    ];
    let name = prop::sample::select(names);
    let flags =
        prop::collection::vec((prop::sample::select(&["writable", "enumerable", "configurable"]), any::<bool>()), 0..3);
    let of_all = prop_oneof![
        4 => Just("keys"), 2 => Just("spread"), 2 => Just("loop"), 2 => Just("describe all"), 1 => Just("state"),
        1 => Just("preventExtensions"), 1 => Just("seal"), 1 => Just("freeze"),
    ];
    prop_oneof![
        16 => (of_a_name, name.clone(), 0..9).prop_map(|(what, name, detail)| json!([what, name, detail])),
        3 => (name, flags, any::<bool>()).prop_map(|(name, flags, has_value)| {
            let value = has_value.then(|| ("value".to_owned(), json!(1)));
            let flags = flags.into_iter().map(|(flag, is_set)| (flag.to_owned(), json!(is_set)));
            json!(["define", name, Value::Object(flags.chain(value).collect())])
        }),
        1 => of_all.prop_map(|what| json!([what])),
    ]
}

proptest! {
    #![proptest_config(Config { cases: 200, ..Config::default() })]
    #[test]
    fn an_object_with_tools_behaves_like_one_with_all_its_properties(
        (compared, operations) in prop::sample::select(&[0_usize, 1, 2])
            .prop_flat_map(|at| (Just(&COMPARED[at]), prop::collection::vec(operation(&COMPARED[at]), 1..25)))
    ) {
        let tools = json!([
            { "name": "a" }, { "name": "web_search" }, { "name": "get-weather.v2" }, { "name": "7" },
            { "name": "list", "server": "github" }, { "name": "create_issue", "server": "github" }, { "name": "2", "server": "github" },
            { "name": "list", "server": "my server" },
        ]);
        let story = ProgramStory::new(&program(compared, &operations)).with("tools", tools);
        prop_assert_eq!(story.data(), json!([]), "{}: {}", compared.object, json!(operations));
    }
}
