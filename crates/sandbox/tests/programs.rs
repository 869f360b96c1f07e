//! One program in the sandbox: how it runs, pauses and ends, and what it cannot do.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use dacapo_sandbox::{
    AnswerKind, CallArguments, CallDecision, FinalReport, Freshness, FuelMeter, Host, IdleState, JsPosition, LogLevel,
    NameMeaning, NamePlace, Names, OutOfFuel, ProgramNames, Refusal, Sandbox, SandboxError, ShouldContinue, Stop, Vm,
    VmConfig,
};
use serde_json::{Value, json};

const NEVER_INTERRUPT: ShouldContinue<'_> = &|| true;

/// Records what a program does. Calls of `forbidden` are refused, and `log("stop")` stops the program.
#[derive(Debug, Default, PartialEq, Eq)]
struct Recorder {
    calls: Vec<(u32, String)>,
    logs: Vec<(LogLevel, String)>,
}

const PRICE: u16 = 0;
const FORBIDDEN: u16 = 1;

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let mut names = Names::default();
    names.function(PRICE, "price");
    names.function(FORBIDDEN, "forbidden");
    names
});

impl Host for Recorder {
    fn call(&mut self, tool: u32, args: CallArguments<'_>, _: Freshness, _: &mut FuelMeter) -> CallDecision {
        if tool == u32::from(FORBIDDEN) {
            let message = "forbidden is not for programs".to_owned();
            return CallDecision::Refused(Refusal { message, ..Refusal::default() });
        }
        let (CallArguments::One(args) | CallArguments::Positional(args)) = args;
        self.calls.push((tool, args.to_owned()));
        CallDecision::Issued
    }

    fn log(&mut self, level: LogLevel, text: &str) -> ControlFlow<()> {
        self.logs.push((level, text.to_owned()));
        if text == "stop" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn meaning(&self, _: NamePlace<'_>, name: &str, _: &mut FuelMeter) -> Result<NameMeaning, OutOfFuel> {
        Ok(NameMeaning::Nothing(format!("there is no tool {name}")))
    }

    fn names(&self) -> Option<&Names> {
        Some(&NAMES)
    }
}

fn config() -> VmConfig {
    VmConfig {
        entropy: [7; 40],
        started_at_ms: 1_000_000_000_000.0,
        fuel: 1_000_000_000,
        memory_bytes: 16 << 20,
        stack_bytes: 256 << 10,
    }
}

fn sandbox(programs_max: u32) -> Sandbox<Recorder> {
    Sandbox::new(programs_max).expect("address space for a few programs")
}

/// Starts the body of an async function; its first line is line 2.
fn start(vm: &mut Vm<Recorder>, config: &VmConfig, body: &str) -> Result<IdleState, Stop> {
    vm.start(config, &ProgramNames::default(), &format!("(async () => {{\n{body}\n}})()"), NEVER_INTERRUPT)
}

/// Runs a program that makes no calls.
fn run(config: &VmConfig, body: &str) -> FinalReport {
    let mut vm = sandbox(1).new_vm(config, Recorder::default()).expect("room for a program");
    let state = start(&mut vm, config, body).expect("the program comes to its end");
    assert!(matches!(state, IdleState::Fulfilled | IdleState::Rejected), "{state:?}");
    vm.finish(NEVER_INTERRUPT).expect("a report")
}

fn value(report: FinalReport) -> Value {
    serde_json::from_str(&report.outcome.expect("a result")).expect("results are JSON")
}

/// Name and message of the error that a program ended with.
fn error(report: &FinalReport) -> (String, String) {
    let described: Value =
        serde_json::from_str(report.outcome.as_ref().expect_err("an error")).expect("errors are JSON");
    let text = |key: &str| described[key].as_str().expect("a text").to_owned();
    (text("name"), text("message"))
}

#[test]
fn a_program_runs_to_its_end() {
    let sandbox = sandbox(1);
    let mut vm = sandbox.new_vm(&config(), Recorder::default()).unwrap();

    let state =
        start(&mut vm, &config(), "console.warn('half', 'way');\nawait null;\nreturn { sum: [1, 2].map(n => n * 2) }");

    assert_eq!(state, Ok(IdleState::Fulfilled));
    assert_eq!(value(vm.finish(NEVER_INTERRUPT).unwrap()), json!({ "sum": [2, 4] }));
    let logs = vec![(LogLevel::Warn, "half way".to_owned())];
    assert_eq!(*vm.host(), Recorder { calls: Vec::new(), logs });
}

#[test]
fn a_call_pauses_the_program_until_it_is_settled() {
    let sandbox = sandbox(1);
    let mut vm = sandbox.new_vm(&config(), Recorder::default()).unwrap();

    let body = "const pen = await price({ item: 'pen' });\n\
        try { await price({ item: 'ink' }) } catch (error) { return [pen, error.name, error.message, error.data] }";
    assert_eq!(start(&mut vm, &config(), body), Ok(IdleState::Pending));
    assert_eq!(vm.settle(0, AnswerKind::Json, "[2, 50]", NEVER_INTERRUPT), Ok(IdleState::Pending));
    let sold_out = r#"{"message": "sold out", "tool": "price", "data": {"until": "May"}}"#;
    assert_eq!(vm.settle(1, AnswerKind::Error, sold_out, NEVER_INTERRUPT), Ok(IdleState::Fulfilled));

    let calls = [r#"{"item":"pen"}"#, r#"{"item":"ink"}"#].map(|args| (u32::from(PRICE), args.to_owned()));
    assert_eq!(vm.host().calls, calls);
    let result = value(vm.finish(NEVER_INTERRUPT).unwrap());
    assert_eq!(result, json!([[2, 50], "ToolError", "sold out", { "until": "May" }]));
}

#[test]
fn a_call_that_the_host_refuses_throws_in_the_program() {
    let refused = run(&config(), "return await forbidden({})");
    assert_eq!(error(&refused), ("TypeError".to_owned(), "forbidden is not for programs".to_owned()));

    let unknown = run(&config(), "return await tools.buy({})");
    assert_eq!(error(&unknown).1, "there is no tool buy");
}

#[test]
fn a_program_that_the_host_stops_ends_where_it_was() {
    let sandbox = sandbox(1);
    let mut vm = sandbox.new_vm(&config(), Recorder::default()).unwrap();

    let stopped = start(&mut vm, &config(), "try {\n  console.log('stop');\n} catch {}\nreturn 'caught'");

    let Err(Stop::ByHost(positions)) = stopped else { panic!("{stopped:?}") };
    assert_eq!(positions.first(), Some(&JsPosition { line: 3, column: 11 }));
}

#[test]
fn an_endless_loop_uses_up_its_fuel_and_nothing_more() {
    let config = VmConfig { fuel: 50_000_000, ..config() };
    let sandbox = sandbox(1);
    let mut vm = sandbox.new_vm(&config, Recorder::default()).unwrap();

    let stopped = start(&mut vm, &config, "try {\n  while (true) {}\n} finally { console.log('never') }");

    let Err(Stop::OutOfFuel(positions)) = stopped else { panic!("{stopped:?}") };
    assert_eq!(positions.first().map(|position| position.line), Some(3));
    assert_eq!((vm.fuel_used(), &vm.host().logs), (50_000_000, &Vec::new()));
}

#[test]
fn a_program_cannot_grow_beyond_its_memory() {
    let sandbox = sandbox(1);
    let mut vm = sandbox.new_vm(&config(), Recorder::default()).unwrap();

    let body = "const blocks = [];\nwhile (true) blocks.push(new Uint8Array(1 << 20).fill(1))";
    assert_eq!(start(&mut vm, &config(), body), Ok(IdleState::Rejected));

    let report = vm.finish(NEVER_INTERRUPT).unwrap();
    assert_eq!(error(&report), ("InternalError".to_owned(), "out of memory".to_owned()));
    assert!(report.memory_refused);
    assert!(vm.memory_bytes() <= config().memory_bytes, "{}", vm.memory_bytes());
}

#[test]
fn recursion_ends_at_the_same_depth_every_time() {
    let depth = |stack_bytes| {
        let body = "let depth = 0;\nconst dive = () => { depth += 1; dive() };\n\
            try { dive() } catch (error) { return [depth, error.message] }";
        value(run(&VmConfig { stack_bytes, ..config() }, body))
    };
    let [small, again, large] = [64 << 10, 64 << 10, 256 << 10].map(depth);
    assert_eq!(small, again);
    assert_eq!(small[1], "Maximum call stack size exceeded");
    assert!(large[0].as_u64() > small[0].as_u64(), "{large} {small}");
}

#[test]
fn the_caller_can_interrupt_a_program_that_still_has_fuel() {
    // The second and third ask their host all the time.
    for work in ["", "'ä'.localeCompare('z')", "try { tools.missing() } catch {}"] {
        let config = VmConfig { fuel: 2_000_000_000, ..config() };
        let sandbox = sandbox(1);
        let mut vm = sandbox.new_vm(&config, Recorder::default()).unwrap();
        let checks = Cell::new(0);
        let three_times = || {
            checks.set(checks.get() + 1);
            checks.get() < 3
        };

        let stopped = vm.start(
            &config,
            &ProgramNames::default(),
            &format!("(async () => {{ while (true) {{ {work} }} }})()"),
            &three_times,
        );

        assert_eq!((stopped, checks.get()), (Err(Stop::Interrupted), 3), "{work}");
    }
}

#[test]
fn nothing_survives_from_one_program_to_the_next() {
    // A memory that has grown is given back, others serve the next program.
    for repeated in [100, 100_000] {
        let sandbox = sandbox(1);
        let new_vm = || sandbox.new_vm(&config(), Recorder::default());
        let mut first = new_vm().unwrap();
        let body = format!(
            "globalThis.secret = 'left behind'.repeat({repeated});\nArray.prototype.map = null;\nMath.random = () => 4;\n\
            Object.freeze(Object.prototype);\nprice({{}});\nreturn 1"
        );
        assert_eq!(start(&mut first, &config(), &body), Ok(IdleState::Fulfilled));
        let full = new_vm();
        assert!(matches!(full, Err(SandboxError::Full(1))), "{full:?}");
        drop(first);

        let body = "return [typeof secret, typeof [].map, Math.random() === 4, Object.isFrozen(Object.prototype)]";
        let mut second = new_vm().unwrap();
        assert_eq!(start(&mut second, &config(), body), Ok(IdleState::Fulfilled));
        assert_eq!(value(second.finish(NEVER_INTERRUPT).unwrap()), json!(["undefined", "function", false, false]));
        assert_eq!(second.host().calls, []);
    }
}

#[test]
fn time_and_randomness_are_what_the_host_gave() {
    let observe = |config: &VmConfig| {
        value(run(config, "return [Date.now(), Math.random(), crypto.randomUUID(), new Date().getTimezoneOffset()]"))
    };
    let first = observe(&config());
    assert_eq!(first[0], 1_000_000_000_000_u64);
    assert_eq!(first[3], 0, "programs run in UTC wherever the host is");
    assert_eq!(observe(&config()), first);

    let other = observe(&VmConfig { entropy: [8; 40], ..config() });
    assert_eq!(other[0], first[0]);
    assert!(other[1] != first[1] && other[2] != first[2], "{other} {first}");
}

#[test]
fn timers_fire_when_the_host_says_so_and_move_the_clock() {
    let sandbox = sandbox(1);
    let mut vm = sandbox.new_vm(&config(), Recorder::default()).unwrap();

    let body =
        "const start = Date.now();\nawait new Promise(done => setTimeout(done, 3_600_000));\nreturn Date.now() - start";
    assert_eq!(start(&mut vm, &config(), body), Ok(IdleState::WaitingForTimer));
    assert_eq!(vm.tick(NEVER_INTERRUPT), Ok(IdleState::Fulfilled));

    assert_eq!(value(vm.finish(NEVER_INTERRUPT).unwrap()), json!(3_600_000));
}

#[test]
fn the_same_program_costs_the_same() {
    let cost = || {
        let sandbox = sandbox(1);
        let mut vm = sandbox.new_vm(&config(), Recorder::default()).unwrap();
        let body = "const words = 'the quick brown fox'.split(' ').sort((a, b) => a.localeCompare(b));\n\
            return [await price({ words }), new URL('https://example.org/a?b#c').host]";
        assert_eq!(start(&mut vm, &config(), body), Ok(IdleState::Pending));
        assert_eq!(vm.settle(0, AnswerKind::Text, "dear", NEVER_INTERRUPT), Ok(IdleState::Fulfilled));
        (vm.finish(NEVER_INTERRUPT).unwrap().outcome, vm.fuel_used(), vm.memory_bytes())
    };
    let (outcome, fuel, memory_bytes) = cost();
    assert_eq!(outcome.as_deref(), Ok(r#"["dear","example.org"]"#));
    assert_eq!(cost(), (outcome, fuel, memory_bytes));
}

#[test]
fn brackets_end_where_they_do_whatever_is_in_them() {
    for (body, expected) in [
        // Parameters of arrow functions.
        (r#"const f = (a = ")", b = '\')', c = `)${(x => x)(")")})`) => a + b + c; return f()"#, json!(")'))))")),
        (r"const f = (a = /[)/]\)/.source) => a; return f()", json!(r"[)/]\)")),
        (
            r"const n = 6, f = (a = n / /[)]/.exec(')').length, b = /[(]/ / 1) => [a, isNaN(b)]; return f()",
            json!([6, true]),
        ),
        (r"const n = 6, f = (a = n / 2, b = [n][0] / 3 / (1 + 1)) => a + b; return f()", json!(4)),
        (r"const o = { return: 8, of: 4 }, f = (a = o.return / 2, b = o.of / 2) => a + b; return f()", json!(6)),
        (r"const f = (a = 4./2) => a / 2; return f()", json!(1)),
        (r"let i = 3; const f = (a = i++ / 1, b = i-- / 2) => a + b; return f()", json!(5)),
        (
            r"const f = (/* ) */ a = 1, // )
            b = 2) => a + b; return f()",
            json!(3),
        ),
        (
            r"const f = async (a, { b, ...rest } = {}, ...more) => [a, b, rest, more]; return await f(1, { b: 2, c: 3 }, 4)",
            json!([1, 2, {"c": 3}, [4]]),
        ),
        ("const f = (größe = 1, \\u0061b = 2) => größe + ab; return f()", json!(3)),
        // Expressions in brackets that are no parameters.
        (r"const a = 1; return (a == 1) ? (a => a + 1)(a) : (a >= 2)", json!(2)),
        (
            r"let a = 1; (a)
            + 1; return (a += 1, a)",
            json!(2),
        ),
        (r#"return ("(" + `${"}"}` + /}/.test("}"))"#, json!("(}true")),
        // Patterns, and literals that look like them.
        (r"let a, b, c; [a, { b, c = ']' }] = [1, { b: 2 }]; return [a, b, c]", json!([1, 2, "]"])),
        (r"let a, rest; ({ a, ...rest } = { a: 1, b: { c: [2] } }); return [a, rest]", json!([1, {"b": {"c": [2]}}])),
        (r"const out = []; for (const [k, { v }] of [['a', { v: 1 }]]) out.push(k, v); return out", json!(["a", 1])),
        (
            r"let k, out = ''; for ([k] of ['x;', 'y)']) out += k; for (let i = 0; i < 2; i++) out += i; return out",
            json!("xy01"),
        ),
        (r"let n = 0; for (const key in { a: 1, b: [2, { c: 3 }] }) n++; return n", json!(2)),
        (r"return [{ a: 1 }, { b: [] }].map(({ a, b: [c = 7] = [] }) => a ?? c)", json!([1, 7])),
        (r"const f = ([a, b] = [1, 2], { c } = { c: a == b }) => [a, b, c]; return f()", json!([1, 2, false])),
    ] {
        assert_eq!(value(run(&config(), body)), expected, "{body}");
    }
}

#[test]
fn operators_take_the_operands_that_brackets_would_give_them() {
    let random_expressions = r"
        const levels = ['* / %', '+ -', '<< >> >>>', '< > <= >=', '== != === !==', '&', '^', '|'].map((ops) => ops.split(' '));
        let seed = 7;
        const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
        // As few brackets as possible, and one pair for each operator.
        const expression = (level) => {
            if (level === 0) return Array(2).fill(`${random(9) ? '' : '-'}${random(20)}`);
            let [few, all] = expression(level - 1);
            for (let more = random(8) - 5; more > 0; more--) {
                const op = levels[level - 1][random(levels[level - 1].length)];
                const [right, rightWithAll] = expression(level - 1);
                [few, all] = [`${few} ${op} ${right}`, `(${all} ${op} ${rightWithAll})`];
            }
            return [few, all];
        };
        const wrong = [], lengths = new Set();
        for (let i = 0; i < 200; i++) {
            const [few, all] = expression(8);
            lengths.add(few.length);
            if (!Object.is(eval(few), eval(all))) wrong.push([few, all]);
        }
        return [wrong, lengths.size > 50]";
    assert_eq!(value(run(&config(), random_expressions)), json!([[], true]));
    for (body, expected) in [
        ("return 2 + 3 * 2 ** 2 ** 1 - -1", json!(15)),
        ("return 'a' in { a: 1 } === true && [] instanceof Array === true", json!(true)),
        ("let n = 0; for (const key in 1 + 1, { a: 1 }) n++; return n", json!(1)),
        (
            "class A { #x; static of(o) { return [#x in o === true, 1 + (#x in o), #x in o | 2] } } return A.of(new A())",
            json!([true, 2, 3]),
        ),
        (
            "try { eval('class A { #x; static of(o) { return 1 + #x in o } }') } catch (error) { return error.name }",
            json!("SyntaxError"),
        ),
        ("class A { #x; static of(o) { return #x in o in { true: 1 } } } return A.of(new A())", json!(true)),
        (
            "const a\\u0062 = 1, \\u0061c = 2, 名 = 3, $_ = 4, aé = 5, o = { if: 6, \\u{61}d: 7 }; return [ab, ac, 名, $_, aé, o.if, o.ad]",
            json!([1, 2, 3, 4, 5, 6, 7]),
        ),
        ("return eval('ab = 1; ab')", json!(1)),
    ] {
        assert_eq!(value(run(&config(), body)), expected, "{body}");
    }
}

#[test]
fn rejections_that_nobody_handles_are_reported_beside_the_result() {
    let report = run(&config(), "Promise.reject(new Error('forgotten'));\nreturn 'done'");

    assert_eq!(report.outcome.as_deref(), Ok(r#""done""#));
    let [unhandled] = report.unhandled.as_slice() else { panic!("{report:?}") };
    assert_eq!(serde_json::from_str::<Value>(unhandled).unwrap()["message"], "forgotten");
}
