//! Two thousand expense lines, of which the model has to read none.

use serde_json::{Value, json};

use super::scenario::{Scenario, euros, text, tool, unknown};

const LINES_EACH: usize = 100;
const CATEGORIES: [&str; 5] = ["travel", "meals", "software", "hardware", "training"];
const BUDGETS: [(&str, i64); 3] = [("junior", 320_000), ("senior", 400_000), ("staff", 480_000)];
const NAMES: [&str; 20] = [
    "Amara Okafor", "Bence Nagy", "Clara Jensen", "Diego Ramos", "Elif Demir", "Farid Haddad", "Greta Lindqvist",
    "Hana Suzuki", "Ivo Petrov", "Jana Novak", "Kofi Mensah", "Lena Fischer", "Marco Bianchi", "Nora Walsh",
    "Oscar Dubois", "Priya Nair", "Quinn Taylor", "Rosa Vidal", "Stefan Ilic", "Tara Singh",
];
/// Who travels more than the others.
const TRAVELLERS: [usize; 3] = [4, 9, 17];

struct Expense {
    category: &'static str,
    is_approved: bool,
    cents: i64,
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
        title: "2,000 expense lines, three lines of answer",
        question: "Who in engineering is over their travel budget in 2026-Q3, and by how much?".to_owned(),
        tools: tools(),
        expected: expected(&members),
        execute: Box::new(move |tool, arguments| execute(&members, tool, arguments)),
    }
}

fn expected(members: &[Member]) -> String {
    let mut over: Vec<(i64, i64, &str)> = Vec::new();
    for member in members {
        let travel = member.expenses.iter().filter(|expense| expense.category == "travel" && expense.is_approved);
        let spent: i64 = travel.map(|expense| expense.cents).sum();
        let by = spent - BUDGETS[member.level].1;
        if by > 0 {
            over.push((by, spent, member.name));
        }
    }
    over.sort_by_key(|(by, ..)| -by);
    let two = |cents: i64| format!("{}.{:02}", cents / 100, cents % 100);
    let lines = over.iter().map(|(by, spent, name)| format!("\n{name}: €{} over, €{} spent", two(*by), two(*spent)));
    format!("Over their travel budget in 2026-Q3:{}", lines.collect::<String>())
}

fn execute(members: &[Member], tool: &str, arguments: &Value) -> Result<Value, String> {
    match tool {
        "get_team_members" => {
            let member = |member: &Member| json!({"id": member.id, "name": member.name, "level": BUDGETS[member.level].0});
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
    const MERCHANTS: [[&str; 3]; 5] = [
        ["Deutsche Bahn", "Lufthansa", "Hotel Europa"],
        ["Trattoria Roma", "Cafe Central", "Bistro 21"],
        ["JetBrains", "Figma", "GitHub"],
        ["Dell", "Logitech", "Apple Store"],
        ["O'Reilly", "Coursera", "Linux Foundation"],
    ];
    const NOTES: [&str; 4] = ["client visit Hamburg", "team offsite", "quarterly planning", "onboarding week"];
    let mut chance = Chance(2026);
    let mut number = 0;
    let mut members = Vec::new();
    for (at, name) in NAMES.into_iter().enumerate() {
        let mut expenses = Vec::new();
        for _ in 0..LINES_EACH {
            number += 1;
            let kind = chance.below(CATEGORIES.len());
            let is_approved = chance.below(10) > 0;
            let factor = if kind == 0 && TRAVELLERS.contains(&at) { 2 } else { 1 };
            let cents = (1_200 + chance.below(25_000) as i64) * factor;
            let (merchant, note) = (MERCHANTS[kind][chance.below(3)], NOTES[chance.below(4)]);
            let date = format!("2026-{:02}-{:02}", 7 + chance.below(3), 1 + chance.below(30));
            let json = json!({
                "id": format!("exp_{number:05}"),
                "date": date,
                "merchant": merchant,
                "category": CATEGORIES[kind],
                "amount_eur": euros(cents),
                "status": if is_approved { "approved" } else { "rejected" },
                "note": note,
            });
            expenses.push(Expense { category: CATEGORIES[kind], is_approved, cents, json });
        }
        members.push(Member { id: format!("u{:02}", at + 1), name, level: at % BUDGETS.len(), expenses });
    }
    members
}

/// Numbers that look random and never change.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}
