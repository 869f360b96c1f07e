//! What the engine's messages leave out: the name of what was not there, and what was probably meant.

use dacapo_script::{SourcePosition, called_at, names_at, object_at};

/// Methods that programs call on what they take for a list.
const OF_LISTS: [&str; 14] = [
    "at", "every", "filter", "find", "flatMap", "forEach", "includes", "join", "map", "push", "reduce", "slice",
    "some", "sort",
];

/// What other systems put around the answers of tools.
const WRAPPERS: [&str; 7] = ["body", "content", "data", "output", "response", "result", "structuredContent"];

/// A message of the engine with the name of what it is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Explained {
    pub message: String,
    pub hint: Option<String>,
}

impl Explained {
    /// `at` is where the error was thrown in the source.
    pub(crate) fn of(message: String, source: &str, at: Option<SourcePosition>) -> Explained {
        let Some(at) = at else { return Explained { message, hint: None } };
        if message == "not a function" {
            return Explained::not_a_function(called_at(source, at));
        }
        if message == "value is not iterable" {
            return Explained::not_iterable(message, names_at(source, at));
        }
        let read = message.strip_prefix("cannot read property '").and_then(|rest| rest.split_once("' of "));
        if let Some((property, nothing @ ("undefined" | "null"))) = read {
            return Explained::nothing_read(&message, object_at(source, at, property), nothing);
        }
        Explained { message, hint: None }
    }

    fn not_a_function(called: Option<&str>) -> Explained {
        let Some(called) = called else { return Explained { message: "not a function".to_owned(), hint: None } };
        let hint = called
            .rsplit_once('.')
            .filter(|(_, method)| OF_LISTS.contains(method))
            .map(|(object, _)| no_list(object.trim_end_matches(['?', '!'])));
        Explained { message: format!("`{called}` is not a function"), hint }
    }

    fn not_iterable(message: String, value: Option<&str>) -> Explained {
        match value {
            Some(value) => Explained { message: format!("`{value}` is not iterable"), hint: Some(no_list(value)) },
            None => Explained { message, hint: None },
        }
    }

    fn nothing_read(message: &str, object: Option<&str>, nothing: &str) -> Explained {
        let Some(object) = object else { return Explained { message: message.to_owned(), hint: None } };
        let hint =
            object.rsplit_once('.').filter(|(_, wrapper)| WRAPPERS.contains(wrapper)).map(|(answer, wrapper)| {
                let answer = answer.trim_end_matches(['?', '!']);
                format!(
                    "`{answer}` has no `{wrapper}`; the answer of a tool is the value itself, with nothing around it"
                )
            });
        Explained { message: format!("{message}: `{object}` is {nothing}"), hint }
    }
}

fn no_list(value: &str) -> String {
    format!("`{value}` is no list; look at what it holds, for example with `return {value}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(message: &str, source: &str, column: u32) -> (String, Option<String>) {
        let Explained { message, hint } =
            Explained::of(message.into(), source, Some(SourcePosition { line: 1, column }));
        (message, hint)
    }

    #[test]
    fn the_engine_says_what_and_the_source_says_which() {
        let (message, hint) = explained("not a function", "orders.map(f)", 1);
        assert_eq!(message, "`orders.map` is not a function");
        assert_eq!(
            hint.as_deref(),
            Some("`orders` is no list; look at what it holds, for example with `return orders`")
        );
        assert_eq!(explained("not a function", "orders.sum()", 1), ("`orders.sum` is not a function".into(), None));
        // Which of the two it is, is not known.
        assert_eq!(explained("not a function", "a.map(f).sum()", 1), ("not a function".into(), None));
        let (message, hint) = explained("value is not iterable", "for (const one of page.orders) f(one)", 19);
        assert_eq!(message, "`page.orders` is not iterable");
        assert!(hint.is_some_and(|hint| hint.starts_with("`page.orders` is no list")));
        assert_eq!(explained("value is not iterable", "[...f(x)]", 5), ("value is not iterable".into(), None));
        let (message, hint) = explained("cannot read property 'length' of undefined", "page.data.length", 1);
        assert_eq!(message, "cannot read property 'length' of undefined: `page.data` is undefined");
        assert_eq!(
            hint.as_deref(),
            Some("`page` has no `data`; the answer of a tool is the value itself, with nothing around it")
        );
        let (message, hint) = explained("cannot read property 'b' of null", "x.a?.b.c", 1);
        assert_eq!((message.as_str(), hint), ("cannot read property 'b' of null: `x.a` is null", None));
    }
}
