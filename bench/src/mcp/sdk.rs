//! The SDK's own client, as one would use it without us.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use dacapo_mcp::ENVIRONMENT_MINIMUM;
use rmcp::model::{CallToolRequestParams, CallToolResult, ProtocolVersion, Tool};
use rmcp::service::{ClientServiceExt, RunningService};
use rmcp::{ClientLifecycleMode, RoleClient};
use serde_json::{Map, Value};
use tokio::process::Child;
use tokio::time::timeout;

use super::Command;

const END: Duration = Duration::from_secs(10);

pub(super) struct Client {
    service: RunningService<RoleClient, ()>,
    process: Child,
}

impl Client {
    /// Starts a server's process and gets to know it, in the era that we would choose too.
    pub(super) async fn start(command: &Command) -> anyhow::Result<Client> {
        // What our servers get too: some variables make processes start slowly.
        let environment = ENVIRONMENT_MINIMUM.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        let mut process = tokio::process::Command::new(&command.program)
            .args(&command.args)
            .env_clear()
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let pipes = (process.stdout.take().context("piped")?, process.stdin.take().context("piped")?);
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        let legacy_version = Some(ProtocolVersion::V_2025_11_25);
        let lifecycle = ClientLifecycleMode::Auto { preferred_versions, legacy_version };
        Ok(Client { service: ().serve_with_lifecycle(pipes, lifecycle).await?, process })
    }

    pub(super) async fn list(&self) -> anyhow::Result<Vec<Tool>> {
        Ok(self.service.list_all_tools().await?)
    }

    pub(super) fn instructions(&self) -> Option<String> {
        self.service.peer_info().and_then(|info| info.instructions.clone())
    }

    pub(super) async fn call(&self, tool: &'static str, args: Map<String, Value>) -> anyhow::Result<CallToolResult> {
        let result = self.service.call_tool(CallToolRequestParams::new(tool).with_arguments(args)).await?;
        ensure!(result.is_error != Some(true), "{tool} failed: {:?}", result.content);
        Ok(result)
    }

    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        self.service.cancel().await?;
        timeout(END, self.process.wait()).await.context("a server does not end")??;
        Ok(())
    }
}
