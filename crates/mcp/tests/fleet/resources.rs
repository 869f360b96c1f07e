//! Resources, as functions beside tools.

use dacapo_mcp::FleetOptions;
use dacapo_replay::{Answer, JsonText};
use dacapo_runner::{Attachment, ToolHost, ToolOutput};
use serde_json::{Value, json};

use crate::{call, fake, ok, options, refused, start, tools};

#[tokio::test]
async fn a_server_with_resources_has_functions_for_them_and_its_own_tools_win() {
    for mode in ["resources", "modern resources"] {
        let fleet = start(json!({"a": fake(mode), "b": fake("legacy")}), options()).await;
        let names = tools(&fleet);
        // `listResources` is a tool, so there is no `list_resources`; the other server declares no resources.
        let of_resources: Vec<&String> = names.iter().filter(|name| name.contains("esource")).collect();
        assert_eq!(of_resources, ["a.listResources", "a.list_resource_templates", "a.read_resource"], "{mode}");
        assert_eq!(json!(fleet.annotations("a", "read_resource")), json!({"readOnlyHint": true}));
        assert_eq!(fleet.states()[0].tools, 2);
        assert!(fleet.definition("a", "read_resource").is_some() && fleet.definition("a", "list_resources").is_none());
        let answer = call(&fleet, "a", "listResources", json!({})).await;
        assert!(matches!(answer.unwrap().answer, Answer::Error { message, .. } if message == "no tool listResources"));
    }
}

#[tokio::test]
async fn text_is_read_as_text_and_handles_stand_for_the_rest() {
    for mode in ["resources", "modern resources"] {
        let fleet = start(json!({"a": fake(mode)}), options()).await;
        let read = async |uri: &str| call(&fleet, "a", "read_resource", json!({"uri": uri})).await;
        let text = json!({"contents": [{"uri": "a://text", "mimeType": "text/plain", "text": "hi"},
                                       {"uri": "a://more", "text": ""}]});
        assert_eq!(read("a://text").await, ok(&text), "{mode}");
        let image = json!({"type": "image", "uri": "a://image", "mimeType": "image/png", "data": "aGk="});
        let file = json!({"type": "resource",
                          "resource": {"uri": "a://file", "mimeType": "application/zip", "blob": "aGk="}});
        for (uri, kind, block) in [("a://image", "image", image), ("a://file", "resource", file)] {
            let handle = "attachment:k-1/0".to_owned();
            let kind_of_data = if kind == "image" { "image/png" } else { "application/zip" };
            let seen = json!({"contents": [{"type": kind, "uri": uri, "mimeType": kind_of_data, "handle": handle}]});
            let attachments = vec![Attachment { handle, block }];
            assert_eq!(read(uri).await, Ok(ToolOutput { answer: Answer::Ok(JsonText::from(&seen)), attachments }));
        }
        let data: Value = json!({"code": -32002, "data": null});
        let missing = Answer::Error { message: "no such resource".to_owned(), data: Some(JsonText::from(&data)) };
        assert_eq!(read("a://nowhere").await, Ok(ToolOutput { answer: missing, attachments: Vec::new() }));
        let odd = read("a://odd").await.unwrap_err().0;
        assert!(odd.starts_with("`a.read_resource` was answered with something that is no result"), "{odd}");
    }
}

#[tokio::test]
async fn a_list_without_end_is_given_in_parts_and_one_that_is_too_large_is_refused() {
    let options = FleetOptions { answer_bytes_max: 100_000, ..options() };
    let fleet = start(json!({"a": fake("resources")}), options).await;
    let mut args = json!({});
    for first in [0, 200] {
        let Answer::Ok(list) = call(&fleet, "a", "list_resource_templates", args).await.unwrap().answer else {
            panic!("a list")
        };
        let list: Value = serde_json::from_str(list.as_str()).unwrap();
        let templates = list["resourceTemplates"].as_array().unwrap();
        assert_eq!((templates.len(), &templates[0]["name"]), (200, &json!(first.to_string())));
        assert_eq!(list["nextCursor"], json!((first + 200).to_string()));
        args = json!({"cursor": list["nextCursor"]});
    }
    let reason = "`a.read_resource` was executed, but its answer was not taken: at most 100000 bytes are taken and it has 3000044 bytes; ask for less: a page, a filter, fewer fields";
    let large = call(&fleet, "a", "read_resource", json!({"uri": "a://large"})).await;
    assert_eq!(large, refused(reason));
}
