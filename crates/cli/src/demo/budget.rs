//! Two thousand expenses that a program adds up, so that the model reads none of them.

use serde_json::{Value, json};

use super::scenario::{Scenario, euros, text, tool, unknown};

const LINES_EACH: usize = 100;
/// Categories and their merchants.
const CATEGORIES: [(&str, [&str; 3]); 5] = [
    ("travel", ["Deutsche Bahn", "Lufthansa", "Hotel Europa"]),
    ("meals", ["Trattoria Roma", "Cafe Central", "Bistro 21"]),
    ("software", ["JetBrains", "Figma", "GitHub"]),
    ("hardware", ["Dell", "Logitech", "Apple Store"]),
    ("training", ["O'Reilly", "Coursera", "Linux Foundation"]),
];
const BUDGETS: [(&str, i32); 3] = [("junior", 260_000), ("senior", 280_000), ("staff", 300_000)];
const NAMES: [&str; 20] = [
    "Amara Okafor",
    "Bence Nagy",
    "Clara Jensen",
    "Diego Ramos",
    "Elif Demir",
    "Farid Haddad",
    "Greta Lindqvist",
    "Hana Suzuki",
    "Ivo Petrov",
    "Jana Novak",
    "Kofi Mensah",
    "Lena Fischer",
    "Marco Bianchi",
    "Nora Walsh",
    "Oscar Dubois",
    "Priya Nair",
    "Quinn Taylor",
    "Rosa Vidal",
    "Stefan Ilic",
    "Tara Singh",
];

struct Expense {
    category: &'static str,
    is_approved: bool,
    cents: i32,
    json: Value,
}

struct Member {
    id: String,
    name: &'static str,
    level: usize,
    expenses: Vec<Expense>,
}

pub(super) fn scenario(name: &'static str) -> Scenario {
    let members = members();
    Scenario {
        name,
        title: format!("{} expenses, of which the model reads none", NAMES.len() * LINES_EACH),
        question: "Who in engineering is over their travel budget in 2026-Q3, and by how much?".to_owned(),
        tools: tools(),
        expected: expected(&members),
        execute: Box::new(move |tool, arguments| execute(&members, tool, arguments)),
    }
}

fn expected(members: &[Member]) -> String {
    let mut over: Vec<(i32, &str)> = Vec::new();
    for member in members {
        let travel = member.expenses.iter().filter(|expense| expense.category == "travel" && expense.is_approved);
        let spent: i32 = travel.map(|expense| expense.cents).sum();
        let by = spent - BUDGETS[member.level].1;
        if by > 0 {
            over.push((by, member.name));
        }
    }
    over.sort_by_key(|(by, _)| -by);
    let line = |(by, name): &(i32, &str)| format!("\n{name}: €{}.{:02} over", by / 100, by % 100);
    format!("Over their travel budget in 2026-Q3:{}", over.iter().map(line).collect::<String>())
}

fn execute(members: &[Member], tool: &str, arguments: &Value) -> Result<Value, String> {
    match tool {
        "get_team_members" => {
            let member =
                |member: &Member| json!({"id": member.id, "name": member.name, "level": BUDGETS[member.level].0});
            Ok(json!({"members": members.iter().map(member).collect::<Vec<_>>()}))
        }
        "get_expenses" => {
            let id = text(arguments, "user_id")?;
            let member = members.iter().find(|member| member.id == id).ok_or_else(|| unknown("user", id))?;
            Ok(json!({"expenses": member.expenses.iter().map(|expense| &expense.json).collect::<Vec<_>>()}))
        }
        "get_budget" => {
            let level = text(arguments, "level")?;
            let (_, cents) = BUDGETS.iter().find(|(name, _)| *name == level).ok_or_else(|| unknown("level", level))?;
            Ok(json!({"level": level, "limit_eur": euros(*cents)}))
        }
        _ => Err(unknown("tool", tool)),
    }
}

fn tools() -> Vec<Value> {
    vec![
        tool(
            "get_team_members",
            "Returns { members: { id, name, level }[] } of a department.",
            &[("department", "string", "Department name")],
        ),
        tool(
            "get_expenses",
            "Returns { expenses: { id, date, merchant, category, amount_eur, status, note }[] } of a person: all lines of a quarter. Categories: travel, meals, software, hardware, training. Status: approved or rejected.",
            &[("user_id", "string", "Member's id"), ("quarter", "string", "Such as 2026-Q3")],
        ),
        tool(
            "get_budget",
            "Returns { level, limit_eur }: what a person of this level may spend in a quarter.",
            &[("level", "string", "Member's level"), ("category", "string", "Category of expenses")],
        ),
    ]
}

/// The same people and lines in every run.
fn members() -> Vec<Member> {
    const NOTES: [&str; 4] = ["client visit Hamburg", "team offsite", "quarterly planning", "onboarding week"];
    let mut random = PseudoRandom(2026);
    let mut number = 0;
    let mut members = Vec::new();
    for (at, name) in NAMES.into_iter().enumerate() {
        let mut expenses = Vec::new();
        for _ in 0..LINES_EACH {
            number += 1;
            let (category, merchants) = random.pick(CATEGORIES);
            let is_approved = random.below(10) > 0;
            let cents = 1_200 + random.below(25_000);
            let (merchant, note) = (random.pick(merchants), random.pick(NOTES));
            let date = format!("2026-{:02}-{:02}", 7 + random.below(3), 1 + random.below(30));
            let json = json!({
                "id": format!("exp_{number:05}"),
                "date": date,
                "merchant": merchant,
                "category": category,
                "amount_eur": euros(cents),
                "status": if is_approved { "approved" } else { "rejected" },
                "note": note,
            });
            expenses.push(Expense { category, is_approved, cents, json });
        }
        members.push(Member { id: format!("u{:02}", at + 1), name, level: at % BUDGETS.len(), expenses });
    }
    members
}

/// A linear congruential generator: the same numbers in every run.
struct PseudoRandom(u64);

impl PseudoRandom {
    fn pick<T: Copy, const N: usize>(&mut self, from: [T; N]) -> T {
        from[self.next() as usize % N]
    }

    fn below(&mut self, end: i32) -> i32 {
        (self.next() % end.unsigned_abs()).cast_signed()
    }

    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }
}
