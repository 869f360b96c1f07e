//! A stdio server that does what servers should not do. The test binary plays it itself.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it speaks over stdio")]

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// Set in the environment of a process that is to be the server.
pub(crate) const MODE: &str = "FAKE_SERVER";

/// Plays the server if this process is one. Ends the process when its stdin does.
#[test]
fn fake_server() {
    let Ok(mode) = std::env::var(MODE) else { return };
    // One server may behave differently from start to start.
    let mode = mode.strip_prefix('@').map_or_else(|| mode.clone(), |path| std::fs::read_to_string(path).unwrap());
    // The test harness has begun a line.
    println!();
    match mode.as_str() {
        "exits" => {
            eprintln!("cannot find module 'left-pad'");
            std::process::exit(3);
        }
        // Longer than anybody waits for the answer to the first request.
        "modern late" => std::thread::sleep(Duration::from_millis(10_200)),
        "silent" => loop {
            std::thread::park();
        },
        "flood" => {
            std::thread::spawn(|| {
                let line = "x".repeat(10_000);
                loop {
                    eprintln!("{line}");
                }
            });
        }
        _ => {}
    }
    let server = Arc::new(Server {
        modern: mode.starts_with("modern"),
        beside_tools: match mode.rsplit(' ').next() {
            Some("resources") => BesideTools::Resources,
            Some("logs") => BesideTools::Logs,
            _ => BesideTools::Nothing,
        },
        writes: mode == "writes",
        moody: mode == "moody",
        ..Server::default()
    });
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if let Ok(message) = serde_json::from_str::<Value>(&line) {
            match (mode.as_str(), message["method"] == "server/discover") {
                ("ends when asked", true) => std::process::exit(1),
                ("says yes", true) => answer(&message["id"], &json!({})),
                ("modern late", false) if message["method"] == "initialize" => {
                    let error = json!({"code": -32601, "message": "no such method"});
                    say(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
                }
                _ => server.clone().hear(&message),
            }
        }
    }
    std::process::exit(0);
}

/// What the server has beside tools.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum BesideTools {
    #[default]
    Nothing,
    Resources,
    Logs,
}

#[derive(Default)]
struct Server {
    modern: bool,
    beside_tools: BesideTools,
    /// From which it logs, if it was told once for all.
    level: Mutex<Value>,
    /// Its tools no longer say that they only read.
    writes: bool,
    /// Its list holds for no time, and cannot be had the second time.
    moody: bool,
    lists: AtomicUsize,
    changed: Mutex<bool>,
    listener: Mutex<Option<Value>>,
    cancelled: AtomicUsize,
    busy: AtomicUsize,
    busiest: AtomicUsize,
}

impl Server {
    fn hear(self: Arc<Server>, message: &Value) {
        let id = message["id"].clone();
        match message["method"].as_str().unwrap_or_default() {
            "server/discover" if self.modern => answer(
                &id,
                &json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private",
                       "supportedVersions": ["2026-07-28"], "capabilities": self.capabilities()}),
            ),
            "initialize" => answer(
                &id,
                &json!({"protocolVersion": "2025-11-25", "capabilities": self.capabilities(),
                       "serverInfo": {"name": "fake", "version": "1"}}),
            ),
            "tools/list" if self.moody => match self.lists.fetch_add(1, Ordering::SeqCst) {
                1 => say(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": "not now"}})),
                times => {
                    let tool = json!({"name": format!("after_{times}"), "inputSchema": {"type": "object"}});
                    answer(&id, &json!({"tools": [tool], "ttlMs": 0}));
                }
            },
            "tools/list" if self.beside_tools == BesideTools::Resources => {
                let tools =
                    ["echo", "listResources"].map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
                answer(
                    &id,
                    &json!({"tools": tools, "resultType": "complete", "ttlMs": 60_000, "cacheScope": "private"}),
                );
            }
            "logging/setLevel" if self.beside_tools == BesideTools::Logs && !self.modern => {
                *self.level.lock().unwrap() = message["params"]["level"].clone();
                answer(&id, &json!({}));
            }
            "resources/templates/list" if self.beside_tools == BesideTools::Resources => {
                answer(&id, &endless_page(&message["params"]["cursor"]));
            }
            "resources/read" if self.beside_tools == BesideTools::Resources => {
                match contents(message["params"]["uri"].as_str().unwrap()) {
                    Some(contents) => answer(
                        &id,
                        &json!({"contents": contents, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}),
                    ),
                    None => {
                        say(
                            &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32002, "message": "no such resource"}}),
                        );
                    }
                }
            }
            "tools/list" => answer(&id, &self.page(&message["params"]["cursor"])),
            "tools/call" => self.call(id, &message["params"]),
            "subscriptions/listen" => {
                let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
                *self.listener.lock().unwrap() = Some(meta.clone());
                say(&json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                            "params": {"_meta": meta, "notifications": {"toolsListChanged": true}}}));
            }
            "notifications/cancelled" => {
                self.cancelled.fetch_add(1, Ordering::SeqCst);
            }
            _ if id.is_null() => {}
            _ => say(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})),
        }
    }

    fn capabilities(&self) -> Value {
        let mut capabilities = json!({"tools": {"listChanged": true}});
        if self.beside_tools == BesideTools::Resources {
            capabilities["resources"] = json!({});
        }
        if self.beside_tools == BesideTools::Logs {
            capabilities["logging"] = json!({});
        }
        capabilities
    }

    /// Two pages; the second is there to be asked for.
    fn page(&self, cursor: &Value) -> Value {
        let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        if cursor.is_null() {
            let named = json!({"name": "echo", "title": "Says it again", "inputSchema": {"type": "object"},
                               "annotations": {"readOnlyHint": !self.writes}});
            let odd = json!({"name": "odd", "inputSchema": {"type": "object"}, "outputSchema": true});
            return json!({"tools": [named, odd, {"inputSchema": 7}, tool("echo")], "nextCursor": "2",
                          "resultType": "complete", "ttlMs": 60_000, "cacheScope": "private"});
        }
        let mut tools = vec![tool("die"), tool("env")];
        tools.extend(self.changed.lock().unwrap().then(|| tool("late")));
        json!({"tools": tools, "resultType": "complete", "ttlMs": 60_000, "cacheScope": "private"})
    }

    fn call(self: Arc<Server>, id: Value, params: &Value) {
        let args = params["arguments"].clone();
        let text = |text: &str| json!({"type": "text", "text": text});
        let result = match params["name"].as_str().unwrap_or_default() {
            "echo" => args,
            "meta" => json!({"content": [], "structuredContent": params["_meta"]["dacapo/idempotency-key"]}),
            "whole_meta" => json!({"content": [], "structuredContent": params["_meta"]}),
            // Its own requests count as ours do.
            "asks_first" => {
                say(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
                json!({"content": [text("asked")]})
            }
            // Says all it has, and the least that it was asked for.
            "log" => {
                let level = if self.modern {
                    params["_meta"]["io.modelcontextprotocol/logLevel"].clone()
                } else {
                    self.level.lock().unwrap().clone()
                };
                for level in ["debug", "warning", "nonsense", "alert"] {
                    let data = json!({"token": std::env::var("TOKEN").unwrap_or_default()});
                    say(&json!({"jsonrpc": "2.0", "method": "notifications/message",
                                "params": {"level": level, "logger": "db", "data": data}}));
                }
                json!({"content": [], "structuredContent": level})
            }
            "as_text" => return answer(&json!(id.to_string()), &json!({"content": [text("text")]})),
            "env" => {
                let env: BTreeMap<String, String> = std::env::vars().collect();
                eprintln!("my environment is {env:?}");
                json!({"content": [text("see structuredContent")], "structuredContent": env})
            }
            "die" => {
                eprintln!("out of memory");
                std::process::exit(1);
            }
            "never" => return,
            "big" => json!({"content": [text(&"x".repeat(args["bytes"].as_u64().unwrap() as usize))]}),
            "garbage" => return println!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[oops"),
            "ask" => json!({"resultType": "input_required", "inputRequests": {"q": {"method": "elicitation/create",
                "params": {"mode": "form", "message": "What is your name?",
                           "requestedSchema": {"type": "object", "properties": {}}}}}}),
            "change" => {
                *self.changed.lock().unwrap() = true;
                let meta = self.listener.lock().unwrap().clone().unwrap_or(json!({}));
                say(
                    &json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"_meta": meta}}),
                );
                json!({"content": []})
            }
            "cancelled" => json!({"content": [], "structuredContent": self.cancelled.load(Ordering::SeqCst)}),
            "hold" => {
                std::thread::spawn(move || {
                    let busy = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
                    self.busiest.fetch_max(busy, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(20));
                    self.busy.fetch_sub(1, Ordering::SeqCst);
                    let busiest = self.busiest.load(Ordering::SeqCst);
                    answer(&id, &json!({"content": [], "structuredContent": busiest}));
                });
                return;
            }
            "processes" => {
                #[expect(clippy::zombie_processes, reason = "it is left behind to be found")]
                let child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
                json!({"content": [], "structuredContent": [std::process::id(), child.id()]})
            }
            name => {
                let error = json!({"code": -32602, "message": format!("no tool {name}")});
                return say(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        };
        answer(&id, &result);
    }
}

/// One template, and always one more.
fn endless_page(cursor: &Value) -> Value {
    let page: usize = cursor.as_str().map_or(0, |cursor| cursor.parse().unwrap());
    json!({"resourceTemplates": [{"uriTemplate": format!("a://{page}/{{x}}"), "name": page.to_string()}],
           "nextCursor": (page + 1).to_string(), "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
}

fn contents(uri: &str) -> Option<Value> {
    let blob = |kind: &str| json!([{"uri": uri, "mimeType": kind, "blob": "aGk="}]);
    match uri {
        "a://text" => {
            Some(json!([{"uri": uri, "mimeType": "text/plain", "text": "hi"}, {"uri": "a://more", "text": ""}]))
        }
        "a://image" => Some(blob("image/png")),
        "a://file" => Some(blob("application/zip")),
        "a://large" => Some(json!([{"uri": uri, "text": "x".repeat(3_000_000)}])),
        "a://odd" => Some(json!("nothing")),
        _ => None,
    }
}

fn answer(id: &Value, result: &Value) {
    say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn say(message: &Value) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{message}").and_then(|()| stdout.flush()).unwrap_or_else(|_| std::process::exit(0));
}
