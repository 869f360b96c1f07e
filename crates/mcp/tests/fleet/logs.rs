//! What servers log.

use std::sync::Arc;
use std::time::Duration;

use dacapo_runner::{LogSeverity, ServerLog, ToolServers};
use serde_json::json;
use tokio::time::timeout;

use crate::{call, fake, ok, options, start, until};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_logs_is_asked_for_as_long_as_somebody_reads_it() {
    for mode in ["logs", "modern logs"] {
        let mut server = fake(mode);
        server["env"]["TOKEN"] = json!("s3cret-of-the-server");
        let fleet = start(json!({"a": server, "b": fake("legacy")}), options()).await;
        let level_is = async |level: &str| {
            until("the level to be set", || {
                let level_now = tokio::task::block_in_place(|| {
                    tokio::runtime::Handle::current().block_on(call(&fleet, "a", "log", json!({})))
                });
                level_now == ok(&json!(level))
            })
            .await;
        };
        // Nobody reads our own log in a test.
        let before = call(&fleet, "a", "log", json!({})).await;
        assert!(before == ok(&json!(null)) || before == ok(&json!("emergency")), "{mode} {before:?}");
        {
            let _chatty = fleet.logs(LogSeverity::Debug).unwrap();
            level_is("debug").await;
        }
        let mut logs = fleet.logs(LogSeverity::Notice).unwrap();
        level_is("notice").await;
        let expected = [LogSeverity::Warning, LogSeverity::Alert].map(|severity| {
            let data = json!({"token": "***"});
            Arc::new(ServerLog { server: "a".to_owned(), severity, logger: Some("db".to_owned()), data })
        });
        // Messages overtake each other, and some of the calls before may come late.
        let mut missing = expected.to_vec();
        while !missing.is_empty() {
            let heard = timeout(Duration::from_mins(1), logs.next()).await.expect(mode).unwrap();
            assert!(expected.contains(&heard), "{mode} {heard:?}");
            missing.retain(|log| *log != heard);
        }
    }
}
