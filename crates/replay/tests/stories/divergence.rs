//! A stale answer is never given to a changed call, and a rewritten program does not repeat what was done.

use dacapo_replay::{Answer, ArgsDigest, CompletedCall, JournalEntry, JsonText, Outcome, StepRequest};
use serde_json::{Value, json};

use crate::client::{ProgramStory, step};

fn with_journal(code: &str, journal: Value) -> Value {
    ProgramStory::new(code).with("journal", journal).step()
}

#[test]
fn changed_arguments_another_tool_or_a_missing_call_stop_the_step() {
    let recorded = json!([{ "call": 0, "tool": "a", "args": { "q": "old" }, "ok": 1 }]);
    let step = with_journal("return await a({ q: 'new' })", recorded.clone());
    let error = &step["result"]["error"];
    assert_eq!(
        (&error["kind"], &error["path"], &error["recorded"], &error["actual"]),
        (
            &json!("diverged"),
            &json!("journal[0]"),
            &json!({ "tool": "a", "args": { "q": "old" } }),
            &json!({ "tool": "a", "args": { "q": "new" } })
        )
    );
    insta::assert_snapshot!(error["message"].as_str().expect("text"), @r#"call 0 was recorded as `a({"q":"old"})`, but this run called `a({"q":"new"})`; the program, the tools or the engine changed since the journal was written, so start the program anew"#);
    assert_eq!(
        (&error["completed"], &error["unfinished"]),
        (&json!([]), &json!([{ "call": 0, "tool": "a", "args": { "q": "new" } }])),
        "the answer is another call's"
    );

    let other_tool = with_journal("return await b({ q: 'old' })", recorded.clone());
    assert_eq!(other_tool["result"]["error"]["actual"], json!({ "tool": "b", "args": { "q": "old" } }));

    let never = with_journal("return 1", recorded.clone());
    assert_eq!(never["result"]["error"]["kind"], "diverged");
    assert!(never["result"]["error"]["message"].as_str().expect("text").contains("this run never made it"));

    let beyond =
        with_journal("return await a({ q: 'old' })", json!([recorded[0], { "call": 7, "tool": "a", "ok": 1 }]));
    assert_eq!(beyond["result"]["error"]["path"], "journal[1]");
}

#[test]
fn a_removed_tool_is_a_divergence_not_a_stale_answer() {
    let story = ProgramStory::new("return await a()")
        .with("tools", json!([{ "name": "b" }]))
        .with("journal", json!([{ "call": 0, "tool": "a", "args": {}, "ok": 1 }]));
    assert_eq!(story.step()["result"]["error"]["kind"], "diverged");
}

#[test]
fn spelling_of_arguments_and_a_journal_without_them_are_fine() {
    let code = "return await a({ y: 1, x: [1.5, 2], big: 12345678901234567n })";
    for args in [
        r#"{"x":[1.5,2.0],"big":12345678901234567,"y":1e0}"#,
        r#"{ "y": 1, "x": [15e-1, 2], "big": 12345678901234567 }"#,
    ] {
        let args: Value = serde_json::from_str(args).expect("valid JSON");
        let step = with_journal(code, json!([{ "call": 0, "tool": "a", "args": args, "ok": "yes" }]));
        assert_eq!(step["result"]["data"], "yes");
    }
    assert_eq!(with_journal(code, json!([{ "call": 0, "tool": "a", "ok": "yes" }]))["result"]["data"], "yes");
}

#[test]
fn a_digest_stands_for_arguments_that_nobody_kept() {
    let asking = |q: &str| {
        let program = json!({ "code": format!("const x = await a({{ q: '{q}', n: 1 }}); return [x, await b()]") });
        StepRequest::parse(&json!({ "program": program, "tools": [{ "name": "a" }, { "name": "b" }] }).to_string())
            .expect("a valid request")
    };
    let mut same = asking("old");
    let Outcome::Paused { calls } = step(&same).outcome else { panic!("it waits for a") };
    let digest = calls[0].args_digest();
    assert_eq!(digest, ArgsDigest([239, 184, 52, 248]), "sealed into ids, so it must never change");

    let answer = Answer::Ok(JsonText::from(&json!("yes")));
    let entry = |digest: ArgsDigest| JournalEntry::with_digest(calls[0].call, "a", digest, answer.clone());
    same.journal.push(entry(digest));
    let Outcome::Paused { calls: next } = step(&same).outcome else { panic!("it waits for b") };
    assert_eq!(next[0].tool, "b");

    let mut other = digest;
    other.0[3] ^= 1;
    let mut changed = asking("old");
    changed.journal.push(entry(other));
    let mut changed_program = asking("new");
    changed_program.journal.push(entry(digest));
    for (request, q) in [(&changed, "old"), (&changed_program, "new")] {
        let Outcome::Finished { result: Err(failure) } = step(request).outcome else { panic!("a stale answer") };
        let error = serde_json::to_value(&failure).expect("failures are JSON");
        assert_eq!(
            (&error["kind"], &error["path"], &error["recorded"], &error["completed"]),
            (&json!("diverged"), &json!("journal[0]"), &json!({ "tool": "a" }), &json!([]))
        );
        let message = error["message"].as_str().expect("text").split(';').next();
        assert_eq!(
            message,
            Some(format!(r#"call 0 was recorded as `a(…)`, but this run called `a({{"q":"{q}","n":1}})` with arguments of another digest"#).as_str())
        );
    }
}

#[test]
fn completed_calls_of_a_failed_program_answer_the_next_one_once_each_and_in_order() {
    let transcript = ProgramStory::new(
        "const first = await a({ id: 1 });
         const second = await a({ id: 1 });
         const third = a({ id: 1 });
         const [other, fresh] = await Promise.all([b({ y: 2, x: 1 }), c()]);
         return [first, second, await third, other, fresh]",
    )
    .with(
        "reuse",
        json!([
            { "tool": "a", "args": { "id": 1 }, "ok": "one" },
            { "tool": "b", "args": { "x": 1, "y": 2.0 }, "ok": "bee" },
            { "tool": "a", "args": { "id": 1 }, "ok": "two" },
            { "tool": "a", "args": { "id": 2 }, "ok": "unused" },
        ]),
    )
    .play(|tool, _| json!({ "ok": format!("executed {tool}") }));
    assert_eq!(transcript.rounds, [vec![r#"a({"id":1})"#, "c({})"]]);
    assert_eq!(transcript.result["data"], json!(["one", "two", "executed a", "bee", "executed c"]));
    let numbers: Vec<&Value> =
        transcript.steps[0]["calls"].as_array().expect("calls").iter().map(|call| &call["call"]).collect();
    assert_eq!(numbers, [&json!(2), &json!(4)], "reused calls count as calls");
}

#[test]
fn a_failed_program_leaves_a_record_of_what_it_need_not_do_again() {
    let reused = |tool: &str, args: Value, ok: Value| CompletedCall::new(tool, &args, JsonText::from(&ok));
    let mut story = ProgramStory::new(
        "const first = [a({ y: 1, x: 2.0 }), b({ n: 1 }), c(), search('a'), a({ late: true }), a({ open: true })];
         await Promise.allSettled(first.slice(0, 4));
         throw new Error('failed')",
    )
    .with(
        "reuse",
        json!([
            { "tool": "c", "args": { "unused": 1 }, "ok": 1 },
            { "tool": "b", "args": { "n": 1 }, "ok": "bee" },
            { "tool": "b", "args": { "n": 1 }, "ok": "second bee" },
        ]),
    );
    let paused = story.step();
    assert_eq!(story.record(), [], "it has not failed");
    let [first, failing, late, _open] = &paused["calls"].as_array().expect("calls")[..] else { panic!("{paused}") };
    story.answer(failing, &json!({ "error": { "message": "no" } }));
    story.step();
    story.answer(first, &json!({ "ok": "first" }));
    story.answer(late, &json!({ "ok": ["late"] }));
    assert_eq!(
        story.record(),
        [
            reused("c", json!({ "unused": 1 }), json!(1)),
            reused("b", json!({ "n": 1 }), json!("bee")),
            reused("b", json!({ "n": 1 }), json!("second bee")),
            reused("a", json!({ "x": 2, "y": 1 }), json!("first")),
            reused("a", json!({ "late": true }), json!(["late"])),
        ],
        "oldest first, in the order of the answers"
    );

    story.request["program"]["code"] = json!("this does not parse");
    assert_eq!(story.record().len(), 3, "a program that never ran passes the record on");
    story.request["program"]["code"] = json!("return 1");
    story.request["journal"] = json!([]);
    assert_eq!(story.record().len(), 3, "a program that succeeded passes on what it did not use");
}
