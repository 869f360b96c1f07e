//! A comparison of five carriers. Their tools have to be found among many others.

use serde_json::{Value, json};

use super::office;
use super::scenario::{Scenario, euros, text, tool, unknown};

struct Carrier {
    id: &'static str,
    name: &'static str,
    base_cents: i32,
    cents_per_kg: i32,
    surcharge_cents: i32,
    days: (i32, i32),
}

const CARRIERS: [Carrier; 5] = [
    carrier("correos_priority", "Correos Priority", 736, 200, 75, (3, 4)),
    carrier("dhl_economy", "DHL Economy", 590, 150, 60, (5, 7)),
    carrier("dpd_classic", "DPD Classic", 710, 175, 85, (4, 5)),
    carrier("gls_euro_business", "GLS Euro Business", 898, 220, 90, (2, 4)),
    carrier("ups_standard", "UPS Standard", 1150, 260, 110, (2, 3)),
];

const GRAMS: i32 = 2_400;
const DAYS_MAX: i32 = 4;

const fn carrier(
    id: &'static str,
    name: &'static str,
    base_cents: i32,
    cents_per_kg: i32,
    surcharge_cents: i32,
    days: (i32, i32),
) -> Carrier {
    Carrier { id, name, base_cents, cents_per_kg, surcharge_cents, days }
}

impl Carrier {
    fn find(arguments: &Value) -> Result<&'static Carrier, String> {
        let id = text(arguments, "carrier")?;
        CARRIERS.iter().find(|carrier| carrier.id == id).ok_or_else(|| unknown("carrier", id))
    }

    fn price_cents(&self, grams: i32) -> i32 {
        self.base_cents + self.cents_per_kg * grams / 1_000
    }

    fn total_cents(&self) -> i32 {
        self.price_cents(GRAMS) + self.surcharge_cents
    }

    fn window(&self) -> String {
        format!("{}-{} business days", self.days.0, self.days.1)
    }
}

pub(super) fn scenario(name: &'static str) -> Scenario {
    let mut tools = tools();
    tools.extend(office::tools());
    Scenario {
        name,
        title: format!("a search among {} tools, then a loop", tools.len()),
        question: format!(
            "Compare all shipping options for a {}kg parcel from Germany to Spain. Exclude any option slower than {DAYS_MAX} business days and return the cheapest acceptable option only. Nothing else.",
            euros(GRAMS / 10),
        ),
        tools,
        execute: Box::new(execute),
        expected: expected(),
    }
}

fn expected() -> String {
    let acceptable = CARRIERS.iter().filter(|carrier| carrier.days.1 <= DAYS_MAX);
    acceptable.min_by_key(|carrier| carrier.total_cents()).map_or_else(String::new, |best| {
        format!(
            "**{}** — **€{}**\n- Delivery: {}\n- Base price: €{} + €{} surcharge",
            best.name,
            euros(best.total_cents()),
            best.window(),
            euros(best.price_cents(GRAMS)),
            euros(best.surcharge_cents),
        )
    })
}

fn execute(tool: &str, arguments: &Value) -> Result<Value, String> {
    let number = |name: &str| arguments[name].as_f64().ok_or_else(|| format!("{name} is missing"));
    if tool == "list_carriers" {
        let ids: Vec<&str> = CARRIERS.iter().map(|carrier| carrier.id).collect();
        let (from, to) = (text(arguments, "origin_country")?, text(arguments, "destination_country")?);
        return Ok(json!({"carriers": ids, "origin_country": from, "destination_country": to}));
    }
    let carrier = Carrier::find(arguments)?;
    let grams = || number("weight_kg").map(|kg| (kg * 1_000.0).round() as i32);
    Ok(match tool {
        "estimate_delivery" => json!({"carrier": carrier.id, "min_days": carrier.days.0, "max_days": carrier.days.1}),
        "quote_rate" => {
            json!({"carrier": carrier.id, "base_price_eur": euros(carrier.price_cents(grams()?)), "currency": "EUR"})
        }
        "apply_surcharge" => json!({
            "carrier": carrier.id,
            "fuel_surcharge_eur": euros(carrier.surcharge_cents),
            "remote_area_surcharge_eur": 0,
            "total_surcharge_eur": euros(carrier.surcharge_cents),
        }),
        "quote_summary" => {
            let cents = |name: &str| number(name).map(|euros| (euros * 100.0).round() as i32);
            let (base, surcharge) = (cents("base_price_eur")?, cents("surcharge_eur")?);
            json!({
                "base_price_eur": euros(base),
                "carrier": carrier.id,
                "carrier_name": carrier.name,
                "currency": "EUR",
                "delivery_window": carrier.window(),
                "max_days": arguments["max_days"],
                "min_days": arguments["min_days"],
                "surcharge_eur": euros(surcharge),
                "total_price_eur": euros(base + surcharge),
            })
        }
        _ => return Err(unknown("tool", tool)),
    })
}

fn tools() -> Vec<Value> {
    const CARRIER: (&str, &str, &str) = ("carrier", "string", "Carrier identifier, for example correos_priority");
    const FROM: (&str, &str, &str) = ("origin_country", "string", "ISO 3166-1 alpha-2 country code");
    const TO: (&str, &str, &str) = ("destination_country", "string", "ISO 3166-1 alpha-2 country code");
    const WEIGHT: (&str, &str, &str) = ("weight_kg", "number", "Weight of the package in kilograms");
    vec![
        tool(
            "list_carriers",
            "List the supported carriers for a shipping route. Returns { carriers: string[] }.",
            &[FROM, TO],
        ),
        tool(
            "estimate_delivery",
            "Estimate the delivery time of a carrier in business days. Returns { min_days, max_days }.",
            &[CARRIER, FROM, TO],
        ),
        tool(
            "quote_rate",
            "Get a base shipping quote for a carrier and package weight. Returns { base_price_eur }.",
            &[CARRIER, FROM, TO, WEIGHT],
        ),
        tool(
            "apply_surcharge",
            "Compute the surcharges of a carrier for a package. Returns { total_surcharge_eur }.",
            &[
                CARRIER,
                WEIGHT,
                ("is_fragile", "boolean", "Whether the package needs careful handling"),
                ("is_remote_area", "boolean", "Whether the destination is hard to reach"),
            ],
        ),
        tool(
            "quote_summary",
            "Combine price, surcharge and delivery time of a shipping option into one summary. Returns { carrier, carrier_name, min_days, max_days, delivery_window, base_price_eur, surcharge_eur, total_price_eur }.",
            &[
                CARRIER,
                ("base_price_eur", "number", "Base price of the quote"),
                ("surcharge_eur", "number", "Sum of the surcharges"),
                ("min_days", "integer", "Business days at least"),
                ("max_days", "integer", "Business days at most"),
            ],
        ),
    ]
}
