//! What was measured before: a table in the repository, so that whatever gets worse is seen.
//!
//! Ratios and bytes compare everywhere. Times are those of one machine, at one hour: they are compared after dividing them by
//! how much longer this machine takes for what is not ours.

use std::collections::BTreeMap;

use anyhow::Context;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.json");
/// Figures vary from run to run by about as much.
const WORSE: f64 = 1.15;

/// Times, and their ratios to those of native `QuickJS` or of the empty proxy, which tell how fast a machine is.
const YARDSTICKS: [(&str, &str); 2] = [
    ("two-tool run, JavaScript, new VM to result, µs", "two-tool run, JavaScript, new VM to result, to native"),
    ("gateway CPU, chat, mode off, µs", "gateway CPU, chat, mode off, to the empty proxy"),
];

/// Figures of this run, by name. Less is better for all of them.
#[derive(Debug, Default)]
pub(crate) struct Measured(BTreeMap<String, f64>);

impl Measured {
    pub(crate) fn add(&mut self, name: &str, figure: f64) {
        self.0.insert(name.to_owned(), (figure * 100.0).round() / 100.0);
    }

    /// Prints what got worse, what got better, and what is not in the table.
    pub(crate) fn compare(&self) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(FILE).with_context(|| FILE.to_owned())?;
        let before: BTreeMap<String, f64> = serde_json::from_str(&text).with_context(|| FILE.to_owned())?;
        println!("\nbeside {FILE}");
        let slowness = slowness(&before, &self.0);
        println!("this machine takes {slowness:.2} times as long as that of the table; times are divided by it");
        let comparable = |name: &str, now: f64| if name.ends_with("µs") { now / slowness } else { now };
        let known = self.0.iter().filter_map(|(name, now)| Some((name, *before.get(name)?, comparable(name, *now))));
        let changed = known.filter(|(_, before, now)| now / before > WORSE || before / now > WORSE);
        let mut is_same = true;
        for (name, before, now) in changed {
            let word = if now > before { "WORSE " } else { "better" };
            println!("{word} {name:60} {before:>10.2} → {now:>10.2}  {:.2} ×", now / before);
            is_same = false;
        }
        for (name, now) in self.0.iter().filter(|(name, _)| !before.contains_key(*name)) {
            println!("new    {name:60} {:>10} → {now:>10.2}", "");
        }
        if is_same {
            println!("no figure of the table changed by more than {:.0} %", (WORSE - 1.0) * 100.0);
        }
        Ok(())
    }

    /// Replaces the figures of the table that this run has measured.
    pub(crate) fn update(self) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(FILE).unwrap_or_else(|_| "{}".to_owned());
        let mut table: BTreeMap<String, f64> = serde_json::from_str(&text).with_context(|| FILE.to_owned())?;
        table.extend(self.0);
        std::fs::write(FILE, serde_json::to_string_pretty(&table)? + "\n").with_context(|| FILE.to_owned())
    }
}

/// How much longer this machine takes for what is not ours; 1 if that was not measured.
fn slowness(before: &BTreeMap<String, f64>, now: &BTreeMap<String, f64>) -> f64 {
    let yardstick =
        |table: &BTreeMap<String, f64>, (time, ratio): &(&str, &str)| Some(table.get(*time)? / table.get(*ratio)?);
    YARDSTICKS.iter().find_map(|names| Some(yardstick(now, names)? / yardstick(before, names)?)).unwrap_or(1.0)
}
