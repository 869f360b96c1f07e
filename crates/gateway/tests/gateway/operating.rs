//! What an operator may do: rules for each client, a configuration that is read again, and certificates.

use std::path::Path;
use std::process::Command;

use dacapo_gateway::{ClientOptions, Environment, GatewayOptions, key_sha256};
use dacapo_wire::Wire;
use serde_json::{Value, json};

use crate::client_conversation::ClientConversation;
use crate::common::{HttpResponse, Model, Redis, RunningGateway, ask, options, post_with, send_to};

const SCRIPT: &str = r#"
[[turn]]
when = { user = "slow", after = "user" }
text = "late"
delay_ms = 400

[[turn]]
when = { after = "user", tool = "execute" }
program = "return (await web_search({ query: 'x' })) + 'y'.repeat(5000);"

[[turn]]
when = { after = "tool" }
text = "{{result}}"

[[turn]]
text = "hi"
"#;

fn client(name: &str) -> ClientOptions {
    ClientOptions { name: name.to_owned(), key_sha256: vec![key_sha256(name)], ..ClientOptions::default() }
}

fn ask_model(model: &str, text: &str) -> Value {
    let mut body = ask(text);
    body["model"] = json!(model);
    body
}

async fn post_as(gateway: &RunningGateway, name: &str, body: &Value) -> HttpResponse {
    post_with(&gateway.url, body, &[("authorization", &format!("Bearer {name}"))]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_have_models_a_mode_limits_and_turns_of_its_own() {
    let model = Model::start(SCRIPT).await;
    let mut options = options(&model);
    let ann = ClientOptions { models: vec!["small-*".to_owned()], mode: Some("off".to_owned()), ..client("ann") };
    let mut bob = ClientOptions { turns_max: Some(1), ..client("bob") };
    bob.limits.insert("output_bytes".to_owned(), 2_000);
    options.clients = vec![ann, bob, client("eve")];
    let gateway = RunningGateway::start(options).await;

    let refused = post_as(&gateway, "ann", &ask_model("large", "hi")).await;
    assert_eq!(refused.status, 403);
    assert_eq!(refused.json()["error"]["message"], "`large` is not for this key; its models are small-*");
    let answered = post_as(&gateway, "ann", &ask_model("small-1", "hi")).await;
    assert_eq!(
        (answered.status, &answered.headers["x-dacapo-mode"]),
        (200, &"off; reason=configuration".parse().unwrap())
    );
    let listed = async |name: &str| {
        let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
        let request = client.get(format!("{}/models", gateway.url)).header("authorization", format!("Bearer {name}"));
        request.send().await.unwrap().text().await.unwrap()
    };
    assert_eq!((listed("ann").await.contains("demo"), listed("eve").await.contains("demo")), (false, true));
    let unnamed = send_to(&format!("{}/files", gateway.url), &json!({}), &[("authorization", "Bearer ann")]).await;
    assert_eq!(unnamed.status, 403, "{}", unnamed.text);

    // The same program ends in another way where the limits are others.
    for (name, expected) in [("bob", "LimitError"), ("eve", "\"success\"")] {
        let mut talk = ClientConversation::new(Wire::Chat, &[("web_search", &["query"])]);
        talk.user("go");
        let first = post_as(&gateway, name, &talk.request().1).await;
        let calls = talk.read_response(&first.text).calls;
        talk.answer(&calls[0], &"x".repeat(5), false);
        let last = post_as(&gateway, name, &talk.request().1).await;
        let text = talk.read_response(&last.text).text;
        assert!(text.contains(expected), "{name}: {text}");
    }
    let slow = ask_model("m", "slow");
    let (one, other) = tokio::join!(post_as(&gateway, "bob", &slow), post_as(&gateway, "bob", &slow));
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 429]);
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_the_requests_per_minute_through_redis() {
    let model = Model::start(SCRIPT).await;
    let redis = Redis::start().await;
    let mut options = options(&model);
    options.clients = vec![ClientOptions { requests_per_minute: Some(3), ..client("ann") }, client("bob")];
    options.store.kind = Some("redis".to_owned());
    options.store.url = Some(redis.1.clone());
    let (first, second) = (RunningGateway::start(options.clone()).await, RunningGateway::start(options.clone()).await);
    for gateway in [&first, &second, &first] {
        assert_eq!(post_as(gateway, "ann", &ask_model("m", "hi")).await.status, 200);
    }
    // On every wire the error has the shape that its clients read.
    for path in ["chat/completions", "messages"] {
        let refused = send_to(&format!("{}/{path}", second.url), &ask_model("m", "hi"), &[("x-api-key", "ann")]).await;
        assert_eq!((refused.status, &refused.json()["error"]["type"]), (429, &json!("rate_limit_error")));
        assert_eq!(refused.json()["error"]["message"], "more than 3 requests a minute; wait 20 s");
        assert_eq!(refused.headers["retry-after"], "20");
        assert_eq!(refused.json()["type"] == "error", path == "messages");
    }
    assert_eq!(post_as(&second, "bob", &ask_model("m", "hi")).await.status, 200, "it is another client");

    // Where the store is gone, each replica counts for itself.
    drop(redis);
    let asked = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    let statuses = [post_as(&first, "ann", &asked).await.status, post_as(&second, "ann", &asked).await.status];
    assert!(!statuses.contains(&429), "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_configuration_holds_for_new_requests_and_running_turns_keep_theirs() {
    let (before, after) = (Model::start(SCRIPT).await, Model::start(SCRIPT).await);
    let mut options = options(&before);
    options.store.kind = Some("memory".to_owned());
    options.clients = vec![client("ann"), client("bob")];
    let gateway = RunningGateway::start(options.clone()).await;
    let mut talk = ClientConversation::new(Wire::Chat, &[("web_search", &["query"])]);
    talk.user("go");
    let first = post_as(&gateway, "ann", &talk.request().1).await;
    let calls = talk.read_response(&first.text).calls;
    talk.answer(&calls[0], "x", false);
    let slow = ask_model("m", "slow");
    let running = tokio::spawn({
        let (url, body) = (gateway.url.clone(), slow.clone());
        async move { post_with(&url, &body, &[("authorization", "Bearer bob")]).await }
    });
    while before.seen.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }

    let mut changed = options.clone();
    changed.upstreams[0].base_url = Some(after.url.clone());
    changed.clients = vec![client("ann")];
    changed.turns_max = Some(7);
    let config = changed.resolve(&Environment::default()).unwrap();
    gateway.configs.send(config).await.unwrap();
    while post_as(&gateway, "bob", &ask_model("m", "hi")).await.status != 401 {}
    assert_eq!(running.await.unwrap().json()["choices"][0]["message"]["content"], "late");

    // The program goes on: its state is in the store, which is still the same.
    before.asked();
    after.asked();
    let last = post_as(&gateway, "ann", &talk.request().1).await;
    assert!(talk.read_response(&last.text).text.contains("\"success\""), "{}", last.text);
    assert_eq!((before.asked().len(), after.asked().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_file_does_not_open_what_was_closed() {
    let model = Model::start(SCRIPT).await;
    let mut options = options(&model);
    options.listen = Some("0.0.0.0:0".to_owned());
    options.clients = vec![client("ann")];
    let gateway = RunningGateway::start(options.clone()).await;
    // By itself it is harmless: it says that nobody else reaches the gateway.
    options.listen = Some("127.0.0.1:0".to_owned());
    options.clients.clear();
    gateway.configs.send(options.clone().resolve(&Environment::default()).unwrap()).await.unwrap();
    // When this one is taken over, the one before has been looked at.
    options.clients = vec![client("bob")];
    gateway.configs.send(options.resolve(&Environment::default()).unwrap()).await.unwrap();
    while post_as(&gateway, "bob", &ask_model("m", "hi")).await.status != 200 {
        let without_key = send_to(&format!("{}/chat/completions", gateway.url), &ask_model("m", "hi"), &[]).await;
        assert_eq!(without_key.status, 401);
    }
}

/// A certificate for localhost, made by itself.
fn certificate(folder: &Path, name: &str) -> (String, String) {
    let path = |ending: &str| folder.join(format!("{name}.{ending}")).display().to_string();
    let (cert, key) = (path("pem"), path("key"));
    let config = path("cnf");
    let text = format!(
        "[req]\ndistinguished_name = name\nx509_extensions = extensions\nprompt = no\n[name]\nCN = {name}\n[extensions]\n\
         subjectAltName = DNS:localhost\nbasicConstraints = critical, CA:FALSE\n"
    );
    std::fs::write(&config, text).unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-config", &config, "-keyout", &key, "-out", &cert])
        .output()
        .expect("run scripts/test-tools first: openssl is missing");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (cert, key)
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_encrypted_and_a_certificate_can_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let model = Model::start(SCRIPT).await;
    let mut options = options(&model);
    let (cert, key) = certificate(folder.path(), "first");
    (options.tls_cert, options.tls_key) = (Some(cert.clone()), Some(key));
    let gateway = RunningGateway::start(options.clone()).await;
    let url = gateway.url.replace("http://127.0.0.1", "https://localhost") + "/chat/completions";
    let post = async |cert: &str| {
        let trusted = reqwest::Certificate::from_pem(&std::fs::read(cert).unwrap()).unwrap();
        let client = reqwest::Client::builder().tls_certs_only([trusted]).build().unwrap();
        let response = client.post(&url).body(ask_model("m", "hi").to_string()).send().await;
        response.map(|response| response.status().as_u16()).map_err(|error| error.is_connect())
    };
    assert_eq!(post(&cert).await, Ok(200));
    // Somebody who is silent, or speaks something else, disturbs nobody.
    let _silent = tokio::net::TcpStream::connect(url.split('/').nth(2).unwrap()).await.unwrap();
    assert!(
        reqwest::Client::builder().tls_certs_only([]).build().unwrap().get(gateway.url.clone()).send().await.is_err()
    );
    assert_eq!(post(&cert).await, Ok(200));

    let (second, key) = certificate(folder.path(), "second");
    (options.tls_cert, options.tls_key) = (Some(second.clone()), Some(key));
    gateway.configs.send(options.clone().resolve(&Environment::default()).unwrap()).await.unwrap();
    while post(&second).await != Ok(200) {}
    assert_eq!(post(&cert).await, Err(true));

    let mistakes = |cert: Option<&str>, key: Option<&str>| {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let options = GatewayOptions { tls_cert: text(cert), tls_key: text(key), ..options.clone() };
        options.resolve(&Environment::default()).unwrap_err().to_string()
    };
    assert_eq!(mistakes(Some(&cert), None), "tls_key: is missing; tls_cert needs it");
    assert!(mistakes(Some("/no/file"), Some(&cert)).starts_with("tls_cert: /no/file: "));
    assert!(mistakes(Some(&cert), Some(&cert)).starts_with("tls_key: "));
    assert!(mistakes(Some(&cert), options.tls_key.as_deref()).contains(" does not go with "));
}
