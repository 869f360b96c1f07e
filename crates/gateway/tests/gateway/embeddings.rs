//! Searches with a second opinion: an upstream's embeddings.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use dacapo_gateway::{EmbeddingsOptions, Environment, GatewayOptions, UpstreamOptions};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::common::{Model, RunningGateway, options, post_json, tool};

const SCRIPT: &str = r#"
[[turn]]
when = { after = "user" }
calls = [{ name = "search", arguments = { queries = ["will I need an umbrella", "send_mail"], limit = 1 } }]

[[turn]]
text = "{{result}}"
"#;

/// An endpoint with a stand-in for a model: texts about the same of two things have the same vector.
#[derive(Clone, Default)]
struct VectorEndpoint {
    texts: Arc<Mutex<Vec<String>>>,
    is_broken: Arc<AtomicBool>,
}

impl VectorEndpoint {
    async fn start(&self) -> String {
        let router = Router::new().route("/v1/embeddings", post(embed)).with_state(self.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    }

    /// What it was asked since the last time.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.texts.lock().unwrap())
    }
}

async fn embed(State(endpoint): State<VectorEndpoint>, Json(body): Json<Value>) -> Result<Json<Value>, StatusCode> {
    assert_eq!(body["model"], "small");
    if endpoint.is_broken.load(Ordering::Relaxed) {
        return Err(StatusCode::INTERNAL_SERVER_ERROR);
    }
    let texts: Vec<String> = serde_json::from_value(body["input"].clone()).unwrap();
    let vector = |text: &String| {
        let is_about = |words: &[&str]| words.iter().any(|word| text.to_lowercase().contains(word));
        let sky = if is_about(&["umbrella", "atmosphere"]) { 1.0 } else { 0.0 };
        let mail = if is_about(&["mail"]) { 1.0 } else { 0.0 };
        json!([sky, mail, 0.1])
    };
    let data = texts.iter().enumerate().map(|(index, text)| json!({"index": index, "embedding": vector(text)}));
    // Some providers answer in another order.
    let data: Vec<Value> = data.rev().collect();
    endpoint.texts.lock().unwrap().extend(texts);
    Ok(Json(json!({"object": "list", "data": data})))
}

/// A real model, all-MiniLM-L6-v2, in a process of its own. `scripts/test-tools` installs it.
struct MiniLm {
    process: Child,
    url: String,
}

impl MiniLm {
    fn start() -> MiniLm {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut command = Command::new(root.join("target/test-tools/python-embeddings/bin/python"));
        command.arg(root.join("tests-tools/embeddings/minilm.py")).stdout(Stdio::piped());
        let mut process = command.spawn().expect("run scripts/test-tools first: python-embeddings is missing");
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        MiniLm { process, url: url.trim().to_owned() }
    }
}

impl Drop for MiniLm {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn with_embeddings(model: &Model, url: &str) -> GatewayOptions {
    let mut options = options(model);
    options.code_mode.declarations_tokens_max = Some(0);
    options.upstreams.push(UpstreamOptions {
        name: "vectors".to_owned(),
        models: vec!["small".to_owned()],
        base_url: Some(url.to_owned()),
        ..UpstreamOptions::default()
    });
    options.search.embeddings = Some(EmbeddingsOptions { upstream: "vectors".to_owned(), model: "small".to_owned() });
    options
}

const TOOLS: &[(&str, &str)] = &[
    ("sky_state", "Tells the state of the atmosphere"),
    ("send_mail", "Sends a letter"),
    ("open_points", "Lists what is left to do"),
];

/// What the model reads of its search.
async fn found(gateway: &RunningGateway, tools: &[(&str, &str)], user: &str) -> String {
    let described = |(name, description): &(&str, &str)| {
        let mut tool = tool(name, &["x"]);
        tool["function"]["description"] = (*description).into();
        tool
    };
    let tools: Vec<Value> = tools.iter().map(described).collect();
    let body = json!({"model": "m", "messages": [{"role": "user", "content": user}], "tools": tools});
    let answer = post_json(&gateway.url, &body).await.json();
    answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embeddings_model_finds_tools_that_share_no_word_with_the_query() {
    let endpoint = VectorEndpoint::default();
    let url = endpoint.start().await;
    let model = Model::start(SCRIPT).await;
    let gateway = RunningGateway::start(with_embeddings(&model, &url)).await;

    let answer = found(&gateway, TOOLS, "one").await;
    let place = |name: &str| answer.find(&format!("declare function {name}"));
    assert!(place("sky_state").is_some() && place("sky_state") < place("send_mail"), "{answer}");
    assert_eq!(endpoint.asked().len(), 5);

    // The same texts are not sent again.
    assert_eq!(found(&gateway, TOOLS, "two").await, answer);
    assert_eq!(endpoint.asked(), [""; 0]);

    // Without vectors, words decide.
    endpoint.is_broken.store(true, Ordering::Relaxed);
    let gateway = RunningGateway::start(with_embeddings(&model, &url)).await;
    let answer = found(&gateway, TOOLS, "one").await;
    assert!(answer.contains("declare function send_mail"), "{answer}");
    assert!(!answer.contains("declare function sky_state"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_model_knows_what_words_mean() {
    const SCRIPT: &str = r#"
[[turn]]
when = { after = "user" }
calls = [{ name = "search", arguments = { queries = ["puppy", "boat repair", "jazz for the evening", "cardiologist"], limit = 1 } }]

[[turn]]
text = "{{result}}"
"#;
    const TOOLS: &[(&str, &str)] = &[
        ("kennel_register", "Names of hounds and their owners"),
        ("hull_inspection", "Condition of vessels in the harbour"),
        ("melody_player", "Starts a record on the loudspeakers"),
        ("surgery_slots", "Free hours of physicians"),
        ("ledger_lines", "Shows what was booked on an account"),
        ("open_points", "Lists what is left to do"),
    ];
    let declared = |answer: &str| -> Vec<String> {
        let names = answer.split("declare function ").skip(1);
        names.map(|rest| rest.split('(').next().unwrap().to_owned()).collect()
    };
    let minilm = MiniLm::start();
    let model = Model::start(SCRIPT).await;
    let gateway = RunningGateway::start(with_embeddings(&model, &minilm.url)).await;

    let answer = found(&gateway, TOOLS, "with a model").await;
    assert_eq!(declared(&answer), ["kennel_register", "hull_inspection", "melody_player", "surgery_slots"], "{answer}");

    let mut options = with_embeddings(&model, &minilm.url);
    options.search.embeddings = None;
    let gateway = RunningGateway::start(options).await;
    let answer = found(&gateway, TOOLS, "with words").await;
    assert_eq!(declared(&answer), [""; 0], "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_settings_of_embeddings_are_told() {
    let model = Model::start(SCRIPT).await;
    let mut wrong = options(&model);
    wrong.search.embeddings = Some(EmbeddingsOptions { upstream: "nobody".to_owned(), model: String::new() });
    let error = wrong.resolve(&Environment::default()).unwrap_err().to_string();
    insta::assert_snapshot!(error, @"
    search.embeddings.model: is missing
    search.embeddings.upstream: there is no upstream `nobody`; name one of [[upstream]]
    ");
}
