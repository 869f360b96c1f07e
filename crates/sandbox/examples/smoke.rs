use dacapo_sandbox::*;
use std::ops::ControlFlow;
struct H(Vec<(u32, String)>);
impl Host for H {
    fn call(&mut self, tool: u32, args: &str) -> Asked {
        self.0.push((tool, args.into()));
        Asked::Issued
    }
    fn log(&mut self, level: Level, text: &str) -> ControlFlow<()> {
        println!("{level:?} {text}");
        ControlFlow::Continue(())
    }
    fn unknown_name(&self, ns: u32, name: &str) -> String {
        format!("no {name} in {ns}")
    }
}
fn main() {
    let t = std::time::Instant::now();
    let sb = Sandbox::<H>::new(64).unwrap();
    println!("engine {:?}", t.elapsed());
    let code = std::fs::read_to_string(std::env::args().nth(1).unwrap()).unwrap();
    let code = format!("(async () => {{\n{code}\n}})()");
    let world = World {
        entropy: [7; 40],
        started_at_ms: 1.76e12,
        fuel: 2_000_000_000,
        memory_bytes: 64 << 20,
        stack_bytes: 256 << 10,
    };
    let mut names = Names::default();
    names.function(0, "web_search");
    names.alias("webSearch");
    names.exact("web-search");
    names.unknown("nope", "nope is not defined; closest: web_search");
    names.namespace("github");
    names.function(1, "create_issue");
    for i in 0..3 {
        let t = std::time::Instant::now();
        let mut vm = sb.new_vm(&world, H(vec![])).unwrap();
        let t1 = t.elapsed();
        let r = vm.start(&world, &[&names], &code, &|| true);
        let t2 = t.elapsed();
        if i == 2 {
            println!("new {t1:?} start {t2:?} {r:?} fuel {} mem {}", vm.fuel_used(), vm.memory_bytes());
            println!("{:?}", vm.host().0);
        }
        let mut r = r;
        let mut n = 0;
        while let Ok(x) = r {
            match x {
                Rest::Pending if vm.host().0.len() > n => {
                    r = vm.settle(n as u32, AnswerKind::Json, "{\"a\":[1,2,3]}", &|| true);
                    n += 1;
                }
                Rest::WaitingForTimer => r = vm.tick(&|| true),
                Rest::Pending => {
                    println!("deadlock");
                    break;
                }
                _ => {
                    println!("{:?} fuel {} {:?}", vm.finish(&|| true), vm.fuel_used(), t.elapsed());
                    break;
                }
            }
        }
        if let Err(e) = &r {
            println!("{e:?} {:?}", t.elapsed());
        }
    }
}
