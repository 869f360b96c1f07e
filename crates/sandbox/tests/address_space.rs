//! Starting where address space is limited. Alone in its file, because it starts its own process again.

use std::process::Command;

use dacapo_sandbox::{Sandbox, VmConfig};

const LIMITED: &str = "DACAPO_TEST_ADDRESS_SPACE_IS_LIMITED";

#[test]
fn with_little_address_space_there_is_room_for_fewer_programs() {
    if let Some(starts) = std::env::var_os(LIMITED) {
        return start_with_little(starts == "yes");
    }
    for (kib, starts) in [(100 << 20, "yes"), (2_000_000, "yes"), (500_000, "no")] {
        let limited = Command::new("sh")
            .args(["-c", &format!("ulimit -v {kib} && exec \"$0\" --nocapture")])
            .arg(std::env::current_exe().expect("a test has a file"))
            .env(LIMITED, starts)
            .output()
            .expect("there is a shell");
        assert!(limited.status.success(), "{kib}: {}", String::from_utf8_lossy(&limited.stderr));
    }
}

fn start_with_little(starts: bool) {
    let config = VmConfig {
        entropy: [7; 40],
        started_at_ms: 0.0,
        fuel: 1 << 30,
        memory_bytes: 16 << 20,
        stack_bytes: 256 << 10,
    };
    match (Sandbox::new(1_000), starts) {
        (Ok(sandbox), true) => {
            let programs_max = sandbox.programs_max();
            assert!((4..1_000).contains(&programs_max), "{programs_max}");
            let message = sandbox.shortage().map(|shortage| shortage.to_string()).unwrap_or_default();
            let fewer = format!("room for {programs_max} programs instead of 1000");
            assert!(message.contains(&fewer) && message.contains("`ulimit -v unlimited`"), "{message}");
            let mut vm = sandbox.new_vm(&config, ()).expect("room for a program");
            vm.start(&config, &dacapo_sandbox::ProgramNames::default(), "(async () => 6 * 7)()", &|| true)
                .expect("it runs");
            assert_eq!(vm.finish(&|| true).expect("a report").outcome.as_deref(), Ok("42"));
        }
        (Err(error), false) => assert!(error.to_string().contains("`ulimit -v unlimited`"), "{error}"),
        (started, _) => panic!("{started:?}"),
    }
}
