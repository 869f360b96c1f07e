//! A pause cannot be seen by the program, and no issued call is lost.

use serde_json::{Value, json};

use crate::client::ProgramStory;

/// Programs that would "succeed" with garbage if a pause were a rejection: every row is (program, rounds, result).
#[test]
fn pauses_are_invisible_to_every_construct_that_could_catch_them() {
    let rows: &[(&str, &[&[&str]], Value)] = &[
        ("try { return await a() } catch (e) { return 'fallback' }", &[&["a({})"]], json!("a")),
        (
            "return (await Promise.allSettled([a(), b()])).map(r => r.status + r.value)",
            &[&["a({})", "b({})"]],
            json!(["fulfilleda", "fulfilledb"]),
        ),
        ("return await a().catch(() => null)", &[&["a({})"]], json!("a")),
        (
            "for (let i = 0; i < 3; i++) { try { return await a({i}) } catch {} } return 'gave up'",
            &[&[r#"a({"i":0})"#]],
            json!("a"),
        ),
        ("try { return await a() } catch (e) { throw new Error('wrapped') }", &[&["a({})"]], json!("a")),
        ("try { await a() } finally { await b() } return 'done'", &[&["a({})"], &["b({})"]], json!("done")),
        ("return await Promise.any([a(), b()])", &[&["a({})", "b({})"]], json!("a")),
        ("return await Promise.race([a(), b()])", &[&["a({})", "b({})"]], json!("a")),
        (
            "async function* pages() { for (const page of [1, 2]) yield await a({page}) } const out = []; for await (const x of pages()) out.push(x); return out",
            &[&[r#"a({"page":1})"#], &[r#"a({"page":2})"#]],
            json!(["a", "a"]),
        ),
        (
            "const later = a(); const now = await b(); return [now, await later]",
            &[&["a({})", "b({})"]],
            json!(["b", "a"]),
        ),
        ("return await new Promise((resolve, reject) => a().then(resolve, reject))", &[&["a({})"]], json!("a")),
    ];
    for (code, rounds, result) in rows {
        let story = ProgramStory::new(code).play_with_names();
        assert_eq!(story.rounds, *rounds, "{code}");
        assert_eq!(story.result, json!({ "status": "success", "data": result }), "{code}");
    }
}

#[test]
fn an_error_answer_reaches_the_handler_that_the_program_wrote() {
    let story = ProgramStory::new(
        "let tries = 0;
         for (;;) { try { tries++; return { tries, value: await a({ tries }) } } catch (e) { if (tries === 3) throw e } }",
    );
    let transcript = story.play(|_, args| {
        if args["tries"] == 2 {
            json!({ "ok": "there" })
        } else {
            json!({ "error": { "message": "404", "data": { "retry": true } } })
        }
    });
    assert_eq!(transcript.result["data"], json!({ "tries": 2, "value": "there" }));

    let fields = ProgramStory::new("try { await a() } catch (e) { return [e instanceof ToolError, e instanceof Error, e.name, e.message, e.tool, e.data] }")
        .play(|_, _| json!({ "error": { "message": "404", "data": { "code": 7 } } }));
    assert_eq!(fields.result["data"], json!([true, true, "ToolError", "404", "a", { "code": 7 }]));
}

#[test]
fn the_journal_decides_a_race_and_settles_in_its_own_order() {
    let mut story = ProgramStory::new(
        "const order = [];
         const winner = await Promise.race(['a', 'b', 'c'].map(async (name) => { const x = await tools[name](); order.push(x); return x }));
         await a({ last: true });
         return { winner, order }",
    );
    let calls = story.step()["calls"].clone();
    for at in [2, 0, 1] {
        story.answer(&calls[at], &json!({ "ok": calls[at]["tool"] }));
    }
    let last = story.step()["calls"].clone();
    assert_eq!(last[0]["args"], json!({ "last": true }));
    story.answer(&last[0], &json!({ "ok": null }));
    assert_eq!(story.step()["result"]["data"], json!({ "winner": "c", "order": ["c", "a", "b"] }));
}

#[test]
fn a_round_answered_in_part_runs_on_with_what_is_known() {
    let mut story = ProgramStory::new(
        "const first = a(); const second = b(); console.log(await first); await c(); return await second",
    );
    let calls = story.step()["calls"].clone();
    assert_eq!(calls.as_array().map(Vec::len), Some(2));
    story.answer(&calls[0], &json!({ "ok": "one" }));
    let step = story.step();
    assert_eq!(step["logs"], json!([{ "level": "log", "text": "one" }]));
    let open: Vec<&Value> = step["calls"].as_array().expect("calls").iter().map(|call| &call["call"]).collect();
    assert_eq!(open, [&json!(1), &json!(2)]);
}

#[test]
fn an_answer_that_lost_its_race_is_not_asked_for_again() {
    let mut story = ProgramStory::new("return await Promise.race([a(), b()])");
    let calls = story.step()["calls"].clone();
    story.answer(&calls[0], &json!({ "ok": "won" }));
    assert_eq!(story.step()["result"], json!({ "status": "success", "data": "won" }));
    story.answer(&calls[1], &json!({ "ok": "late" }));
    assert_eq!(story.step()["result"], json!({ "status": "success", "data": "won" }));
}

#[test]
fn a_forgotten_await_is_handed_out_in_a_last_round_with_a_warning() {
    let transcript = ProgramStory::new("a({ n: 1 }); b().then(() => c()); return 'returned'").play_with_names();
    assert_eq!(transcript.rounds, [vec![r#"a({"n":1})"#, "b({})"], vec!["c({})"]]);
    assert_eq!(transcript.result["data"], "returned");
    assert_eq!(
        transcript.logs,
        [
            "the program returned without awaiting a (call 0), b (call 1); executed all the same",
            "the program returned without awaiting c (call 2); executed all the same",
        ]
    );
}

/// Whether a call was handed out must not depend on how the answers were delivered.
#[test]
fn a_call_left_behind_in_the_middle_of_a_round_is_not_lost() {
    let code = "const p = a().then(() => { c() }); await Promise.all([p, b()]); return 'returned'";
    let together = ProgramStory::new(code).play_with_names();
    assert_eq!(together.rounds, [vec!["a({})", "b({})"], vec!["c({})"]]);

    let mut one_by_one = ProgramStory::new(code);
    let calls = one_by_one.step()["calls"].clone();
    one_by_one.answer(&calls[0], &json!({ "ok": "a" }));
    assert_eq!(one_by_one.step()["calls"].as_array().map(Vec::len), Some(2));
    one_by_one.answer(&calls[1], &json!({ "ok": "b" }));
    let step = one_by_one.step();
    assert_eq!(step, together.steps[1]);
    one_by_one.answer(&step["calls"][0], &json!({ "ok": "c" }));
    assert_eq!(one_by_one.step(), together.steps[2]);
}

#[test]
fn a_throw_leaves_open_calls_unexecuted_and_says_so() {
    let error = ProgramStory::new("await a(); b(); throw new TypeError('no')").error();
    assert_eq!(error["completed"], json!([{ "call": 0, "tool": "a", "args": {} }]));
    assert_eq!(error["unfinished"], json!([{ "call": 1, "tool": "b", "args": {} }]));
    assert_eq!(
        (&error["kind"], &error["name"], &error["message"]),
        (&json!("exception"), &json!("TypeError"), &json!("no"))
    );
}

#[test]
fn promises_inside_a_result_are_awaited() {
    let transcript = ProgramStory::new("const slow = b(); await a(); return { slow, more: [c()] }").play_with_names();
    assert_eq!(transcript.rounds, [vec!["b({})", "a({})"], vec!["c({})"]]);
    assert_eq!(transcript.result["data"], json!({ "slow": "b", "more": ["c"] }));

    let failed = ProgramStory::new("return { bad: a() }").play(|_, _| json!({ "error": { "message": "broken" } }));
    assert_eq!(failed.result["error"]["message"], "broken");
    assert_eq!(ProgramStory::new("return { never: new Promise(() => {}) }").error()["kind"], "deadlock");
}

#[test]
fn timers_run_on_a_virtual_clock_and_only_when_no_call_is_open() {
    let transcript = ProgramStory::new(
        "const sleep = (ms, v) => new Promise((resolve) => setTimeout(resolve, ms, v));
         const start = Date.now(), fired = [];
         const winner = await Promise.race([a(), sleep(5000, 'timeout')]);
         await Promise.all([30, 10, 20].map(async (ms) => { await sleep(ms); fired.push(ms) }));
         let ticks = 0;
         await new Promise((resolve) => { const id = setInterval(() => { if (++ticks === 3) { clearInterval(id); resolve() } }, 100) });
         const cleared = setTimeout(() => fired.push('never'), 1); clearTimeout(cleared);
         await sleep(86_400_000);
         return { winner, fired, ticks, elapsed: Date.now() - start, performance: performance.now() }",
    )
    .play_with_names();
    assert_eq!(
        transcript.result["data"],
        json!({ "winner": "a", "fired": [10, 20, 30], "ticks": 3, "elapsed": 86_400_330, "performance": 86_400_330 })
    );
}

#[test]
fn a_program_that_waits_on_nothing_is_told_so() {
    let transcript =
        ProgramStory::new("await a(); Promise.reject('why'); await new Promise(() => {}); return 1").play_with_names();
    let error = &transcript.result["error"];
    assert_eq!(
        (&error["kind"], &error["completed"]),
        (&json!("deadlock"), &json!([{ "call": 0, "tool": "a", "args": {} }]))
    );
    assert_eq!(transcript.logs, ["unhandled rejection: why"]);
}

#[test]
fn unhandled_rejections_are_logged_with_their_place_and_change_nothing() {
    let transcript = ProgramStory::new(
        "Promise.reject(new RangeError('nobody'));
         const late = a();
         await b();
         await late.catch(() => 0);
         setTimeout(() => { throw new Error('in a timer') }, 5);
         await new Promise((resolve) => setTimeout(resolve, 10));
         (async () => {
           await c();
         })();
         return 'fine'",
    )
    .play(|tool, _| {
        if tool == "b" { json!({ "ok": 1 }) } else { json!({ "error": { "message": format!("{tool} failed") } }) }
    });
    assert_eq!(transcript.result, json!({ "status": "success", "data": "fine" }));
    assert_eq!(
        transcript.logs,
        [
            "the program returned without awaiting c (call 2); executed all the same",
            "unhandled rejection: Error: in a timer (line 5, column 39)",
            "unhandled rejection: RangeError: nobody (line 1, column 20)",
            "unhandled rejection: ToolError: c failed (line 8, column 18)",
        ]
    );
}

#[test]
fn randomness_and_time_are_the_programs_own() {
    let code = "const bytes = crypto.getRandomValues(new Uint8Array(4));
                await a({ r: Math.random(), id: crypto.randomUUID(), at: new Date(), t: Date.now(), bytes });
                return [Math.random(), crypto.randomUUID(), new Date().toISOString(), new Date().getTimezoneOffset(), typeof SharedArrayBuffer, typeof WebAssembly]";
    let story = |seed: &str| {
        ProgramStory::new(code)
            .with("program", json!({ "code": code, "seed": seed, "started_at": 1_760_000_000_000_u64 }))
            .play_with_names()
    };
    let (first, again, other) = (story("one"), story("one"), story("two"));
    assert_eq!(first.steps, again.steps);
    assert_ne!(first.rounds, other.rounds);
    let data = &first.result["data"];
    assert_eq!(data[2], "2025-10-09T08:53:20.000Z");
    assert_eq!((&data[3], &data[4], &data[5]), (&json!(0), &json!("undefined"), &json!("undefined")));
    assert!(
        first.rounds[0][0].contains(r#""at":"2025-10-09T08:53:20.000Z","t":1760000000000"#),
        "{}",
        first.rounds[0][0]
    );
}

#[test]
fn a_client_that_retries_gets_the_same_step_with_the_same_keys() {
    let story = ProgramStory::new("await a(); return await b()");
    let first = story.step();
    assert_eq!(first, story.step());
    let key = first["calls"][0]["key"].as_str().expect("a key");
    assert!(key.ends_with("-0") && key.len() > 20, "{key}");
}
