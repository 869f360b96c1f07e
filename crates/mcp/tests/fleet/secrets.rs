//! Credentials stay with the server that needs them.

use dacapo_mcp::{Fleet, ServerPhase, ServersFile};
use serde_json::{Value, json};

use crate::{LONG, call, environment, fake, ok, options, until};

const TOKEN: &str = "ghp_\"s3cr3t/+=";
const PASSWORD: &str = "correct horse";

#[tokio::test]
async fn a_server_sees_its_environment_and_nobody_sees_its_secrets() {
    let mut environment = environment();
    environment.insert("WORK".to_owned(), "/home/somebody/work".to_owned());
    environment.insert("GITHUB".to_owned(), TOKEN.to_owned());
    environment.insert("AWS_SECRET_ACCESS_KEY".to_owned(), "not for you".to_owned());
    let mut entry = fake("legacy");
    entry["env"]["GH"] = json!("${GITHUB}");
    entry["env"]["DB_PASSWORD"] = json!(PASSWORD);
    entry["env"]["DATA"] = json!("${WORK}/data");
    let text = json!({"mcpServers": {"a": entry}}).to_string();
    let fleet = Fleet::start(ServersFile::parse(&text, &environment).unwrap(), options());
    fleet.settled(LONG).await;

    let seen = json!({"DATA": "/home/somebody/work/data", "DB_PASSWORD": "***", "FAKE_SERVER": "legacy", "GH": "***",
                      "HOME": "/home/somebody", "PATH": std::env::var("PATH").unwrap()});
    assert_eq!(call(&fleet, "a", "env", json!({})).await, ok(&seen));
    until("the line on stderr", || fleet.states()[0].stderr.iter().any(|line| line.contains("my environment"))).await;
    let state = format!("{:?}", fleet.states());
    assert!(!state.contains("s3cr3t") && !state.contains(PASSWORD) && state.contains("***"), "{state}");

    // Echoed in other shapes, alone or inside of something.
    let shapes = json!([
        format!("token={TOKEN};"), "https://x/?t=ghp_%22s3cr3t%2F%2B%3D&a=1", json!({"t": TOKEN}).to_string(),
        "eDpnaHBfInMzY3IzdC8rPQ==", {"ghp_\"s3cr3t/+=": 1}, "correct horse battery", "correct",
        "6768705F227333637233742F2B3D", "<b>ghp_&quot;s3cr3t/+=</b>", "/?t=ghp_%22s3cr3t%2f+%3d", "correct+horse"
    ]);
    let masked = json!(["token=***;", "https://x/?t=***&a=1", r#"{"t":"***"}"#, "eDp***Q==", {"***": 1}, "*** battery", "correct",
                        "***", "<b>***</b>", "/?t=***", "***"]);
    let said = json!({"content": [], "structuredContent": shapes});
    let Ok(output) = call(&fleet, "a", "echo", said).await else { panic!("an answer") };
    let dacapo_replay::Answer::Ok(json) = output.answer else { panic!("a value") };
    assert_eq!(serde_json::from_str::<Value>(json.as_str()).unwrap(), masked);

    let error = call(&fleet, "a", TOKEN, json!({})).await.unwrap();
    assert!(!format!("{error:?}").contains("s3cr3t"), "{error:?}");
}

#[tokio::test]
async fn a_secret_is_known_by_where_it_stands() {
    let mut environment = environment();
    environment.insert("ACCESS".to_owned(), "/Rk3/vB7xQ9+pLw2".to_owned());
    environment.insert("PWD".to_owned(), "/home/somebody/here".to_owned());
    let mut entry = fake("legacy");
    // Arguments after these are read by the test harness as further filters, which do no harm.
    let args = json!([
        "--",
        "--api-token",
        "after-a-flag",
        "--password=in-a-flag",
        "GITLAB_PAT=in-an-assignment",
        "X-Key: no-header",
        "https://me:in-userinfo@example.com/?q=in%20a%20query",
        "${PWD}/data",
        "--max-tokens",
        "100000"
    ]);
    entry["args"].as_array_mut().unwrap().extend(args.as_array().unwrap().iter().cloned());
    let env = json!({
        "ACCESS": "${ACCESS}", "DB_DSN": "in-a-dsn", "DB_PASS": "in-a-pass", "sessionId": "in-a-session",
        "DATABASE_URL": "postgres://me:in-a-database@example.com/db", "PEM": "${PEM}",
        "AUTHOR": "an author", "BYWAY": "a byway"
    });
    let pem = "-----BEGIN KEY-----\nMIIBVwIBADANBgkq\nhkiG9w0B\n-----END KEY-----";
    environment.insert("PEM".to_owned(), pem.to_owned());
    entry["env"].as_object_mut().unwrap().extend(env.as_object().unwrap().clone());
    let web = json!({"url": "http://127.0.0.1:9/s/a1b2c3d4e5f6g7h8i9j0/mcp?key=in-an-address", "headers": {"X-Org": "in-a-header"}});
    let text = json!({"mcpServers": {"a": entry, "web": web}}).to_string();
    let fleet = Fleet::start(ServersFile::parse(&text, &environment).unwrap(), options());
    fleet.settled(LONG).await;

    let said = json!([
        "after-a-flag",
        "in-a-flag",
        "in-an-assignment",
        "in-userinfo",
        "in%20a%20query",
        "in a query",
        "in-a-dsn",
        "in-a-pass",
        "in-a-session",
        "in-a-database",
        "/Rk3/vB7xQ9+pLw2",
        "MIIBVwIBADANBgkq",
        "in-an-address",
        "a1b2c3d4e5f6g7h8i9j0",
        "in-a-header"
    ]);
    let hidden = vec![json!("***"); said.as_array().unwrap().len()];
    let answer = call(&fleet, "a", "echo", json!({"content": [], "structuredContent": said})).await;
    assert_eq!(answer, ok(&Value::from(hidden)));
    let shown =
        json!(["an author", "a byway", "/home/somebody/here/data", "hkiG9w0B", "no-header", "example.com", "100000"]);
    assert_eq!(call(&fleet, "a", "echo", json!({"content": [], "structuredContent": shown})).await, ok(&shown));

    let ServerPhase::Failed { reason, .. } = &fleet.states()[1].phase else { panic!("nobody listens there") };
    assert!(reason.contains("Connection refused") && !reason.contains("127.0.0.1:9/"), "{reason}");
}
