//! Programs that attack the sandbox. Each ends with an error or at a limit, the same one every time, and affects no other
//! program.

use std::sync::LazyLock;

use dacapo_replay::{StepRequest, Stepper, WarmPrograms};
use serde_json::{Value, json};

static COLD: LazyLock<Stepper> = LazyLock::new(|| Stepper::new(WarmPrograms::NONE).expect("a sandbox"));

/// Each case is a line `# name`, a program, and a line `=> verdict`.
const EXHAUSTING: &str = r#"
# endless loop
while (true) {}
=> exceeds fuel
# endless microtasks
for (;;) await null
=> exceeds fuel
# endless timers
const again = () => setTimeout(again, 0); again(); await new Promise(() => {})
=> exceeds fuel
# an interval that nobody clears
setInterval(() => {}, 1); await new Promise(() => {})
=> exceeds fuel
# an interval that throws
setInterval(() => { throw new Error("x".repeat(1e6)) }, 1); await new Promise(() => {})
=> exceeds fuel
# a million timers
for (let i = 0; i < 1e6; i++) setTimeout(() => {}, i)
=> exceeds fuel
# a generator without end
return [...(function* () { for (;;) yield 1 })()].length
=> exceeds fuel
# async generators left alone
async function* g() { try { for (;;) yield 1 } finally { for (;;); } }
const it = g(); await it.next(); it.return(); await it.next(); return 1
=> exceeds fuel
# catastrophic regex
return /^(a+)+$/.test("a".repeat(40) + "b")
=> exceeds fuel
# catastrophic regex with a back reference
return /(x+x+)+\1y/.test("x".repeat(40))
=> exceeds fuel
# repeat
return "x".repeat(2 ** 28).length
=> exceeds memory_bytes
# padEnd
return "x".padEnd(2 ** 29, "y").length
=> exceeds memory_bytes
# replaceAll
return "a".repeat(1e6).replaceAll("a", "b".repeat(1e4)).length
=> exceeds fuel
# string doubling
let s = "x"; for (;;) s += s
=> throws InternalError: string too long
# copies of a large string
const s = "x".repeat(2 ** 24); for (;;) s.slice(1)
=> exceeds fuel
# copies inside a large buffer
const bytes = new Uint8Array(2 ** 24); for (;;) bytes.copyWithin(0, 1)
=> exceeds fuel
# a large array
return Array(1e8).fill(0).length
=> exceeds fuel
# an endless array-like
return Array.from({ length: 1e9 }).length
=> exceeds fuel
# a large ArrayBuffer
return new ArrayBuffer(2 ** 30).byteLength
=> exceeds memory_bytes
# a resizable buffer that grows too far
const b = new ArrayBuffer(1, { maxByteLength: 2 ** 29 }); b.resize(2 ** 29); return b.byteLength
=> exceeds memory_bytes
# a buffer that is taken away while it is read
const v = new Uint8Array([1, 2, 3]);
return [v.map((x) => { if (x === 1) v.buffer.transfer(); return x }), v]
=> gives [[1,0,0],[]]
# BigInt power
return String(7n ** 5000000n).length
=> exceeds fuel
# BigInt of a trillion bits
return String(2n ** (1n << 40n)).length
=> throws RangeError: BigInt is too large
# memory that is caught and wanted again
for (;;) { try { const a = []; for (;;) a.push(new Array(1000).fill(1)) } catch {} }
=> exceeds fuel
# memory that is caught
try { const a = []; for (;;) a.push(new ArrayBuffer(2 ** 22)) } catch (e) { return e.message }
=> gives "out of memory"
# stringify of a toJSON without end
return JSON.stringify({ toJSON() { return { x: this } } })
=> exceeds fuel
# stringify of a sparse array
const a = []; a[4e9] = 1; return JSON.stringify(a).length
=> exceeds fuel
# a sparse array as the result
const a = []; a[4e9] = 1; return a
=> exceeds fuel
# a sparse array as an argument
const x = []; x[4e9] = 1; await a({ x })
=> exceeds fuel
# a sort that never agrees
return Array.from({ length: 3e5 }, (_, i) => i).sort(() => Math.random() - 0.5).length
=> exceeds fuel
# ten megabytes of logs
for (let i = 0; i < 1e4; i++) console.log("x".repeat(1000))
=> exceeds log_bytes
# a hundred thousand calls
for (let i = 0; i < 1e5; i++) a({ i })
=> exceeds calls_per_round
# two megabytes of arguments
await a({ text: "x".repeat(2e6) })
=> exceeds args_bytes
# two megabytes of result
return "x".repeat(2e6)
=> exceeds output_bytes
# registries that hold each other
const r = new FinalizationRegistry((held) => r.register({}, held)); const refs = [];
for (let i = 0; i < 1e4; i++) { const o = { i }; r.register(o, {}, o); refs.push(new WeakRef(o)) }
return typeof refs[0].deref()
=> gives "object"
"#;

const DEEP: &str = r#"
# recursion
function f(n) { return 1 + f(n + 1) } return f(0)
=> exceeds stack_bytes
# recursion that is caught
let depth = 0; function f() { depth++; f() } try { f() } catch (e) { return [e.name, depth > 100] }
=> gives ["RangeError",true]
# recursion through getters
const o = { get x() { return this.x } }; return o.x
=> exceeds stack_bytes
# recursion through toString
const o = { toString() { return `${this}` } }; return String(o)
=> exceeds stack_bytes
# recursion through a tool's arguments
const o = { toJSON() { a(o); return 1 } }; await a(o)
=> throws TypeError: a: takes one object argument, like a({}); found number 1
# recursion through console
const o = { toJSON() { console.log(o); return 1 } }; console.log(o)
=> exceeds stack_bytes
# JSON.parse
return JSON.parse("[".repeat(1e6))
=> exceeds stack_bytes
# JSON.stringify
let x = []; for (let i = 0; i < 5e3; i++) x = [x]; return JSON.stringify(x).length
=> exceeds fuel
# nested arrays as text
let x = []; for (let i = 0; i < 5e4; i++) x = [x]; return String(x)
=> exceeds stack_bytes
# nested arrays as the result
let x = []; for (let i = 0; i < 5e4; i++) x = [x]; return x
=> throws RangeError: result is nested deeper than the limit of 100 levels (json_depth); flatten it
# structuredClone
let x = []; for (let i = 0; i < 5e4; i++) x = [x]; return structuredClone(x)
=> exceeds stack_bytes
# parentheses
return (0, eval)("(".repeat(1e6) + "1" + ")".repeat(1e6))
=> exceeds stack_bytes
# regex groups
return new RegExp("(?:".repeat(1e5) + ")".repeat(1e5)).test("a")
=> throws SyntaxError: stack overflow
# proxies of proxies
let p = {}; for (let i = 0; i < 5e4; i++) p = new Proxy(p, {}); return p.x
=> exceeds stack_bytes
# arrays behind proxies of proxies
let p = []; for (let i = 0; i < 5e4; i++) p = new Proxy(p, {}); return p
=> exceeds stack_bytes
# bound functions of bound functions
let f = () => 1; for (let i = 0; i < 2e3; i++) f = f.bind(); return f()
=> exceeds stack_bytes
# iterators of iterators
let it = [1].values(); for (let i = 0; i < 5e3; i++) it = it.map((x) => x); return [...it]
=> exceeds stack_bytes
# a long list that is let go
let o = null; for (let i = 0; i < 5e4; i++) o = { o }; o = null; return 1
=> gives 1
# promises fulfilled with each other
let r, s; const p = new Promise((x) => { r = x }), q = new Promise((x) => { s = x });
p.then = q.then = undefined; r(q); s(p); return p
=> gives "[Circular]"
# a long chain of promises fulfilled with promises
let p = Promise.resolve(1);
for (let i = 0; i < 1e4; i++) { p.then = undefined; const held = p; p = new Promise((done) => done(held)) }
p.then = undefined; return p
=> throws RangeError: result is nested deeper than the limit of 100 levels (json_depth); flatten it
"#;

const TRICKY_VALUES: &str = r#"
# a revoked proxy as the result
const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return { proxy }
=> throws TypeError: revoked proxy
# a proxy whose keys throw
try { await a(new Proxy({}, { ownKeys() { throw new TypeError("no keys") } })) } catch (e) { return e.message }
=> gives "no keys"
# a proxy whose keys repeat
return new Proxy({}, { ownKeys: () => ["x", "x"] })
=> throws TypeError: proxy: duplicate property
# a proxy with endless keys
await a(new Proxy({}, { ownKeys() { const all = []; for (let i = 0; ; i++) all.push("k" + i) } }))
=> exceeds fuel
# a proxy with endless depth
const nest = () => new Proxy({ x: 1 }, { get: (_, key) => (key === "toJSON" ? undefined : nest()) }); await a(nest())
=> throws RangeError: arguments is nested deeper than the limit of 100 levels (json_depth); flatten it
# an array that lies about its length
return new Proxy([], { get: (_, key) => (key === "length" ? 2 ** 53 - 1 : undefined) })
=> exceeds fuel
# a getter that throws
return { get x() { throw new RangeError("no x") } }
=> throws RangeError: no x
# a getter that calls the tool
await a({ get x() { a({ inner: 1 }); return 2 } })
=> asks a {"inner":1}, a {"x":2}
# an array that is cut while it is walked
const x = [1, 2, 3]; x[1] = { toJSON() { x.length = 0; return "cut" } }; await a({ x })
=> asks a {"x":[1,"cut",null]}
# a toJSON that throws
return { toJSON() { throw null } }
=> throws Error: null
# a toJSON that calls a tool too late
return { toJSON() { return a() } }
=> throws TypeError: result is a promise: write `await` before it
# a thenable as the result
return { then(resolve) { resolve(5) } }
=> gives 5
# a thenable that never resolves
return { then() {} }
=> deadlocks
# a thenable as an argument
await a({ then(resolve) { resolve(5) } })
=> throws TypeError: arguments.then is a Function, which cannot be sent to a tool
# every result is a thenable
Object.prototype.then = function (resolve) { resolve("taken") }; return { x: 1 }
=> gives "taken"
# a promise where nobody looks for it
return new Map([["x", new Promise(() => {})]])
=> throws TypeError: result.x is a promise: write `await` before it
# half a surrogate pair everywhere
console.log("\ud800"); try { tools["\ud800"] } catch {}
try { new Intl.DateTimeFormat("en", { timeZone: "\ud800" }) } catch (e) { return ["\udfff", { "\udc00": e.name }] }
=> gives ["�",{"�":"RangeError"}]
# values without a form
return [Symbol("s"), () => 1, new WeakMap(), new Proxy(() => 1, {}), 1n, NaN, tools.a, globalThis, Object.create(null)]
=> gives ["[Symbol(s)]","[Function: anonymous]","[object WeakMap]","[Function: anonymous]",1,null,"[Function: a]",{},{}]
# an error that contains itself
const e = new Error("x"); e.cause = e; return e
=> gives {"name":"Error","message":"x","cause":"[Circular]"}
# a hundred thousand rejections
for (let i = 0; i < 1e5; i++) Promise.reject(i); return 1
=> exceeds fuel
"#;

const TRICKY_ERRORS: &str = r#"
# null
throw null
=> throws Error: null
# undefined
throw undefined
=> throws Error: undefined
# a symbol
throw Symbol("s")
=> throws Error: Symbol(s)
# a function
throw function f() {}
=> throws Error: [Function: f]
# a proxy that answers nothing
throw new Proxy({}, { get() { throw 1 } })
=> throws Error: something that cannot be shown
# a revoked proxy
const { proxy, revoke } = Proxy.revocable(() => 1, {}); revoke(); throw proxy
=> throws Error: [Function: anonymous]
# getters that throw
const e = new ToolError("x"), keys = ["name", "message", "stack", "cause", "tool", "data"];
for (const key of keys) Object.defineProperty(e, key, { get() { throw key } }); throw e
=> throws Error:
# a message without end
const e = new Error(); Object.defineProperty(e, "message", { get() { for (;;); } }); throw e
=> exceeds fuel
# a cause that is the error itself
const e = new Error("x"); e.cause = e; throw e
=> throws Error: x
# a tool that is no text, and deep data
let data = 1; for (let i = 0; i < 500; i++) data = [data]; throw new ToolError("m", { x: 1 }, data)
=> throws ToolError: m
# errors that are a revoked proxy
const { proxy, revoke } = Proxy.revocable([], {}), e = new AggregateError([1], "m"); e.errors = proxy; revoke(); throw e
=> throws AggregateError: m
# errors that cannot be sliced
const e = new AggregateError([1], "m"); e.errors.slice = null; throw e
=> throws AggregateError: m: 1
# a forged stack
const e = new Error("x"); e.stack = "at program:0:0\nprogram:4294967295:4294967295\nprogram:-1:x".repeat(1e4); throw e
=> throws Error: x
# no stack at all
Error.stackTraceLimit = { valueOf() { throw 1 } }; Error.prepareStackTrace = () => { throw 2 }; null.x
=> throws TypeError: cannot read property 'x' of null
"#;

const REACHING_OUT: &str = r#"
# import
return await (0, eval)("import('fs')").catch((e) => e.message)
=> gives "cannot import \"fs\": there are no files here; use the tools; the tools are a, b, github.issue"
# what is not there
return ["require", "process", "WebAssembly", "Atomics", "SharedArrayBuffer", "Deno"].map((name) => typeof globalThis[name])
=> gives ["undefined","undefined","undefined","undefined","undefined","undefined"]
# the Function constructor
return new Function("return this === globalThis && typeof require")()
=> gives "undefined"
# with, over the tools
return new Function("t", "with (t) { return [typeof zzz, typeof a, typeof toString] }")(tools)
=> gives ["undefined","function","function"]
# callers
return new Function("try { return arguments.callee.caller } catch (e) { return e.name }")() ?? "none"
=> gives "none"
# functions in a stack trace
const sites = []; Error.prepareStackTrace = (_, all) => { sites.push(...all); return "" };
console.log({ toJSON() { return new Error().stack } });
return [sites.length > 3, sites.some((site) => Object.getPrototypeOf(site).getFunction || site.getThis)]
=> gives [true,false]
# the prototype of tools
const proto = Object.getPrototypeOf(tools);
return [tools.__proto__, Reflect.ownKeys(proto), Object.getPrototypeOf(proto), Reflect.setPrototypeOf(proto, tools)]
=> gives [null,[],null,false]
# another prototype for tools
Object.setPrototypeOf(Object.getPrototypeOf(tools), { nope: 1 }); return tools.nope
=> throws ReferenceError: tools.nope is not defined: no tool has this name; the tools are a, b, github.issue
# tools through a getter of all objects
Object.defineProperty(Object.prototype, "boo", { get() { return tools.boo } }); return tools.boo
=> exceeds stack_bytes
# tools frozen, deleted and overwritten
const { issue } = github; Object.freeze(tools); delete globalThis.a; globalThis.github = null; tools.b = 1;
tools.a({ n: 1 }); issue({ n: 2 })
=> asks a {"n":1}, github.issue {"n":2}
# tools with any this
a.call(null, { n: 1 }); a.apply(5, [{ n: 2 }]); a.bind({}, { n: 3 })(); Reflect.apply(a, undefined, [{ n: 4 }])
=> asks a {"n":1}, a {"n":2}, a {"n":3}, a {"n":4}
# a tool as a constructor
return [() => new a(), () => class extends a {}].map((f) => { try { return f() } catch (e) { return e.name } })
=> gives ["TypeError","TypeError"]
# names of tools, groped for
for (let i = 0; ; i++) { try { tools["x".repeat(1000) + i] } catch {} }
=> exceeds fuel
# a host with long names
const label = Array.from({ length: 900 }, (_, i) => String.fromCodePoint(0x4e00 + i)).join("");
return new URL("http://" + Array(300).fill(label).join(".")).host.length
=> exceeds fuel
# a long URL
return [new URL("http://a.b/" + "x".repeat(1e5)).href.length, URL.canParse("http://[" + ":".repeat(1e5) + "]")]
=> gives [100011,false]
# a long URL, changed for ever
const url = new URL("http://a.b/" + "x".repeat(1e5)); for (;;) url.hash = "y"
=> exceeds fuel
# a long query
return new URLSearchParams("a=%&".repeat(1e3)).size
=> gives 1000
# long texts compared for ever
const x = "a".repeat(1e6), y = x + "b"; for (;;) x.localeCompare(y)
=> exceeds fuel
# a letter with two hundred thousand marks
const x = "a" + "\u0301".repeat(2e5); return x.localeCompare(x + "b")
=> exceeds fuel
# a million digits compared as a number
return new Intl.Collator("en", { numeric: true }).compare("9".repeat(1e6), "9".repeat(1e6) + "1")
=> exceeds fuel
# a vowel that waits for its consonant
const x = "\u0e40".repeat(2e5); return x.localeCompare(x + "b")
=> exceeds fuel
# a long time zone
try { return new Intl.DateTimeFormat("en", { timeZone: "x".repeat(1e5) }) } catch (e) { return e.name }
=> gives "RangeError"
# a long locale
try { return new Intl.NumberFormat("en-" + "x".repeat(1e4)) } catch (e) { return e.name }
=> gives "RangeError"
# garbage, decoded
return new TextDecoder().decode(new Uint8Array(1e5).fill(0xff)).length
=> gives 100000
"#;

/// What a program may do to its globals before it goes on. None of it may change what [`UNMOVED`] and [`UNMOVED_ERROR`] give.
const POLLUTIONS: &[&str] = &[
    "Object.prototype.get = Object.prototype.set = () => 1; Object.prototype.value = Object.prototype.writable = 2",
    "Object.prototype.data = Object.prototype.tool = Object.prototype.cause = Object.prototype.thrown = 'evil'",
    "Object.defineProperty(Object.prototype, 'name', { set() { throw 1 }, get() { return 'evil' } })",
    "Object.prototype.stack = Object.prototype.length = Object.prototype.constructor = 1; Object.prototype[0] = 'evil'",
    "Object.keys = Object.defineProperty = Object.getOwnPropertyDescriptor = Object.hasOwn = () => { throw 1 }",
    "for (let i = 0; i < 9; i++) Object.defineProperty(Array.prototype, i, { set() {}, get() { return 'evil' } })",
    "delete Array.prototype[Symbol.iterator]",
    "Array.prototype.map = Array.prototype.join = Array.prototype.slice = Array.prototype.push = () => 'evil'",
    "Array.isArray = () => { throw 1 }; Object.defineProperty(Array, Symbol.species, { value: 5 })",
    "Function.prototype.call = Function.prototype.apply = Function.prototype.bind = () => 'evil'",
    "Promise.prototype.then = Promise.prototype.catch = Promise.prototype.finally = () => { throw 1 }",
    "globalThis.Promise = Promise.resolve = Promise.all = null",
    "Object.defineProperty(Promise, Symbol.species, { get() { throw 1 } })",
    "JSON.parse = JSON.stringify = () => { throw 1 }; globalThis.JSON = null",
    "Map.prototype.forEach = Map.prototype.set = Map.prototype.get = Map.prototype[Symbol.iterator] = null",
    "Set.prototype.forEach = Set.prototype.has = Set.prototype.add = Set.prototype[Symbol.iterator] = null",
    "Date.prototype.getTime = Date.prototype.valueOf = () => { throw 1 }; globalThis.Date = null",
    "RegExp.prototype.exec = RegExp.prototype.test = RegExp.prototype[Symbol.replace] = () => null",
    "String.prototype.slice = String.prototype.replace = String.prototype.toWellFormed = () => '\\ud800'",
    "globalThis.String = globalThis.Number = globalThis.BigInt = globalThis.Uint8Array = () => 'evil'",
    "Object.defineProperty(Object.getPrototypeOf(Uint8Array.prototype), 'length', { get: () => 1e9 })",
    "Error.prepareStackTrace = (_, sites) => { throw sites }; Error.captureStackTrace = Error.isError = null",
    "Error.stackTraceLimit = Infinity; globalThis.Error = globalThis.AggregateError = globalThis.ToolError = null",
    "globalThis.console = globalThis.tools = globalThis.Symbol = globalThis.Object = null",
    "for (const key of Object.getOwnPropertyNames(Reflect)) delete Reflect[key]; delete globalThis.globalThis",
    "Object.freeze(globalThis); Object.freeze(Object.prototype); Object.freeze(Array.prototype)",
];

const UNMOVED: &str = r#"
const kept = {
  map: new Map([["k", 1]]), pairs: new Map([[null, 1]]), set: new Set([1, 2]), bytes: new Uint8Array([1, 2]), regExp: /x/g,
  error: new TypeError("t", { cause: 1 }),
};
POLLUTE;
const answer = await a({ set: kept.set });
let failure;
try { await b() } catch (e) { failure = { name: e.name, message: e.message, tool: e.tool, data: e.data } }
return { kept, answer, failure };
"#;

const UNMOVED_ERROR: &str = r#"
const answered = a({ set: [1, 2] }), error = new AggregateError([new TypeError("t"), 5, "x"], "m", { cause: null });
POLLUTE;
await answered;
try { await b() } catch {}
throw error;
"#;

/// Walks all that a program can reach, and all that the library lets slip to a program that replaces its methods.
const REACHABLE: &str = r#"
let open = true;
const slipped = [];
for (const name of ["Array", "String", "Map", "Set", "WeakMap", "RegExp", "Promise", "Date", "Function", "Number"]) {
  const proto = globalThis[name].prototype;
  for (const key of Reflect.ownKeys(proto)) {
    const { value, writable } = Object.getOwnPropertyDescriptor(proto, key);
    if (typeof value !== "function" || !writable || key === "constructor") continue;
    const note = (args) => { if (open) slipped[slipped.length] = args };
    proto[key] = function (...all) { note([this, all]); return Reflect.apply(value, this, all) };
  }
}
console.log("%s %o", {}, [1]); console.table([{ x: 1 }]); console.count(); console.group("g");
const url = new URL("http://a.b/?x=1"); url.searchParams.append("y", "2"); url.hash = "z";
"a".localeCompare("b", "de"); (5).toLocaleString(); new Date(0).toLocaleString(); new Intl.ListFormat("en").format(["a"]);
structuredClone(new Map([[1, new Set([{}])]])); new TextDecoder("utf-16").decode(new TextEncoder().encode("ab"));
crypto.randomUUID(); AbortSignal.any([AbortSignal.timeout(5)]).addEventListener("abort", () => {}); setTimeout(() => {}, 1);
open = false;
const seen = new Set(), names = new Set(), todo = [globalThis, slipped, (function* () {})(), (async function* () {})()];
while (todo.length) {
  const value = todo.pop();
  if ((typeof value !== "object" && typeof value !== "function") || value === null || seen.has(value)) continue;
  seen.add(value);
  if (typeof value === "function") names.add(String(value.name));
  todo.push(Object.getPrototypeOf(value));
  for (const key of Reflect.ownKeys(value)) {
    const { value: inner, get, set } = Object.getOwnPropertyDescriptor(value, key);
    todo.push(inner, get, set);
  }
}
return [...names].sort();
"#;

const NATIVES: &str = "ask emit show started setTimer clearTimer fillRandom encodeUtf8 decodeUtf8";

#[test]
fn hostile_programs_get_their_verdict_twice_and_leave_nothing_behind() {
    let benign = request("const x = await a({ n: Math.random() }); return x").to_string();
    let usual = step(&benign);
    let resident_before = resident_bytes();

    let mut wrong = Vec::new();
    for (name, request, verdict) in attacks() {
        let first = step(&request);
        let told = told(&first);
        if told != verdict {
            wrong.push(format!("{name}: {told}, not {verdict}"));
        }
        assert!(first == step(&request), "{name} ends differently the second time");
        assert_eq!(step(&benign), usual, "after {name}");
    }

    assert_eq!(wrong, Vec::<String>::new());
    let grown = resident_bytes().saturating_sub(resident_before);
    // Half of it are memories that are kept for the next programs, and the rest what the allocator keeps. One attack takes
    // up to 64 MiB.
    assert!(grown < 128 << 20, "{} MiB stay behind", grown >> 20);
}

#[test]
fn a_polluted_world_answers_as_before() {
    let answered = |code: &str| {
        let mut request = request(code);
        request["journal"] = json!([
            { "call": 0, "tool": "a", "args": { "set": [1, 2] }, "ok": { "big": 12_345_678_901_234_567_890_u64 } },
            { "call": 1, "tool": "b", "error": { "message": "m", "data": { "d": 1 } } },
        ]);
        told(&step(&request.to_string()))
    };
    let error = r#"{"name":"TypeError","message":"t","cause":1}"#;
    let kept = r#"{"map":{"k":1},"pairs":[[null,1]],"set":[1,2],"bytes":[1,2],"regExp":"/x/g","error":ERROR}"#;
    let kept = kept.replace("ERROR", error);
    let failure = r#"{"name":"ToolError","message":"m","tool":"b","data":{"d":1}}"#;
    let value = format!(r#"gives {{"kept":{kept},"answer":{{"big":12345678901234567890}},"failure":{failure}}}"#);
    for pollution in POLLUTIONS {
        assert_eq!(answered(&UNMOVED.replace("POLLUTE", pollution)), value, "{pollution}");
        let error = "throws AggregateError: m: TypeError: t; 5; x";
        assert_eq!(answered(&UNMOVED_ERROR.replace("POLLUTE", pollution)), error, "{pollution}");
    }
}

#[test]
fn natives_are_out_of_reach() {
    let mut walk = request(REACHABLE);
    walk["limits"]["fuel"] = json!(10_000_000_000_u64);
    let reachable = data(&walk);
    let names: Vec<&str> = reachable.as_array().expect("names").iter().filter_map(Value::as_str).collect();
    assert!(names.len() > 200, "the walk saw only {}", names.len());
    let reached: Vec<&str> = NATIVES.split(' ').filter(|name| names.contains(name)).collect();
    assert_eq!(reached, Vec::<&str>::new());
}

#[test]
fn the_globals_are_those_that_programs_are_told_of() {
    let mut request = request("return Reflect.ownKeys(globalThis).filter((key) => typeof key === 'string').sort()");
    request["tools"] = json!([]);
    assert_eq!(data(&request), json!(dacapo_script::STANDARD_GLOBALS));
}

#[test]
fn programs_share_nothing_while_they_take_turns() {
    let stepper = Stepper::new(WarmPrograms { count_max: 4, bytes_max: 1 << 30 }).expect("a sandbox");
    let changes = "globalThis.mark = Array.prototype.mark = tools.mark = ID; Array.prototype.map = () => ID;";
    let code = format!(
        "const before = [typeof mark, [].mark]; {changes} await a(); await b(); return [before, mark, [].map()]"
    );
    let programs = ["1", "2"].map(|id| request(&code.replace("ID", id)));
    for answers in 0..=2 {
        for (at, program) in programs.iter().enumerate() {
            let mut program = program.clone();
            let entry = |(call, tool): (usize, &str)| json!({ "call": call, "tool": tool, "ok": null });
            program["journal"] = ["a", "b"].into_iter().enumerate().take(answers).map(entry).collect();
            let told = told(&step_with(&stepper, &program.to_string()));
            let own = at + 1;
            let expected = ["asks a {}", "asks b {}", &format!(r#"gives [["undefined",null],{own},{own}]"#)];
            assert_eq!(told, expected[answers]);
        }
    }
}

/// Name, request and verdict of every attack.
fn attacks() -> Vec<(String, String, String)> {
    let small = [EXHAUSTING, DEEP, TRICKY_VALUES, TRICKY_ERRORS, REACHING_OUT].into_iter().flat_map(cases);
    let small = small.map(|[name, code, verdict]| (name.to_owned(), request(code).to_string(), verdict.to_owned()));
    small.chain(large_attacks().map(|(name, request, verdict)| (name.into(), request, verdict.into()))).collect()
}

fn cases(table: &'static str) -> impl Iterator<Item = [&'static str; 3]> {
    table.split("\n# ").skip(1).map(|case| {
        let (case, verdict) = case.split_once("\n=> ").expect("a verdict");
        let (name, code) = case.split_once('\n').expect("a program");
        [name, code, verdict.trim_end()]
    })
}

/// Attacks that are large themselves.
fn large_attacks() -> impl Iterator<Item = (&'static str, String, &'static str)> {
    const ASK: &str = "const answer = await a(); return [typeof answer, answer.length]";
    let with = |code: &str, key: &str, value: Value| {
        let mut request = request(code);
        request[key] = value;
        request.to_string()
    };
    let answered = |ok: &str| {
        with(ASK, "journal", json!([{ "call": 0, "tool": "a", "ok": 0 }])).replace("\"ok\":0", &format!("\"ok\":{ok}"))
    };
    let deep = ["[".repeat(1_000_000), "]".repeat(1_000_000)].concat();
    let comment = format!("/*{}*/ return 1", "x".repeat(5_000_000));
    let lines = "f(1);\n".repeat(3_000);
    let many_calls =
        json!({ "calls": 100_000, "calls_per_round": 100_000, "fuel": 2_000_000_000, "memory_bytes": 256 << 20 });
    [
        ("a deep answer", answered(&deep), "exceeds stack_bytes"),
        ("a deep answer as text", answered(&format!("\"{deep}\"")), "exceeds stack_bytes"),
        ("a huge answer", answered(&format!("[{}1]", "1,".repeat(3_000_000))), "exceeds fuel"),
        ("a huge answer as text", answered(&format!("\"{}\"", "x".repeat(30_000_000))), "gives [\"string\",30000000]"),
        (
            "a regex that remembers too much",
            with("return /(?:a|b)*c/.test('ab'.repeat(1e6))", "limits", json!({ "memory_bytes": 8 << 20 })),
            "exceeds memory_bytes",
        ),
        ("a huge program", request(&comment).to_string(), "exceeds program_bytes"),
        ("a huge program, let in", with(&comment, "limits", json!({ "program_bytes": 8 << 20 })), "gives 1"),
        ("a deep program", request(&"(".repeat(100_000)).to_string(), "is no program"),
        (
            "a long program whose rejections nobody handles",
            request(&format!(
                "function f() {{}}\n{lines} for (let i = 0; i < 100; i++) Promise.reject(new Error()); return 1"
            ))
            .to_string(),
            "gives 1",
        ),
        (
            "a hundred thousand calls, let in",
            with("for (let i = 0; i < 100_001; i++) a()", "limits", many_calls),
            "exceeds calls",
        ),
    ]
    .into_iter()
}

fn request(code: &str) -> Value {
    let tools = json!([{ "name": "a" }, { "name": "b" }, { "name": "issue", "server": "github" }]);
    json!({ "program": { "code": code }, "tools": tools, "journal": [], "limits": { "fuel": 300_000_000 } })
}

fn step(request: &str) -> String {
    step_with(&COLD, request)
}

fn step_with(stepper: &Stepper, request: &str) -> String {
    let request = StepRequest::parse(request).expect("a valid request");
    let step = stepper.step(&request, &|| true).expect("a step");
    serde_json::to_string(&step).expect("steps are JSON")
}

fn data(request: &Value) -> Value {
    let mut step: Value = serde_json::from_str(&step(&request.to_string())).expect("steps are JSON");
    assert_eq!(step["result"]["status"], "success", "{step}");
    step["result"]["data"].take()
}

/// How a step ended, in one line.
fn told(step: &str) -> String {
    let step: Value = serde_json::from_str(step).expect("steps are JSON");
    if let Some(calls) = step["calls"].as_array() {
        let call = |call: &Value| format!("{} {}", call["tool"].as_str().expect("a name"), call["args"]);
        return format!("asks {}", calls.iter().map(call).collect::<Vec<_>>().join(", "));
    }
    let error = &step["result"]["error"];
    let text = |key: &str| error[key].as_str().unwrap_or_default();
    match text("kind") {
        "" => format!("gives {}", step["result"]["data"]),
        "limit" => format!("exceeds {}", text("limit")),
        "exception" => format!("throws {}: {}", text("name"), text("message")).trim_end().to_owned(),
        "deadlock" => "deadlocks".to_owned(),
        "syntax" => "is no program".to_owned(),
        _ => error.to_string(),
    }
}

/// Zero where it cannot be known.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() << 10
}
