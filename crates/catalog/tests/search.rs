//! What a search finds, and what it answers if it finds nothing.

use dacapo_catalog::{Likeness, Match, SearchIndex, SearchResults, Tool, ToolField, ToolIndex};
use proptest::prelude::*;
use serde_json::{Value, json};

fn tool(name: &str, description: &str) -> Tool {
    Tool {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        input_schema: json!({"type": "object"}).into(),
        output_schema: None,
        observed_answer: None,
        server: None,
        effect: None,
    }
}

/// A small office: mail, files, weather, calendar, shop.
fn office() -> Vec<Tool> {
    let city = json!({"type": "object", "properties": {"city": {"type": "string", "description": "Where to look"}}});
    vec![
        Tool { input_schema: city.into(), ..tool("get_current_weather", "Tells how it is outside at the moment.") },
        tool("send_email", "Delivers an email to its recipients."),
        tool("listFiles", "Lists the files of a directory."),
        tool("delete_file", "Removes a file for good."),
        tool("create-calendar-event", "Puts a meeting into the calendar."),
        tool("calendar.find_free_time", "Finds a time when everybody is free."),
        tool("convert_currency", "Converts an amount of money from one currency to another."),
        tool("search_products", "Finds products in the shop by name and price."),
        tool("translate_text", "Translates a text into another language."),
        tool("play_song", "Plays a song or an album."),
        Tool { server: Some("github".to_owned()), ..tool("create_issue", "Opens a new issue in a repository.") },
        Tool { server: Some("jira".to_owned()), ..tool("create_issue", "Opens a new issue in a project.") },
    ]
}

fn search(tools: &[Tool], query: &str, limit: usize) -> SearchResults {
    SearchIndex::new(tools).search(query, limit)
}

fn names<'a>(tools: &'a [Tool], results: &SearchResults) -> Vec<&'a str> {
    results.hits.iter().map(|hit| &*tools[hit.tool.0 as usize].name).collect()
}

#[track_caller]
fn assert_first(query: &str, name: &str) {
    let tools = office();
    let results = search(&tools, query, 3);
    assert_eq!(names(&tools, &results).first(), Some(&name), "{query}: {results:#?}");
}

#[test]
fn words_are_found_inside_identifiers_and_whatever_their_endings() {
    assert_first("listing a file", "listFiles");
    assert_first("calendars: creating events", "create-calendar-event");
    assert_first("currencies", "convert_currency");
}

#[test]
fn parameters_and_answers_are_searched_too() {
    assert_first("city", "get_current_weather");

    let mut tools = office();
    let humidity = json!({"type": "object", "properties": {"humidity": {"type": "number"}}});
    tools[0].output_schema = Some(humidity.into());
    assert_eq!(names(&tools, &search(&tools, "humidity", 1)), ["get_current_weather"]);
}

#[test]
fn other_words_for_the_same_thing_are_found() {
    assert_first("remove a document", "delete_file");
    assert_first("forecast", "get_current_weather");
    assert_first("exchange rate dollars", "convert_currency");
    assert_first("music", "play_song");
}

#[test]
fn a_typo_is_forgiven() {
    assert_first("wether", "get_current_weather");
    assert_first("send an emial", "send_email");
    assert_first("tranlsate", "translate_text");
    assert_first("calender-ish", "create-calendar-event");
}

#[test]
fn a_word_that_is_written_together_is_taken_apart() {
    assert_first("playsong", "play_song");
}

#[test]
fn a_server_tells_tools_of_one_name_apart() {
    let tools = office();
    let servers = |query: &str| -> Vec<Option<String>> {
        search(&tools, query, 2).hits.iter().map(|hit| tools[hit.tool.0 as usize].server.clone()).collect()
    };

    assert_eq!(servers("create an issue on github"), [Some("github".to_owned()), Some("jira".to_owned())]);
    assert_eq!(servers("create an issue in jira"), [Some("jira".to_owned()), Some("github".to_owned())]);
}

#[test]
fn every_need_of_a_task_gets_its_best_tool_first() {
    let tools = office();
    let results = search(&tools, "find the weather in Paris and send it by email", 2);
    assert_eq!(results.needs, ["find the weather in Paris", "and send it by email"]);
    let mut found = names(&tools, &results);
    found.sort_unstable();
    assert_eq!(found, ["get_current_weather", "send_email"]);

    let task = "Delete the old report. Then convert 50 dollars to euros, play a song; could you also create an event?";
    let results = search(&tools, task, 4);
    assert_eq!(results.needs.len(), 4, "{:?}", results.needs);
    let mut found = names(&tools, &results);
    found.sort_unstable();
    assert_eq!(found, ["convert_currency", "create-calendar-event", "delete_file", "play_song"]);
}

#[test]
fn a_scene_is_not_a_need() {
    let queries = [
        "I am on holiday in Rome. Can you tell me the weather?",
        "I want to know what to wear. Tell me the weather in Rome, Paris and London.",
        "songs, albums and playlists",
    ];
    for query in queries {
        assert_eq!(search(&office(), query, 3).needs, [query]);
    }
}

#[test]
fn other_languages_are_understood_where_they_name_what_tools_do() {
    assert_first("¿qué clima hace?", "get_current_weather");
    assert_first("supprimer un fichier", "delete_file");
    assert_first("Übersetze das", "translate_text");
    assert_first("今天的天气", "get_current_weather");
    assert_first("이메일을 보내줘", "send_email");
}

#[test]
fn a_catalogue_may_speak_any_language() {
    let tools =
        [tool("天気予報", "都市の天気を調べる"), tool("отправить_письмо", "Отправляет письмо"), tool("été", "L'été")];
    for (query, name) in [("東京の天気", "天気予報"), ("письмо", "отправить_письмо"), ("ETE", "été")]
    {
        assert_eq!(names(&tools, &search(&tools, query, 1)), [name]);
    }
}

#[test]
fn tools_that_are_described_in_chinese_are_found_in_english_and_the_other_way_round() {
    let described = [
        ("weather forecast for a city", "查询指定城市的天气预报"),
        ("coordinates of an address", "根据地址获取经纬度坐标"),
        ("send an email", "发送邮件给收件人"),
        ("trains between two stations", "查询两个车站之间的列车"),
        ("find news articles", "搜索新闻文章"),
        ("translate a text", "将文本翻译成指定语言"),
        ("driving distance", "计算两点之间的驾车距离"),
        ("delete a file", "删除文件夹中的文件"),
    ];
    let name = |at: usize| format!("tool{at}");
    let in_chinese: Vec<Tool> = described.iter().enumerate().map(|(at, (_, text))| tool(&name(at), text)).collect();
    let in_english: Vec<Tool> = described.iter().enumerate().map(|(at, (text, _))| tool(&name(at), text)).collect();
    for (at, (english, chinese)) in described.iter().enumerate() {
        assert_eq!(names(&in_chinese, &search(&in_chinese, english, 1)), [name(at)], "{english}");
        assert_eq!(names(&in_english, &search(&in_english, chinese, 1)), [name(at)], "{chinese}");
    }
}

#[test]
fn a_blank_query_lists_the_tools_by_name() {
    let tools = office();
    for query in ["", " \n"] {
        let results = search(&tools, query, 3);
        assert_eq!(names(&tools, &results), ["calendar.find_free_time", "convert_currency", "create-calendar-event"]);
        assert_eq!(results.total_matches, tools.len());
        assert_eq!(results.suggestions, [""; 0]);
    }
}

#[test]
fn a_query_of_stop_words_finds_tools_named_by_them() {
    let tools = [tool("now", "Tells the time"), tool("what_is_it", "Explains an object")];
    assert_eq!(names(&tools, &search(&tools, "what is it?", 5)), ["what_is_it"]);
}

#[test]
fn nothing_found_suggests_the_nearest_words() {
    let results = search(&office(), "directorium", 5);
    assert_eq!(names(&office(), &results), [""; 0]);
    assert_eq!(results.suggestions.first().map(String::as_str), Some("directory"));
    assert_eq!(results.suggestions.len(), 5);

    let results = search(&office(), "zzzz", 5);
    assert_eq!(results.suggestions, ["create", "calendar", "file", "issue", "convert"]);
}

#[test]
fn an_empty_catalogue_finds_and_suggests_nothing() {
    let results = search(&[], "weather", 5);
    let nothing = SearchResults {
        needs: vec!["weather".to_owned()],
        hits: Vec::new(),
        more: Vec::new(),
        unmet: vec![0],
        total_matches: 0,
        suggestions: Vec::new(),
    };
    assert_eq!(results, nothing);
}

#[test]
fn a_limit_is_kept_and_the_rest_is_counted() {
    let tools = office();
    let index = SearchIndex::new(&tools);
    let all = index.search("create or delete a file, event or issue", usize::MAX);
    assert_eq!(all.hits.len(), all.total_matches);
    for limit in 0..=all.total_matches {
        let some = index.search("create or delete a file, event or issue", limit);
        assert_eq!(some.hits, all.hits[..limit]);
        assert_eq!((some.total_matches, some.suggestions.len()), (all.total_matches, 0));
    }
}

#[test]
fn a_huge_query_is_read_as_far_as_it_goes() {
    let tools = office();
    let mut query = "the weather please, ".repeat(60_000);
    query.push_str("song");
    assert!(query.len() > 1_000_000);
    assert_eq!(names(&tools, &search(&tools, &query, 1)), ["get_current_weather"]);

    let long_word = "weather".repeat(200_000);
    assert_eq!(search(&tools, &long_word, 5).hits, []);

    let many_words = (0..200_000).map(|number| format!("w{number}x")).collect::<Vec<_>>().join(" ");
    assert_eq!(search(&tools, &many_words, 5).hits, []);
}

#[test]
fn a_schema_of_any_depth_is_read_as_far_as_it_goes() {
    let mut deep = json!({"description": "bottom"});
    for _ in 0..500 {
        deep = json!({"properties": {"level": deep}});
    }
    let wide: Value =
        (0..5_000).map(|number| (format!("p{number}x"), json!({}))).collect::<serde_json::Map<_, _>>().into();
    let tools = [
        Tool { input_schema: deep.into(), ..tool("deep", "Digs") },
        Tool { input_schema: json!({"properties": wide}).into(), ..tool("wide", "Spreads") },
        Tool {
            input_schema: json!(true).into(),
            output_schema: Some(json!(false).into()),
            ..tool("any", "Takes anything")
        },
    ];
    assert_eq!(names(&tools, &search(&tools, "level", 5)), ["deep"]);
    assert_eq!(names(&tools, &search(&tools, "p7x", 5)), ["wide"]);
}

#[test]
fn the_order_of_the_tools_does_not_matter() {
    let tools = office();
    let mut reversed = office();
    reversed.reverse();
    for query in ["create issue", "find a file", "tiem", "song and weather", "play something and delete the file"] {
        let (one, other) = (search(&tools, query, 20), search(&reversed, query, 20));
        let last = tools.len() as u32 - 1;
        let hits = other.hits.into_iter().map(|mut hit| {
            hit.tool = ToolIndex(last - hit.tool.0);
            hit
        });
        assert_eq!(one.hits, hits.collect::<Vec<_>>(), "{query}");
    }
}

#[test]
fn an_explanation_adds_up_to_the_score() {
    let tools = office();
    let index = SearchIndex::new(&tools);
    for query in ["remove the fil and email my calender", "currency", "create new issue on github in Paris"] {
        for hit in index.search(query, 20).hits {
            assert!((hit.explanation.score() - hit.score).abs() < 1e-9, "{query}: {hit:#?}");
            assert!(!hit.explanation.matches.is_empty());
        }
    }
}

#[test]
fn an_explanation_says_which_word_was_found_where_and_why() {
    let tools = office();
    let results = search(&tools, "remove a fiel", 1);
    let found: Vec<_> = results.hits[0].explanation.matches.iter().collect();
    let told: Vec<_> = found.iter().map(|found| (&*found.query_word, &*found.tool_word, found.likeness)).collect();
    assert_eq!(told, [("remove", "removes", Likeness::Same), ("fiel", "file", Likeness::Typo)]);
    let fields = |found: &Match| -> Vec<ToolField> { found.fields.iter().map(|(field, _)| *field).collect() };
    assert_eq!(fields(found[0]), [ToolField::Description]);
    assert_eq!(fields(found[1]), [ToolField::Name, ToolField::Description]);
}

#[test]
fn an_index_can_be_shared_between_threads() {
    fn is_shared<T: Send + Sync>(_: &T) {}
    is_shared(&SearchIndex::new(&office()));
}

fn any_tool() -> impl Strategy<Value = Tool> {
    let text = prop_oneof!["[a-z_]{1,12}", "\\PC{0,20}", "(get|send|list)(Weather|Mail|_file){1,2}[0-9]?"];
    let server = prop::option::of("[a-z]{1,3}");
    (text.clone(), prop::option::of(text.clone()), text, server).prop_map(|(name, description, parameter, server)| {
        Tool {
            name,
            description,
            input_schema: json!({"properties": {parameter.clone(): {"description": parameter}}}).into(),
            output_schema: None,
            observed_answer: None,
            server,
            effect: None,
        }
    })
}

proptest! {
    /// Whatever is asked of whatever catalogue, each tool is found once at most, within the limit, for a reason.
    #[test]
    fn any_query_of_any_catalogue_is_answered(
        tools in prop::collection::vec(any_tool(), 0..30),
        query in prop_oneof!["\\PC{0,80}", "((get|then|and|mail|weather|I want|[a-z]{1,9})[ ,.;?]{1,2}){0,12}", any::<String>()],
        limit in prop_oneof![0_usize..40, Just(usize::MAX)],
    ) {
        let index = SearchIndex::new(&tools);
        let results = index.search(query.as_str(), limit);
        prop_assert!(results.hits.len() <= limit);
        prop_assert!(results.hits.len() <= results.total_matches);
        prop_assert!(results.suggestions.is_empty() || results.total_matches == 0);
        let mut found: Vec<ToolIndex> = results.hits.iter().map(|hit| hit.tool).collect();
        found.sort_unstable();
        found.dedup();
        prop_assert_eq!(found.len(), results.hits.len());
        for hit in &results.hits {
            prop_assert!(hit.need < results.needs.len());
            prop_assert!((hit.explanation.score() - hit.score).abs() < 1e-9);
        }
        prop_assert_eq!(results, index.search(query.as_str(), limit));
    }
}
