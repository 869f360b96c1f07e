//! What `deploy/` has for containers, Kubernetes and others.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

#[test]
fn manifests_are_valid() {
    let output = Command::new(root().join("target/test-tools/python-deploy/bin/python"))
        .arg(root().join("tests-tools/deploy/validate.py"))
        .arg(root().join("deploy"))
        .arg(root().join("target/test-tools/kubectl/kubectl"))
        .output()
        .expect("run scripts/test-tools first");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("; rendered: 7 and 7 objects"), "{said}");
    for kind in ["Deployment", "HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget", "Secret", "Service"] {
        assert!(said.contains(kind), "{said}");
    }
}

/// The configurations that come with them are such that a gateway starts.
#[test]
fn configurations_in_them_are_understood() {
    let folder = tempfile::tempdir().expect("a folder");
    // Whoever uses it adds clients of their own.
    let compose = std::fs::read_to_string(root().join("deploy/compose/dacapo.toml")).expect("a configuration");
    let client = format!("\n[[client]]\nname = \"a\"\nkey_sha256 = \"{}\"\n", "0".repeat(64));
    let with_client = folder.path().join("compose.toml");
    std::fs::write(&with_client, compose + &client).expect("it is written");
    let of_kubernetes = ["base", "example"].map(|name| root().join("deploy/kubernetes").join(name).join("dacapo.toml"));
    for file in of_kubernetes.into_iter().chain([with_client]) {
        let output = Command::new(env!("CARGO_BIN_EXE_dacapo"))
            .args(["serve", "--print-config", "--config"])
            .arg(&file)
            .env("DACAPO_SECRET", "a secret for this test")
            .env("OPENAI_API_KEY", "sk-test")
            .env("ANTHROPIC_API_KEY", "sk-test")
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    }
}

/// The file system is read-only for the service of systemd, but for what its unit names.
#[test]
fn the_service_may_write_where_the_book_puts_the_store() {
    let unit = std::fs::read_to_string(root().join("deploy/systemd/dacapo.service")).expect("a unit");
    let setting = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    assert_eq!(setting("ProtectSystem"), Some("strict"));
    let writable = Path::new("/var/lib").join(setting("StateDirectory").expect("a folder that may be written"));
    let page = std::fs::read_to_string(root().join("docs/mcp-gateway.md")).expect("a page");
    let store =
        page.lines().find_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"')).expect("a store in a file");
    assert!(Path::new(store).starts_with(&writable), "{store} is not in {}", writable.display());
}
