use dacapo_replay::{Request, Stepper, WarmPrograms};
use std::time::Instant;
fn rss() -> u64 {
    let s = std::fs::read_to_string("/proc/self/status").unwrap();
    s.lines().find(|l| l.starts_with("VmRSS")).unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}
#[test]
fn probe() {
    let stepper = Stepper::new(WarmPrograms::NONE).unwrap();
    let filter = std::env::var("F").unwrap_or_default();
    let file = std::env::var("PROBE").unwrap_or("/tmp/probe/cases.json".into());
    let cases: Vec<serde_json::Value> = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    for mut case in cases {
        let name = case["name"].as_str().unwrap().to_owned();
        if !name.contains(&filter) {
            continue;
        }
        case.as_object_mut().unwrap().remove("name");
        let request = match Request::parse(
            &case.to_string().replace("\"DEEP\"", &("[".repeat(1000000) + &"]".repeat(1000000))),
        ) {
            Ok(r) => r,
            Err(e) => {
                println!("{name:40} REQUEST {e}");
                continue;
            }
        };
        let t = Instant::now();
        let step = stepper.step(&request, &|| true);
        let el = t.elapsed();
        let text = match step {
            Ok(s) => serde_json::to_string(&s).unwrap(),
            Err(e) => format!("ERR {e}"),
        };
        let fuel = text.rsplit_once("\"fuel\":").map(|x| x.1.split(',').next().unwrap().to_owned()).unwrap_or_default();
        let shown: String =
            text.chars().take(std::env::var("W").ok().and_then(|w| w.parse().ok()).unwrap_or(230)).collect();
        println!(
            "{name:40} {:8.0}ms fuel {fuel:>11} rss {}M len {} {shown}",
            el.as_secs_f64() * 1e3,
            rss() / 1024,
            text.len()
        );
    }
}
