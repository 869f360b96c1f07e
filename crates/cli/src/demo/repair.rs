//! Orders and stock. The model's first program fails, and the second reuses the calls that were made.

use serde_json::{Value, json};

use super::scenario::{Scenario, text, tool, unknown};

struct Order {
    id: &'static str,
    customer: &'static str,
    /// Articles and how many of each.
    lines: &'static [(&'static str, u32)],
}

const ORDERS: [Order; 4] = [
    Order { id: "A-1041", customer: "Nordlicht GmbH", lines: &[("LAMP-20", 4), ("BULB-E27", 12)] },
    Order { id: "A-1042", customer: "Café Lumen", lines: &[("LAMP-35", 6), ("DIMMER-2", 2)] },
    Order { id: "A-1043", customer: "Atelier Roux", lines: &[("BULB-E27", 40)] },
    Order { id: "A-1044", customer: "Studio Hafen", lines: &[("LAMP-20", 2), ("RAIL-3M", 5)] },
];
const STOCK: [(&str, u32); 5] = [("LAMP-20", 31), ("LAMP-35", 3), ("BULB-E27", 150), ("DIMMER-2", 0), ("RAIL-3M", 4)];

pub(super) fn scenario(name: &'static str) -> Scenario {
    Scenario {
        name,
        title: "a wrong program is corrected, and no call made twice".to_owned(),
        question: "Which of our open orders cannot ship today, and what do they wait for?".to_owned(),
        tools: vec![
            tool("list_open_orders", "Returns { orders: string[] }, the ids of open orders.", &[]),
            tool("get_order", "One order with its customer and its articles.", &[("id", "string", "Order id")]),
            tool("get_stock", "Returns { sku, available } of an article.", &[("sku", "string", "Article number")]),
        ],
        execute: Box::new(execute),
        expected: expected(),
    }
}

fn expected() -> String {
    let available = |sku: &str| STOCK.iter().find(|(known, _)| *known == sku).map_or(0, |(_, count)| *count);
    let waits = |order: &Order| {
        let short = order.lines.iter().filter(|(sku, quantity)| available(sku) < *quantity);
        let short: Vec<&str> = short.map(|(sku, _)| *sku).collect();
        (!short.is_empty()).then(|| format!("\n{} ({}) waits for {}", order.id, order.customer, short.join(", ")))
    };
    format!("Cannot ship today:{}", ORDERS.iter().filter_map(waits).collect::<String>())
}

fn execute(tool: &str, arguments: &Value) -> Result<Value, String> {
    match tool {
        "list_open_orders" => Ok(json!({"orders": ORDERS.map(|order| order.id)})),
        "get_order" => {
            let id = text(arguments, "id")?;
            let order = ORDERS.into_iter().find(|order| order.id == id).ok_or_else(|| unknown("order", id))?;
            let line = |(sku, quantity): &(&str, u32)| json!({"sku": sku, "quantity": quantity});
            let lines: Vec<Value> = order.lines.iter().map(line).collect();
            Ok(json!({"id": order.id, "customer": order.customer, "lines": lines}))
        }
        "get_stock" => {
            let sku = text(arguments, "sku")?;
            let found = STOCK.iter().find(|(known, _)| *known == sku).ok_or_else(|| unknown("article", sku))?;
            Ok(json!({"sku": found.0, "available": found.1}))
        }
        _ => Err(unknown("tool", tool)),
    }
}
