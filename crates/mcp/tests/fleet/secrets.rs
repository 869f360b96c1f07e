//! Credentials stay with the server that needs them.

use dacapo_mcp::{Fleet, ServersFile};
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
        "eDpnaHBfInMzY3IzdC8rPQ==", {"ghp_\"s3cr3t/+=": 1}, "correct horse battery", "correct"
    ]);
    let masked = json!(["token=***;", "https://x/?t=***&a=1", r#"{"t":"***"}"#, "eDp***Q==", {"***": 1}, "*** battery", "correct"]);
    let said = json!({"content": [], "structuredContent": shapes});
    let Ok(told) = call(&fleet, "a", "echo", said).await else { panic!("an answer") };
    let dacapo_replay::Answer::Ok(json) = told.answer else { panic!("a value") };
    assert_eq!(serde_json::from_str::<Value>(json.as_str()).unwrap(), masked);

    let error = call(&fleet, "a", TOKEN, json!({})).await.unwrap();
    assert!(!format!("{error:?}").contains("s3cr3t"), "{error:?}");
}
