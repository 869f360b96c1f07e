//! Tools of an office that the task does not need, so that there is something to search in.

use serde_json::Value;

use super::scenario::{function, tool};

type Field = (&'static str, &'static str, &'static str);

/// What can be listed, read, created, changed and deleted.
const RESOURCES: [(&str, &str, &str, [Field; 4]); 13] = [
    (
        "calendar_event",
        "calendar_events",
        "an appointment in a calendar",
        [
            ("title", "string", "What it is about"),
            ("start", "string", "When it begins, ISO 8601 with offset"),
            ("end", "string", "When it ends, ISO 8601 with offset"),
            ("attendees", "string", "Mail addresses, separated by commas"),
        ],
    ),
    (
        "mail_draft",
        "mail_drafts",
        "a mail that was not sent yet",
        [
            ("to", "string", "Mail addresses, separated by commas"),
            ("subject", "string", "Subject line"),
            ("body", "string", "Plain text"),
            ("reply_to_id", "string", "Message that is answered, if any"),
        ],
    ),
    (
        "crm_contact",
        "crm_contacts",
        "a person in the customer database",
        [
            ("full_name", "string", "First and last name"),
            ("company", "string", "Company the person works for"),
            ("phone", "string", "Phone number in E.164 format"),
            ("owner_id", "string", "Account manager in charge"),
        ],
    ),
    (
        "sales_lead",
        "sales_leads",
        "a possible sale",
        [
            ("contact_id", "string", "Person in the customer database"),
            ("stage", "string", "One of new, qualified, proposal, won, lost"),
            ("expected_revenue", "number", "In the company's currency"),
            ("close_date", "string", "ISO 8601 date"),
        ],
    ),
    (
        "support_ticket",
        "support_tickets",
        "a customer's problem",
        [
            ("subject", "string", "The problem in one line"),
            ("severity", "integer", "From 1 (outage) to 4 (question)"),
            ("customer_id", "string", "Who reported it"),
            ("assignee_id", "string", "Who works on it"),
        ],
    ),
    (
        "invoice",
        "invoices",
        "an invoice to a customer",
        [
            ("customer_id", "string", "Who has to pay"),
            ("amount", "number", "Net amount"),
            ("currency", "string", "ISO 4217 code"),
            ("due_date", "string", "ISO 8601 date"),
        ],
    ),
    (
        "purchase_order",
        "purchase_orders",
        "an order to a supplier",
        [
            ("supplier_id", "string", "Who delivers"),
            ("item_number", "string", "Article in the supplier's catalog"),
            ("quantity", "integer", "How many pieces"),
            ("cost_center", "string", "Which budget pays"),
        ],
    ),
    (
        "warehouse_item",
        "warehouse_items",
        "an article on stock",
        [
            ("sku", "string", "Stock keeping unit"),
            ("shelf", "string", "Where it lies, such as B-12-3"),
            ("quantity", "integer", "How many pieces are there"),
            ("reorder_level", "integer", "When to order more"),
        ],
    ),
    (
        "employee",
        "employees",
        "a member of staff",
        [
            ("full_name", "string", "First and last name"),
            ("department", "string", "Department name"),
            ("manager_id", "string", "Whom the person reports to"),
            ("start_date", "string", "First day, ISO 8601 date"),
        ],
    ),
    (
        "leave_request",
        "leave_requests",
        "days off that somebody asked for",
        [
            ("employee_id", "string", "Who wants to be away"),
            ("first_day", "string", "ISO 8601 date"),
            ("last_day", "string", "ISO 8601 date"),
            ("reason", "string", "Holiday, sickness or other"),
        ],
    ),
    (
        "document",
        "documents",
        "a page in the company wiki",
        [
            ("title", "string", "Heading of the page"),
            ("space", "string", "Which part of the wiki"),
            ("body", "string", "Markdown"),
            ("parent_id", "string", "Page above it"),
        ],
    ),
    (
        "code_review",
        "code_reviews",
        "a change that waits for approval",
        [
            ("repository", "string", "Owner and name"),
            ("branch", "string", "Branch with the change"),
            ("reviewer_id", "string", "Who should read it"),
            ("summary", "string", "What changes and why"),
        ],
    ),
    (
        "meeting_room",
        "meeting_rooms",
        "a room that can be booked",
        [
            ("building", "string", "Which site"),
            ("floor", "integer", "Ground floor is 0"),
            ("seats", "integer", "How many people fit"),
            ("equipment", "string", "Projector, whiteboard, camera"),
        ],
    ),
];

pub(super) fn tools() -> Vec<Value> {
    let mut tools = vec![
        tool("add_numbers", "Add two numbers.", &[("a", "number", "First summand"), ("b", "number", "Second summand")]),
        tool("current_time", "Tell the current time of a zone.", &[("timezone", "string", "IANA time zone name")]),
        tool(
            "convert_time",
            "Convert a time between zones.",
            &[
                ("time", "string", "24-hour time, HH:MM"),
                ("source_timezone", "string", "IANA time zone name"),
                ("target_timezone", "string", "IANA time zone name"),
            ],
        ),
    ];
    for (one, many, meaning, fields) in RESOURCES {
        let words = |name: &str| name.replace('_', " ");
        let id = ("id", "string", "Identifier, as the list gives it");
        let with_id: Vec<Field> = std::iter::once(id).chain(fields).collect();
        let required: Vec<&str> = fields[..2].iter().map(|(name, ..)| *name).collect();
        let filters = [
            ("query", "string", "Words that must occur"),
            ("limit", "integer", "How many at most, 20 if not given"),
            ("cursor", "string", "Where the last page ended"),
        ];
        tools.extend([
            function(&format!("list_{many}"), &format!("List {}: {meaning}.", words(many)), &filters, &[]),
            tool(&format!("get_{one}"), &format!("Get one {}: {meaning}.", words(one)), &[id]),
            function(&format!("create_{one}"), &format!("Create one {}: {meaning}.", words(one)), &fields, &required),
            function(&format!("update_{one}"), &format!("Change one {}: {meaning}.", words(one)), &with_id, &["id"]),
            tool(&format!("delete_{one}"), &format!("Delete one {}: {meaning}.", words(one)), &[id]),
        ]);
    }
    tools
}
