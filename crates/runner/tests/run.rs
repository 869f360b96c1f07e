//! Programs whose calls are executed while they run.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::Desk;
use dacapo_replay::{CallIndex, Limit, MadeCall};
use dacapo_runner::{
    Approval, ApprovalQuestion, Approver, BoxFuture, CallPhase, DefinitionChange, Execution, Policy, ProgramStart,
    RunError, RunLimits, RunProgress, Runner, StopKind, StoppedRun,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn runner(limits: RunLimits) -> Runner {
    Runner::new(Policy::default(), limits).expect("the sandbox starts")
}

async fn run(desk: &Desk, program: &str) -> Execution {
    runner(RunLimits::default()).run(program, desk, &Approval::Unavailable, &|_| {}, &CancellationToken::new()).await
}

fn data(execution: &Execution) -> Value {
    let data = execution.result.as_ref().unwrap_or_else(|fault| panic!("{fault:?}"));
    serde_json::from_str(data.get()).expect("data is JSON")
}

fn stopped(execution: &Execution) -> &StoppedRun {
    match &execution.result {
        Err(RunError::Stopped(stopped)) => stopped,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn calls_that_the_program_makes_together_run_at_the_same_time() {
    let desk = Desk::new();
    let program = "return await Promise.all([1, 2, 3, 4].map(value => desk.echo({value, after_ms: 100})))";
    let execution = run(&desk, program).await;
    assert_eq!(data(&execution), json!([1, 2, 3, 4]));
    assert_eq!(desk.running_most.load(Ordering::SeqCst), 4);
    assert_eq!(execution.calls, [("desk.echo".to_owned(), 4)].into());
}

#[tokio::test]
async fn calls_that_wait_for_each_other_run_one_after_the_other() {
    let desk = Desk::new();
    let program = "let sum = 0; for (let i = 0; i < 5; i++) sum += await desk.echo({value: i}); return sum";
    assert_eq!(data(&run(&desk, program).await), json!(10));
    assert_eq!(desk.running_most.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_race_is_won_by_the_answer_that_comes_first_and_the_loser_is_cancelled() {
    let desk = Desk::new();
    let program = "return await Promise.race([desk.hang({}), desk.echo({value: 'quick', after_ms: 20})])";
    let began = Instant::now();
    assert_eq!(data(&run(&desk, program).await), json!("quick"));
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(desk.cancelled.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_round_does_not_wait_for_its_slowest_call() {
    let desk = Desk::new();
    let program = "
        const chain = async (value, after_ms) => desk.echo({value: await desk.echo({value, after_ms})});
        const order = [];
        await Promise.all([chain('slow', 300).then(v => order.push(v)), chain('quick', 10).then(v => order.push(v))]);
        return order";
    let execution = run(&desk, program).await;
    assert_eq!(data(&execution), json!(["quick", "slow"]));
    assert_eq!(desk.call_counts()["echo"], 4, "no call is executed twice");
    let third = desk.calls.lock().expect("free")[2].args["value"].clone();
    assert_eq!(third, json!("quick"), "the quick chain went on while the slow call was in flight");
}

#[tokio::test]
async fn every_call_has_its_own_key() {
    let desk = Desk::new();
    run(&desk, "await Promise.all([desk.echo({value: 1}), desk.echo({value: 1})])").await;
    let asked = desk.calls.lock().expect("free");
    assert_ne!(asked[0].idempotency_key, asked[1].idempotency_key);
}

#[tokio::test]
async fn cancelling_stops_the_program_and_its_calls() {
    let desk = Arc::new(Desk::new());
    let cancel = CancellationToken::new();
    let soon = cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        soon.cancel();
    });
    let program = "await desk.echo({value: 1}); await Promise.all([desk.hang({}), desk.hang({})])";
    let execution = runner(RunLimits::default()).run(program, &*desk, &Approval::Unavailable, &|_| {}, &cancel).await;
    let stopped = stopped(&execution);
    assert_eq!(stopped.kind, StopKind::Cancelled);
    assert_eq!((stopped.completed.len(), stopped.unfinished.len()), (1, 2));
    assert_eq!(desk.cancelled.load(Ordering::SeqCst), 2);
    assert_eq!(desk.running.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn cancelling_stops_a_program_that_computes() {
    let cancel = CancellationToken::new();
    let soon = cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        soon.cancel();
    });
    let mut limits = RunLimits::default();
    limits.program.set(Limit::Fuel, 1_000_000_000_000).expect("it is the greatest value");
    let execution = runner(limits).run("for (;;) {}", &Desk::new(), &Approval::Unavailable, &|_| {}, &cancel).await;
    assert_eq!(stopped(&execution).kind, StopKind::Cancelled);
}

#[tokio::test]
async fn a_program_may_take_so_much_time_and_no_more() {
    let desk = Desk::new();
    let limits = RunLimits { wall: Duration::from_millis(100), ..RunLimits::default() };
    let program = "console.log('before'); await desk.echo({value: 1}); await desk.hang({})";
    let execution =
        runner(limits).run(program, &desk, &Approval::Unavailable, &|_| {}, &CancellationToken::new()).await;
    let stopped = stopped(&execution);
    assert_eq!(stopped.kind, StopKind::Limit);
    assert!(stopped.message.contains("after 0.1 s") && stopped.message.contains("split the work"), "{stopped:?}");
    assert_eq!(stopped.unfinished[0].tool, "desk.hang");
    assert_eq!(execution.logs[0].text, "before");
    assert_eq!(desk.cancelled.load(Ordering::SeqCst), 1);
}

/// Thinks for a while before it answers.
struct Person {
    thinks: Duration,
    approval: Approval,
    asked: AtomicUsize,
}

impl Approver for Person {
    fn approve(&self, _: ApprovalQuestion) -> BoxFuture<'_, Approval> {
        Box::pin(async {
            self.asked.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(self.thinks).await;
            self.approval
        })
    }
}

#[tokio::test]
async fn time_that_a_person_takes_to_decide_is_not_the_programs() {
    let person = Person { thinks: Duration::from_millis(400), approval: Approval::Given, asked: AtomicUsize::new(0) };
    let limits = RunLimits { wall: Duration::from_millis(200), ..RunLimits::default() };
    let execution = runner(limits)
        .run("return await desk.erase({what: 'all'})", &Desk::new(), &person, &|_| {}, &CancellationToken::new())
        .await;
    assert_eq!(data(&execution), json!("erased"));
    assert_eq!(person.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_call_that_is_not_allowed_rejects_and_the_program_may_go_on() {
    let program = "
        try { await desk.erase({what: 'all'}) }
        catch (error) { return [error instanceof ToolError, error.tool, error.message, await desk.echo({value: 'on'})] }";
    let desk = Desk::new();
    let execution = run(&desk, program).await;
    let message = "not allowed: `desk.erase` needs the user's approval, and this client has no way to ask; to allow it, \
                   the user can add {\"server\":\"desk\",\"tool\":\"erase\",\"decision\":\"allow\"} to `dacapo.policy` in \
                   the configuration";
    assert_eq!(data(&execution), json!([true, "desk.erase", message, "on"]));
    assert_eq!(desk.call_counts(), [("echo".to_owned(), 1)].into());
    assert_eq!(execution.calls, [("desk.echo".to_owned(), 1)].into());
}

#[tokio::test]
async fn a_person_may_decline_and_a_policy_may_deny() {
    let program = "return await desk.erase({}).catch(error => error.message)";
    let person = Person { thinks: Duration::ZERO, approval: Approval::Declined, asked: AtomicUsize::new(0) };
    let cancel = CancellationToken::new();
    let execution = runner(RunLimits::default()).run(program, &Desk::new(), &person, &|_| {}, &cancel).await;
    assert_eq!(data(&execution), json!("not allowed: the user was asked about `desk.erase` and declined"));

    let rules = serde_json::from_value(json!([{ "tool": "er*", "decision": "deny" }])).expect("these are rules");
    let strict = Runner::new(Policy::new(rules), RunLimits::default()).expect("the sandbox starts");
    let execution = strict.run(program, &Desk::new(), &Approval::Given, &|_| {}, &cancel).await;
    assert_eq!(data(&execution), json!("not allowed: the configured policy denies `desk.erase`"));
}

#[tokio::test]
async fn a_tool_that_leaves_its_list_is_decided_on_as_when_the_program_started() {
    let desk = Desk::new();
    let leave = |progress: RunProgress<'_>| {
        let RunProgress::Call(call) = progress else { return };
        desk.without_annotations.store(call.phase == CallPhase::Answered, Ordering::SeqCst);
    };
    let program = "await desk.echo({}); return desk.erase({what: 'all'}).catch(error => error.message)";
    let cancel = CancellationToken::new();
    let execution = runner(RunLimits::default()).run(program, &desk, &Approval::Declined, &leave, &cancel).await;
    assert_eq!(data(&execution), json!("not allowed: the user was asked about `desk.erase` and declined"));
    assert_eq!(desk.call_counts(), [("echo".to_owned(), 1)].into());
}

#[tokio::test]
async fn a_call_is_decided_on_by_what_the_server_itself_says_of_the_tool() {
    let desk = Desk { without_annotations: AtomicBool::new(true), annotates_when_confirmed: true, ..Desk::new() };
    let execution = run(&desk, "return desk.erase({what: 'all'}).catch(error => error.name)").await;
    assert_eq!(data(&execution), json!("ToolError"));
    assert!(desk.call_counts().is_empty());
}

/// Says yes, and sees whether the question says that the tool has changed. The tool changes during the first so many
/// questions.
struct Witness<'a> {
    desk: &'a Desk,
    changes: usize,
    seen: Mutex<Vec<DefinitionChange>>,
}

impl Approver for Witness<'_> {
    fn approve(&self, question: ApprovalQuestion) -> BoxFuture<'_, Approval> {
        let mut seen = self.seen.lock().expect("free");
        seen.push(question.change);
        if seen.len() <= self.changes {
            self.desk.revision.fetch_add(1, Ordering::SeqCst);
        }
        Box::pin(std::future::ready(Approval::Given))
    }
}

#[tokio::test]
async fn a_tool_that_changed_since_it_was_approved_is_said_to_have_changed() {
    let desk = Desk::new();
    let person = Witness { desk: &desk, changes: 0, seen: Mutex::default() };
    let (runner, cancel) = (runner(RunLimits::default()), CancellationToken::new());
    for _program in 0..2 {
        runner.run("await desk.erase({})", &desk, &person, &|_| {}, &cancel).await;
    }
    desk.revision.fetch_add(1, Ordering::SeqCst);
    for _program in 0..2 {
        runner.run("await desk.erase({})", &desk, &person, &|_| {}, &cancel).await;
    }
    let (same, changed) = (DefinitionChange::None, DefinitionChange::SinceApproval);
    assert_eq!(*person.seen.lock().expect("free"), [same, same, changed, same]);
    assert_eq!(desk.call_counts()["erase"], 4);
}

#[tokio::test]
async fn a_tool_that_changes_while_a_person_decides_is_asked_for_again() {
    let (same, changed) = (DefinitionChange::None, DefinitionChange::SinceApproval);
    let program = "return desk.erase({}).catch(error => error.message)";
    let cancel = CancellationToken::new();
    let desk = Desk::new();
    let person = Witness { desk: &desk, changes: 1, seen: Mutex::default() };
    let execution = runner(RunLimits::default()).run(program, &desk, &person, &|_| {}, &cancel).await;
    assert_eq!(data(&execution), json!("erased"));
    assert_eq!(*person.seen.lock().expect("free"), [same, changed]);

    let person = Witness { desk: &desk, changes: usize::MAX, seen: Mutex::default() };
    let execution = runner(RunLimits::default()).run(program, &desk, &person, &|_| {}, &cancel).await;
    let message =
        "not allowed: what the server says of `desk.erase` changed each time while the user was asked about it";
    assert_eq!(data(&execution), json!(message));
    assert_eq!(*person.seen.lock().expect("free"), [same, changed, changed]);
    assert_eq!(desk.call_counts()["erase"], 1);
}

#[tokio::test]
async fn calls_that_were_refused_are_not_reported_as_completed() {
    let made = |call, tool: &str, args: Value| MadeCall::new(CallIndex(call), tool, args);
    let execution = run(&Desk::new(), "await desk.echo({value: 1}); await desk.erase({})").await;
    let Err(RunError::Failed(failure)) = &execution.result else { panic!("{:?}", execution.result) };
    assert_eq!(failure.completed, [made(0, "desk.echo", json!({"value": 1}))]);
    assert_eq!((&failure.unfinished, &execution.refused), (&vec![], &vec![made(1, "desk.erase", json!({}))]));

    let limits = RunLimits { wall: Duration::from_millis(100), ..RunLimits::default() };
    let program = "await desk.erase({}).catch(() => 0); await desk.hang({})";
    let cancel = CancellationToken::new();
    let execution = runner(limits).run(program, &Desk::new(), &Approval::Unavailable, &|_| {}, &cancel).await;
    assert_eq!(stopped(&execution).completed, []);
    assert_eq!(stopped(&execution).unfinished, [made(1, "desk.hang", json!({}))]);
    assert_eq!(execution.refused, [made(0, "desk.erase", json!({}))]);
}

#[tokio::test]
async fn a_call_that_lost_a_race_was_made_all_the_same() {
    let program = "return await Promise.race([desk.hang({}), desk.echo({value: 'quick', after_ms: 20})])";
    let execution = run(&Desk::new(), program).await;
    assert_eq!(data(&execution), json!("quick"));
    assert_eq!(execution.calls, [("desk.echo".to_owned(), 1), ("desk.hang".to_owned(), 1)].into());
    assert_eq!(execution.unfinished, [MadeCall::new(CallIndex(0), "desk.hang", json!({}))]);
}

#[tokio::test]
async fn what_a_server_refuses_is_reported_in_the_programs_source() {
    let execution = run(&Desk::new(), "await desk.echo({value: 1});\nawait desk.fail({message: 'out of ink'})").await;
    let Err(RunError::Failed(failure)) = &execution.result else { panic!("{:?}", execution.result) };
    assert_eq!((failure.name.as_str(), failure.message.as_str()), ("ToolError", "out of ink"));
    assert_eq!(failure.line, Some(2));
    assert!(failure.frame.as_ref().is_some_and(|frame| frame.contains("desk.fail")));
    assert_eq!(failure.completed.len(), 2);
}

#[tokio::test]
async fn only_pictures_whose_handles_are_returned_or_written_come_back() {
    let program = "
        const [a, b, c] = await Promise.all(['a', 'b', 'c', 'd'].map(name => desk.draw({name})));
        image(b);
        return {best: c, other: a.handle}";
    let execution = run(&Desk::new(), program).await;
    let handles: Vec<&str> = execution.attachments.iter().map(|attachment| attachment.handle.as_str()).collect();
    assert_eq!(handles, ["attachment:c/0", "attachment:a/0", "attachment:b/0"]);
    assert_eq!(execution.attachments[0].block["type"], "image");
}

#[tokio::test]
async fn pictures_beyond_the_limit_are_refused() {
    let limits = RunLimits { attachment_bytes: 100, ..RunLimits::default() };
    let program = "
        await desk.draw({name: 'a'});
        return await desk.draw({name: 'b'}).catch(error => error.message)";
    let execution =
        runner(limits).run(program, &Desk::new(), &Approval::Unavailable, &|_| {}, &CancellationToken::new()).await;
    assert!(data(&execution).as_str().is_some_and(|text| text.contains("`attachment_bytes` of 100")));
}

#[tokio::test]
async fn progress_is_reported_for_every_call_and_every_line_before_the_end() {
    let reported = Mutex::new(Vec::new());
    let written = Mutex::new(Vec::new());
    let on_progress = |progress: RunProgress<'_>| match progress {
        RunProgress::Call(call) => {
            reported.lock().expect("free").push((call.phase, call.tool.to_owned(), call.done, call.made));
        }
        RunProgress::Log(line) => written.lock().expect("free").push(line.text.clone()),
        RunProgress::Started(_) | RunProgress::Settled(..) | RunProgress::Waiting => {}
    };
    let program = "
        console.log('one'); await desk.echo({value: 1});
        console.log('two'); console.log('three'); await desk.fail({message: 'no'}).catch(() => 0);
        console.log('with the result')";
    runner(RunLimits::default())
        .run(program, &Desk::new(), &Approval::Unavailable, &on_progress, &CancellationToken::new())
        .await;
    let (echo, fail) = ("desk.echo".to_owned(), "desk.fail".to_owned());
    let expected = [
        (CallPhase::Started, echo.clone(), 0, 1),
        (CallPhase::Answered, echo, 1, 1),
        (CallPhase::Started, fail.clone(), 1, 2),
        (CallPhase::Failed, fail, 2, 2),
    ];
    assert_eq!(*reported.lock().expect("free"), expected);
    assert_eq!(*written.lock().expect("free"), ["one", "two", "three"]);
}

#[tokio::test]
async fn a_program_that_is_cancelled_leaves_what_it_did_and_what_it_may_have_done() {
    let (desk, cancel) = (Desk::new(), CancellationToken::new());
    let on_progress = |progress: RunProgress<'_>| {
        if matches!(progress, RunProgress::Call(call) if call.tool == "desk.hang") {
            let cancel = cancel.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                cancel.cancel();
            });
        }
    };
    let runner = runner(RunLimits::default());
    // Longer than what is shown of arguments.
    let program = "await desk.echo({value: 'x'.repeat(500)}); await desk.hang({what: 'y'.repeat(500)})";
    let stopped = runner.run(program, &desk, &Approval::Unavailable, &on_progress, &cancel).await;
    assert!(matches!(stopped.result, Err(RunError::Stopped(_))));
    let again = "
        const known = await desk.echo({value: 'x'.repeat(500)});
        return [known.length, await desk.hang({what: 'y'.repeat(500)}).catch(error => error.message)]";
    let start = ProgramStart { reuse: &stopped.record, ..ProgramStart::from(again) };
    let next = runner.run(start, &desk, &Approval::Unavailable, &|_| {}, &CancellationToken::new()).await;
    let (said, reused) = (data(&next), next.reused.len());
    assert_eq!((&said[0], reused), (&json!(500), 1), "{said}");
    assert!(said[1].as_str().is_some_and(|text| text.contains("it is not known whether it took effect")), "{said}");
    assert_eq!(desk.call_counts()["echo"], 1);
}

#[tokio::test]
async fn too_many_calls_end_the_program() {
    let mut limits = RunLimits::default();
    limits.program.set(Limit::Calls, 3).expect("it is in range");
    let program = "for (;;) await desk.echo({value: 1})";
    let desk = Desk::new();
    let execution =
        runner(limits).run(program, &desk, &Approval::Unavailable, &|_| {}, &CancellationToken::new()).await;
    assert!(matches!(&execution.result, Err(RunError::Failed(failure)) if failure.message.contains("`calls` of 3")));
    assert_eq!(desk.call_counts()["echo"], 3);
}

#[tokio::test]
async fn every_run_has_its_own_time_and_seed() {
    let program = "return [Math.random(), Date.now()]";
    let (one, other) = (data(&run(&Desk::new(), program).await), data(&run(&Desk::new(), program).await));
    assert_ne!(one[0], other[0]);
    assert!(one[1].as_f64() > Some(1.79e12));
}
