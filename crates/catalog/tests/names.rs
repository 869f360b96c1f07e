//! How tools are called by programs.

use std::collections::BTreeSet;

use dacapo_catalog::{Catalog, Tool};
use proptest::prelude::*;
use serde_json::json;

fn tool(server: Option<&str>, name: &str) -> Tool {
    Tool {
        name: name.to_owned(),
        description: None,
        input_schema: json!({}).into(),
        output_schema: None,
        observed_answer: None,
        server: server.map(str::to_owned),
        effect: None,
    }
}

fn catalog(names: &[&str]) -> Catalog {
    Catalog::new(names.iter().map(|name| tool(None, name)).collect())
}

/// One line per tool: where it is found, and under which other names.
fn names(catalog: &Catalog) -> String {
    let lines = catalog.functions().iter().map(|function| {
        let name = catalog.qualified_name(function.tool);
        let mut places = vec![function.expression()];
        places.extend(function.aliases.iter().cloned());
        format!("{name} => {}", places.join(" or "))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_tool_is_a_function_under_its_own_name_where_the_language_allows_it() {
    let catalog = catalog(&[
        "webSearch",
        "web_search2",
        "my-tool.v2",
        "API-get-user",
        "HTTPRequest",
        "GET_URL",
        "3d_model",
        "delete",
        "Promise",
        "fetch",
        "run",
        "main",
        "__proto__",
        "then",
        "größe",
        "поиск_в_сети",
        "🔥",
        "🔥fire",
        "a b",
    ]);

    insta::assert_snapshot!(names(&catalog), @r"
    webSearch => webSearch
    web_search2 => web_search2 or webSearch2
    my-tool.v2 => my_tool_v2 or myToolV2
    API-get-user => API_get_user or apiGetUser
    HTTPRequest => HTTPRequest or httpRequest
    GET_URL => GET_URL or getUrl
    3d_model => _3d_model or _3dModel
    delete => delete_
    Promise => Promise_ or promise
    fetch => fetch
    run => run
    main => main
    __proto__ => __proto___ or proto
    then => then_
    größe => größe
    поиск_в_сети => поиск_в_сети or поискВСети
    🔥 => tool
    🔥fire => _fire or fire
    a b => a_b or aB
    ");
}

#[test]
fn tools_of_servers_live_in_namespaces() {
    let catalog = Catalog::new(vec![
        tool(None, "github"),
        tool(None, "git.log"),
        tool(Some("github"), "create_issue"),
        tool(Some("github"), "delete"),
        tool(Some("github"), "then"),
        tool(Some("github"), "__proto__"),
        tool(Some("my-server"), "create_issue"),
        tool(Some("console"), "log"),
        tool(Some("git"), "log"),
        tool(Some("git"), "log_2"),
    ]);

    insta::assert_snapshot!(names(&catalog), @r"
    github => github
    git.log => git_log or gitLog
    github.create_issue => github_2.create_issue or createIssue
    github.delete => github_2.delete
    github.then => github_2.then_
    github.__proto__ => github_2.__proto___ or proto
    my-server.create_issue => my_server.create_issue or createIssue
    console.log => console_.log
    git.log_3 => git.log
    git.log_2 => git.log_2 or log2
    ");
    for function in catalog.functions() {
        assert_eq!(catalog.find(catalog.qualified_name(function.tool)), Some(function.tool));
    }
    assert_eq!(catalog.find("create_issue"), None);
}

#[test]
fn tools_that_would_share_a_name_get_names_of_their_own() {
    let catalog = catalog(&["a-b", "a.b", "a_b", "a b_2", "get_user", "getUser", "x_y", "x-y", "p-q", "p.q"]);

    insta::assert_snapshot!(names(&catalog), @r"
    a-b => a_b_3
    a.b => a_b_4
    a_b => a_b or aB
    a b_2 => a_b_2 or aB2
    get_user => get_user
    getUser => getUser
    x_y => x_y or xY
    x-y => x_y_2
    p-q => p_q
    p.q => p_q_2
    ");
}

#[test]
fn a_look_alike_is_a_tool_of_its_own() {
    let composed = "caf\u{e9}";
    let decomposed = "cafe\u{301}";
    let catalog = catalog(&[composed, decomposed]);

    let identifiers: Vec<&str> = catalog.functions().iter().map(|function| function.identifier.as_str()).collect();
    assert_eq!(identifiers, [composed, decomposed]);
}

#[test]
fn ten_thousand_tools_of_one_name_and_very_long_names_are_no_burden() {
    let mut tools: Vec<Tool> = (0..10_000u32)
        .map(|number| {
            let style: String = (0..14).map(|bit| if number >> bit & 1 == 0 { '-' } else { '.' }).collect();
            tool(None, &format!("web{style}search"))
        })
        .collect();
    tools.push(tool(None, &"long-name".repeat(1_000)));
    let catalog = Catalog::new(tools);

    let identifiers: BTreeSet<&str> = catalog.functions().iter().map(|function| function.identifier.as_str()).collect();
    assert_eq!(identifiers.len(), 10_001);
    assert_eq!(catalog.closest("web______________serch", 1), ["web______________search"]);
}

#[test]
fn a_wrong_name_is_answered_with_the_closest_functions() {
    let catalog = Catalog::new(vec![
        tool(None, "webSearch"),
        tool(None, "send_mail"),
        tool(None, "read_file"),
        tool(None, "read_files"),
        tool(Some("github"), "create_issue"),
        tool(Some("github"), "search_code"),
    ]);
    let closest = |name: &str| catalog.closest(name, 3);

    assert_eq!(closest("websearch"), ["webSearch"]);
    assert_eq!(closest("searchWeb"), ["webSearch", "github.search_code"]);
    assert_eq!(closest("sendMial"), ["send_mail"]);
    assert_eq!(closest("readFile"), ["read_file", "read_files"]);
    assert_eq!(closest("createIssue"), ["github.create_issue"]);
    assert_eq!(closest("github.createIsue"), ["github.create_issue"]);
    assert_eq!(closest("search"), ["webSearch", "github.search_code"]);
    assert_eq!(closest("frobnicate"), [""; 0]);
    assert_eq!(closest(""), [""; 0]);
}

/// Written apart from the crate's own rule, from the grammar of the language.
fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    letters
        .next()
        .is_some_and(|first| first.is_alphabetic() || "$_".contains(first) || unicode_ident::is_xid_start(first))
        && letters.all(|letter| "$\u{200c}\u{200d}".contains(letter) || unicode_ident::is_xid_continue(letter))
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ab_.-]{1,4}",
        "[a-zA-Z0-9_-]{1,12}",
        "\\PC{1,6}",
        prop::sample::select(vec![
            "then",
            "delete",
            "eval",
            "__proto__",
            "a_2",
            "tool",
            "tool_2",
            "await",
            "constructor"
        ])
        .prop_map(str::to_owned),
    ]
}

proptest! {
    #[test]
    fn any_names_become_valid_distinct_names_whatever_their_order(
        wanted in prop::collection::btree_set((prop::option::of("[st.-]{1,2}"), any_name()), 0..24),
        turn in 0..24usize,
    ) {
        let tools: Vec<Tool> = wanted.iter().map(|(server, name)| tool(server.as_deref(), name)).collect();
        let mut turned = tools.clone();
        turned.reverse();
        turned.rotate_left(turn.min(tools.len()));
        let catalog = Catalog::new(tools);

        let mut seen = BTreeSet::new();
        let mut namespaces = BTreeSet::new();
        for function in catalog.functions() {
            for name in function.aliases.iter().chain([&function.identifier]) {
                prop_assert!(is_identifier(name), "{name:?}");
                prop_assert!(seen.insert((&function.namespace, name)), "{name:?} twice");
            }
            namespaces.extend(&function.namespace);
        }
        for namespace in namespaces {
            prop_assert!(is_identifier(namespace));
            prop_assert!(!seen.contains(&(&None, namespace)), "{namespace:?} is also a tool");
        }
        let sorted = |catalog: &Catalog| -> BTreeSet<String> { names(catalog).lines().map(str::to_owned).collect() };
        prop_assert_eq!(sorted(&catalog), sorted(&Catalog::new(turned)));
    }
}
