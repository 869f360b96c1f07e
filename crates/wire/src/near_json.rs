//! Reads the arguments of a call as models write them when they forget to escape.

use serde_json::Value;

/// Reads a text that is JSON but for line breaks and other control characters in its strings, backslashes that escape
/// nothing, and commas before a closing bracket.
pub(crate) fn parse(text: &str) -> Option<Value> {
    let mut repaired = String::with_capacity(text.len() + 64);
    let mut letters = text.chars().peekable();
    let mut is_in_string = false;
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                is_in_string = !is_in_string;
                repaired.push('"');
            }
            '\\' if is_in_string => match letters.next_if(|next| r#""\/bfnrtu"#.contains(*next)) {
                Some(escaped) => repaired.extend(['\\', escaped]),
                None => repaired.push_str("\\\\"),
            },
            control if is_in_string && control < ' ' => repaired.push_str(&escaped(control)),
            ',' if !is_in_string => {
                let mut rest = letters.clone().skip_while(|next| next.is_whitespace());
                if !matches!(rest.next(), Some('}' | ']')) {
                    repaired.push(',');
                }
            }
            other => repaired.push(other),
        }
    }
    serde_json::from_str(&repaired).ok()
}

fn escaped(control: char) -> String {
    let json = Value::from(control.to_string()).to_string();
    json[1..json.len() - 1].to_owned()
}

/// The code in `{"code": "…"}` whose quotes are not escaped, or not all of them: everything up to the last quote.
pub(crate) fn code(text: &str) -> Option<String> {
    let rest = text.trim().strip_prefix('{')?.trim_start();
    let rest = rest.strip_prefix("\"code\"")?.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let code = rest.strip_suffix('}')?.trim_end().trim_end_matches(',').trim_end().strip_suffix('"')?;
    let mut unescaped = String::with_capacity(code.len());
    let mut letters = code.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            unescaped.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => unescaped.push('\n'),
            Some('t') => unescaped.push('\t'),
            Some('r') => unescaped.push('\r'),
            Some(quoted @ ('"' | '\\' | '/')) => unescaped.push(quoted),
            Some(other) => unescaped.extend(['\\', other]),
            None => unescaped.push('\\'),
        }
    }
    Some(unescaped)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_models_forget_to_escape_is_read_as_it_was_meant() {
        let cases = [
            ("{\"code\": \"const a = 1;\n\treturn a;\"}", json!({"code": "const a = 1;\n\treturn a;"})),
            (r#"{"code": "return /\d+\.\d/.test('5.1')",}"#, json!({"code": r"return /\d+\.\d/.test('5.1')"})),
            (r#"{"code": "return 'it\'s'", "list": [1, 2,]}"#, json!({"code": r"return 'it\'s'", "list": [1, 2]})),
            (r#"{"code": "a\nb\"c, }"}"#, json!({"code": "a\nb\"c, }"})),
        ];
        for (text, meant) in cases {
            assert!(serde_json::from_str::<Value>(text).is_err() || text.contains("c, }"), "{text}");
            assert_eq!(parse(text), Some(meant), "{text}");
        }
        let unescaped = r#"{"code": "return await f({"a": "b"});\nreturn \"c\";"}"#;
        assert_eq!(parse(unescaped), None);
        assert_eq!(code(unescaped).as_deref(), Some("return await f({\"a\": \"b\"});\nreturn \"c\";"));
        for cut in [r#"{"code": "return await f("#, r#"{"code": "return 1""#, "{", "", r#"{"query": "x}"#] {
            assert_eq!((parse(cut), code(cut)), (None, None), "{cut}");
        }
    }
}
