//! What a release consists of, made from this binary: installed from local files, and removed again.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Runs a command that must succeed, with an empty home.
fn run(home: &Path, program: impl AsRef<Path>, arguments: &[&str]) -> String {
    let mut command = Command::new(program.as_ref());
    command.args(arguments).current_dir(root()).env("HOME", home).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    // Cargo keeps its registry in the home of who runs the test.
    let cargo_home = std::env::var_os("CARGO_HOME")
        .or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo").into_os_string()));
    command.envs(cargo_home.map(|it| ("CARGO_HOME", it)));
    let rustup_home = std::env::var_os("RUSTUP_HOME")
        .or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".rustup").into_os_string()));
    command.envs(rustup_home.map(|it| ("RUSTUP_HOME", it)));
    let output = command.output().expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{} {arguments:?}\n{out}{err}", program.as_ref().display());
    out.into_owned()
}

fn with_ending(folder: &Path, ending: &str) -> String {
    let mut files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let found = files.find(|path| path.to_string_lossy().ends_with(ending)).expect("it was made");
    found.display().to_string()
}

#[test]
fn packages_carry_the_binary_and_are_made_of_the_same_bytes_each_time() {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    let (first, second) = (home.join("first"), home.join("second"));
    for out in [&first, &second] {
        let out = out.display().to_string();
        run(
            home,
            root().join("scripts/release"),
            &["--binary", env!("CARGO_BIN_EXE_dacapo"), "--compression", "1", "--out", &out],
        );
    }
    let sums = |folder: &Path| std::fs::read_to_string(folder.join("SHA256SUMS")).expect("checksums");
    assert_eq!(sums(&first), sums(&second));
    assert_eq!(sums(&first).lines().count(), 4, "{}", sums(&first));
    run(home, "bash", &["-c", &format!("cd {} && sha256sum --check --strict SHA256SUMS", first.display())]);

    let version = run(home, env!("CARGO_BIN_EXE_dacapo"), &["--version"]);
    let works = |installed: &Path| {
        assert_eq!(run(home, installed, &["--version"]), version);
        let step = run(
            home,
            "bash",
            &["-c", &format!("echo '{{\"program\":{{\"code\":\"return 6*7\"}}}}' | {} step", installed.display())],
        );
        assert!(step.contains("\"data\":42"), "{step}");
    };
    let venv = home.join("venv");
    run(home, "python3", &["-m", "venv", &venv.display().to_string()]);
    let pip = venv.join("bin/pip");
    run(home, &pip, &["install", "--quiet", "--no-index", &with_ending(&first, ".whl")]);
    works(&venv.join("bin/dacapo"));
    run(home, &pip, &["uninstall", "--quiet", "--yes", "dacapo"]);
    assert!(!venv.join("bin/dacapo").exists());

    let project = home.join("project");
    std::fs::create_dir(&project).expect("a folder");
    let prefix = project.display().to_string();
    run(
        home,
        "npm",
        &["install", "--offline", "--no-audit", "--no-fund", "--prefix", &prefix, &with_ending(&first, ".tgz")],
    );
    works(&project.join("node_modules/.bin/dacapo"));
    run(home, "npm", &["uninstall", "--offline", "--no-audit", "--no-fund", "--prefix", &prefix, "dacapo"]);
    assert!(!project.join("node_modules/.bin/dacapo").exists());

    let unpacked = home.join("unpacked");
    std::fs::create_dir(&unpacked).expect("a folder");
    run(
        home,
        "tar",
        &["-xzf", &with_ending(&first, ".tar.gz"), "--strip-components=1", "-C", &unpacked.display().to_string()],
    );
    works(&unpacked.join("bin/dacapo"));
    for file in ["completions/bash/dacapo", "completions/zsh/_dacapo", "man/man1/dacapo-serve.1", "LICENSE-MIT"] {
        assert!(unpacked.join(file).metadata().is_ok_and(|file| file.len() > 500), "{file}");
    }
    run(home, "bash", &["-n", &unpacked.join("completions/bash/dacapo").display().to_string()]);

    let sbom = std::fs::read_to_string(with_ending(&first, ".cdx.json")).expect("an SBOM");
    let sbom: serde_json::Value = serde_json::from_str(&sbom).expect("JSON");
    let names: Vec<&str> =
        sbom["components"].as_array().expect("components").iter().filter_map(|it| it["name"].as_str()).collect();
    for (name, is_in) in [("wasmtime", true), ("rquickjs-sys", true), ("dacapo-gateway", true), ("insta", false)] {
        assert_eq!(names.contains(&name), is_in, "{name}");
    }
}

#[test]
fn an_installed_command_has_manual_pages_and_completions_until_it_is_removed() {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    let install = root().join("scripts/install").display().to_string();
    // From a folder that is not the repository, to a path relative to it.
    let at_home =
        |arguments: &str| run(home, "bash", &["-c", &format!("cd '{}' && {install} {arguments}", home.display())]);
    let files = |folder: &str| {
        let folder = home.join("here").join(folder);
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut names: Vec<_> = entries.map(|entry| entry.expect("a file").file_name()).collect();
        names.sort();
        names
    };
    let (pages, bash) = ("share/man/man1", "share/bash-completion/completions");
    at_home(&format!("--prefix here --binary {}", env!("CARGO_BIN_EXE_dacapo")));
    std::fs::write(home.join("here").join(pages).join("other.1"), "of another program").expect("a page");
    std::fs::write(home.join("here").join(pages).join("dacapo-gone.1"), "of an older version").expect("a page");
    at_home(&format!("--prefix=here --binary {}", env!("CARGO_BIN_EXE_dacapo")));

    let version = run(home, home.join("here/bin/dacapo"), &["--version"]);
    assert_eq!(version, run(home, env!("CARGO_BIN_EXE_dacapo"), &["--version"]));
    assert!(files(pages).contains(&"dacapo-serve.1".into()), "{:?}", files(pages));
    assert!(!files(pages).contains(&"dacapo-gone.1".into()), "{:?}", files(pages));
    assert_eq!(files(bash), ["dacapo"]);
    assert_eq!(files("share/zsh/site-functions"), ["_dacapo"]);
    assert_eq!(files("share/fish/vendor_completions.d"), ["dacapo.fish"]);
    let completed =
        run(home, "bash", &["-c", &format!("source '{}/here/{bash}/dacapo' && complete -p dacapo", home.display())]);
    assert!(completed.ends_with("dacapo\n"), "{completed}");

    at_home("--prefix here --uninstall");
    assert_eq!(files(pages), ["other.1"]);
    assert!(files("bin").is_empty() && files(bash).is_empty());
}
