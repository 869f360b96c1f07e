//! `dacapo replay`: a saved request tells all that its programs did, on every wire, and what was changed in it.

#[path = "../../gateway/tests/gateway/client_conversation.rs"]
#[expect(clippy::unwrap_used, reason = "a client that is answered wrongly cannot go on")]
mod client_conversation;
mod common;
mod parts_conversation;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::SECRET;
use dacapo_wire::Wire;
use parts_conversation::{gateway, requests};
use serde_json::{Value, json};

/// What a command did: its status, stdout and stderr.
struct Ran(i32, String, String);

fn replay(secret: Option<&str>, file: &Path, arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dacapo"));
    command.arg("replay").arg(file).args(arguments).env_remove("DACAPO_SECRET").env("NO_COLOR", "1");
    command.envs(secret.map(|secret| ("DACAPO_SECRET", secret)));
    let output = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ran(output.status.code().expect("it ended"), text(output.stdout), text(output.stderr))
}

fn explained(file: &Path, arguments: &[&str]) -> (i32, Value) {
    let Ran(code, out, err) = replay(Some(SECRET), file, &[&["--json"], arguments].concat());
    (code, serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out} {err}")))
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).expect("it is written");
        path
    }
}

/// What a program did, without what differs between wires.
fn story(block: &Value) -> Value {
    let calls = block["calls"].as_array().expect("calls").iter();
    let calls: Vec<Value> = calls.map(|call| json!([call["round"], call["tool"], call["args"], call["ok"]])).collect();
    let points = block["points"].as_array().expect("points").len();
    json!({"code": block["program"]["code"], "calls": calls, "points": points, "replay": block["replay"]["status"],
           "status": block["end"]["result"]["status"], "reused": block["end"]["reused"].as_array().map(Vec::len)})
}

#[test]
fn every_wire_tells_the_same_story() {
    let (gateway, folder) = (gateway(&[]), Folder::new());
    let mut stories = Vec::new();
    for wire in Wire::ALL {
        for explicit in [false, true] {
            let requests = requests(&gateway.url, wire, explicit);
            let lines: Vec<String> = requests.iter().map(Value::to_string).collect();
            let (code, all) = explained(&folder.file("requests.jsonl", lines.join("\n")), &[]);
            assert_eq!((code, &all["exact"]), (0, &json!(true)), "{wire} {explicit}: {all}");
            let conversations = all["conversations"].as_array().expect("conversations");
            // The requests continue each other.
            assert_eq!((conversations.len(), &conversations[0]["wire"]), (1, &json!(wire.name())), "{wire} {explicit}");
            assert_eq!(conversations[0]["mode"], if explicit { "explicit" } else { "plain" });
            let blocks = conversations[0]["blocks"].as_array().expect("blocks").iter().map(story);
            stories.push((wire, explicit, blocks.collect::<Vec<Value>>()));
        }
    }
    let (_, _, first) = &stories[0];
    assert_eq!(first.len(), 2);
    assert_eq!((&first[0]["status"], &first[1]["status"]), (&json!("error"), &json!("success")));
    assert_eq!(first[1]["reused"], 4);
    for (wire, explicit, story) in &stories {
        assert_eq!(story, first, "{wire}, explicit: {explicit}");
    }
}

#[test]
fn a_conversation_is_told_on_the_terminal() {
    let (gateway, folder) = (gateway(&[]), Folder::new());
    let last = requests(&gateway.url, Wire::Chat, false).pop().expect("a request");
    let file = folder.file("request.json", last.to_string());
    let Ran(code, told, _) = replay(Some(SECRET), &file, &[]);
    // The clock of a program is the provider's.
    let told: Vec<&str> = told.lines().filter(|line| !line.starts_with("log ") && !line.starts_with("used ")).collect();
    assert_eq!(code, 0);
    insta::assert_snapshot!(told.join("\n"));

    let (code, two) = explained(&file, &["--block", "1", "--answers", "2"]);
    let blocks = &two["conversations"][0]["blocks"];
    assert_eq!((code, blocks.as_array().map(Vec::len)), (0, Some(1)));
    assert_eq!(blocks[0]["replay"]["status"], "stopped");
    assert_eq!(
        (&blocks[0]["end"]["status"], blocks[0]["points"].as_array().map(Vec::len)),
        (&json!("paused"), Some(3))
    );
    assert_eq!(replay(Some(SECRET), &file, &["--block", "3"]).0, 2);
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<&str>>().join(" ")
}

#[test]
fn what_was_changed_is_said_and_the_rest_is_shown() {
    let (gateway, folder) = (gateway(&[]), Folder::new());
    let requests = requests(&gateway.url, Wire::Chat, false);
    let last = requests.last().expect("a request");
    let file = folder.file("request.json", last.to_string());

    let Ran(code, told, _) = replay(Some("another secret, of another gateway"), &file, &[]);
    let told = on_one_line(&told);
    assert!(code == 1 && told.contains("sealed with a secret that is not known here"), "{told}");
    // What the client executed is still there.
    assert!(told.contains("ordered frame"), "{told}");
    let Ran(code, _, said) = replay(None, &file, &[]);
    assert!(code == 1 && said.contains("set DACAPO_SECRET"), "{said}");

    let mut clipped = last.clone();
    for message in clipped["messages"].as_array_mut().expect("messages") {
        let clip = |id: &mut Value| {
            let short: String = id.as_str().unwrap_or_default().chars().take(64).collect();
            *id = json!(short);
        };
        message["tool_calls"].as_array_mut().into_iter().flatten().for_each(|call| clip(&mut call["id"]));
        if message["role"] == "tool" {
            clip(&mut message["tool_call_id"]);
        }
    }
    let Ran(code, told, _) = replay(Some(SECRET), &folder.file("clipped.json", clipped.to_string()), &[]);
    let told = on_one_line(&told);
    assert!(code == 1 && told.contains("it was cut or changed since it was sealed"), "{told}");

    let mut edited = last.clone();
    let messages = edited["messages"].as_array_mut().expect("messages");
    let first = messages.iter_mut().find(|message| message["role"] == "tool").expect("an answer");
    first["content"] = json!(json!(["frame", "wheel", "bell", "lamp"]).to_string());
    let (code, all) = explained(&folder.file("edited.json", edited.to_string()), &[]);
    let block = &all["conversations"][0]["blocks"][0];
    assert_eq!((code, &block["replay"]["status"]), (1, &json!("edited")));
    assert_eq!(block["replay"]["message"], "an answer in round 1 was changed after the program had gone on");
    // It asked for the saddle then.
    assert_eq!((&block["replay"]["call"], &block["end"]["result"]["error"]["kind"]), (&json!(4), &json!("diverged")));

    // Without its first round, nothing can be run, but all that is there is shown.
    let mut trimmed = last.clone();
    trimmed["messages"].as_array_mut().expect("messages").drain(1..3);
    let (code, all) = explained(&folder.file("trimmed.json", trimmed.to_string()), &[]);
    let block = &all["conversations"][0]["blocks"][0];
    assert_eq!((code, &block["replay"]["status"]), (1, &json!("trimmed")));
    assert_eq!(block["calls"].as_array().map(Vec::len), Some(4));
}

#[test]
fn a_transcript_without_tools_and_a_step_request_can_be_explained() {
    let (gateway, folder) = (gateway(&[]), Folder::new());
    let last = requests(&gateway.url, Wire::Messages, false).pop().expect("a request");
    let (code, all) = explained(&folder.file("messages.json", last["messages"].to_string()), &[]);
    let conversation = &all["conversations"][0];
    assert_eq!((code, &conversation["wire"], &conversation["exact"]), (0, &json!("messages"), &json!(true)), "{all}");
    assert!(conversation["notes"][0].as_str().is_some_and(|note| note.starts_with("no tools are declared")));

    let step = json!({"program": {"code": "return await f({a: 1})"}, "tools": [{"name": "f"}],
                      "journal": [{"call": 0, "tool": "f", "args": {"a": 2}, "ok": 3}]});
    let (code, all) = explained(&folder.file("step.json", step.to_string()), &[]);
    assert_eq!((code, &all["conversations"][0]["blocks"][0]["replay"]["status"]), (1, &json!("diverged")));
}

#[test]
fn what_cannot_be_read_is_named() {
    let folder = Folder::new();
    let cases = [
        ("", "is empty"),
        ("Dear model,", "is not JSON"),
        (r#"{"contents": [{"parts": []}]}"#, "is no request of a known wire"),
        ("[1, 2]", "is no request of a known wire"),
        (r#"{"messages": {"role": "user"}}"#, "has no list `messages`"),
        (r#"{"messages": [{"role": "user"}]}"#, "chat"),
    ];
    for (text, message) in cases {
        let Ran(_, told, said) = replay(Some(SECRET), &folder.file("file", text), &[]);
        assert!(told.contains(message), "{text}: {told} {said}");
    }
    let large = format!(r#"{{"messages": [{{"role": "user", "content": "{}"}}]}}"#, "a".repeat(50 << 20));
    assert_eq!(replay(Some(SECRET), &folder.file("large.json", large), &[]).0, 0);
    let Ran(code, _, said) = replay(Some(SECRET), Path::new("/nowhere"), &[]);
    assert!(code == 1 && said.contains("cannot read /nowhere"), "{said}");
    let Ran(code, _, said) = replay(Some(SECRET), &folder.file("bytes", [0xff, 0xfe]), &[]);
    assert!(code == 1 && said.contains("is not UTF-8"), "{said}");
}

#[test]
fn a_page_for_a_colleague_holds_everything_and_runs_nothing_else() {
    let folder = Folder::new();
    let step = json!({"program": {"code": "return '</script><script>alert(1)</script>'"}});
    let (file, page) = (folder.file("step.json", step.to_string()), folder.0.path().join("page.html"));
    let Ran(code, told, _) = replay(None, &file, &["--html", page.to_str().expect("UTF-8")]);
    let page = std::fs::read_to_string(page).expect("a page");
    assert_eq!((code, told.as_str()), (0, ""));
    assert!(page.contains("default-src 'none'") && !page.contains("<script>alert"));
    // Nothing of it comes from elsewhere.
    assert!(!page.contains(" src=\"") && !page.contains("@import") && !page.contains("<link"));
}
