//! What the language allows as a name, and how a tool's name becomes one.

/// Where a name will stand. A property may be any word; a global must leave the language and the
/// globals that programs rely on alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamePosition {
    Global,
    Property,
}

/// Words that cannot name a global function, and globals that generated code needs.
/// Sorted, for binary search.
#[rustfmt::skip]
const TAKEN_GLOBALS: &[&str] = &[
    "AbortController", "AbortSignal", "AggregateError", "Array", "ArrayBuffer", "Atomics", "BigInt",
    "BigInt64Array", "BigUint64Array", "Boolean", "DataView", "Date", "Error", "EvalError",
    "FinalizationRegistry", "Float32Array", "Float64Array", "Function", "Infinity", "Int16Array",
    "Int32Array", "Int8Array", "Intl", "Iterator", "JSON", "Map", "Math", "NaN", "Number", "Object",
    "Promise", "Proxy", "RangeError", "ReferenceError", "Reflect", "RegExp", "Set",
    "SharedArrayBuffer", "String", "Symbol", "SyntaxError", "TextDecoder", "TextEncoder",
    "ToolError", "TypeError", "URIError", "URL", "URLSearchParams", "Uint16Array", "Uint32Array",
    "Uint8Array", "Uint8ClampedArray", "WeakMap", "WeakRef", "WeakSet", "WebAssembly", "__proto__",
    "arguments", "async", "atob", "await", "break", "btoa", "case", "catch", "class",
    "clearInterval", "clearTimeout", "console", "const", "constructor", "continue", "crypto",
    "debugger", "decodeURI", "decodeURIComponent", "default", "delete", "do", "else",
    "encodeURI", "encodeURIComponent", "enum", "escape", "eval", "export", "extends", "false",
    "finally", "for", "function", "globalThis", "hasOwnProperty", "if", "implements", "import",
    "in", "instanceof", "interface", "isFinite", "isNaN", "isPrototypeOf", "let", "new",
    "null", "package", "parseFloat", "parseInt", "performance", "private", "propertyIsEnumerable",
    "protected", "public", "queueMicrotask", "return", "setInterval", "setTimeout",
    "static", "structuredClone", "super", "switch", "then", "this", "throw", "toLocaleString",
    "toString", "tools", "true", "try", "typeof", "undefined", "unescape", "valueOf", "var", "void",
    "while", "with", "yield",
];

/// Properties with a meaning of their own: an object with `then` is taken for a promise, the
/// others are asked of every object. Sorted, for binary search.
#[rustfmt::skip]
const TAKEN_PROPERTIES: &[&str] = &[
    "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "__proto__",
    "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "prototype", "then",
    "toJSON", "toLocaleString", "toString", "valueOf",
];

/// Whether a program may write this name as it stands.
pub(crate) fn is_free(name: &str, position: NamePosition) -> bool {
    is_identifier(name) && !is_taken(name, position)
}

pub(crate) fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(starts_identifier) && letters.all(continues_identifier)
}

/// The nearest name that is free: `my-tool.v2` becomes `my_tool_v2`, `delete` becomes `delete_`.
pub(crate) fn sanitised(name: &str, position: NamePosition) -> String {
    if !name.chars().any(continues_identifier) {
        return "tool".to_owned();
    }
    let mut identifier: String =
        name.chars().map(|letter| if continues_identifier(letter) { letter } else { '_' }).collect();
    prefix_if_needed(&mut identifier);
    if is_taken(&identifier, position) {
        identifier.push('_');
    }
    identifier
}

/// The camelCase form: `web_search` and `web-search` become `webSearch`. `None` if the name has none.
pub(crate) fn camel_case(name: &str) -> Option<String> {
    let shouted = !name.chars().any(char::is_lowercase);
    let mut identifier = String::with_capacity(name.len());
    let words = name.split(|letter: char| letter == '_' || !continues_identifier(letter));
    for word in words.filter(|word| !word.is_empty()) {
        let word = if shouted { word.to_lowercase() } else { word.to_owned() };
        if identifier.is_empty() {
            push_lower_first(&mut identifier, &word);
        } else {
            push_upper_first(&mut identifier, &word);
        }
    }
    prefix_if_needed(&mut identifier);
    is_identifier(&identifier).then_some(identifier)
}

/// `HTTPRequest` begins with the word `HTTP`, so it becomes `httpRequest`.
fn push_lower_first(identifier: &mut String, word: &str) {
    let capitals = word.chars().take_while(|letter| letter.is_uppercase()).count();
    let all = capitals == word.chars().count();
    let lowered = if all || capitals < 2 { capitals } else { capitals - 1 };
    for (index, letter) in word.chars().enumerate() {
        if index < lowered {
            identifier.extend(letter.to_lowercase());
        } else {
            identifier.push(letter);
        }
    }
}

fn push_upper_first(identifier: &mut String, word: &str) {
    let mut letters = word.chars();
    if let Some(first) = letters.next() {
        identifier.extend(first.to_uppercase());
        identifier.push_str(letters.as_str());
    }
}

fn prefix_if_needed(identifier: &mut String) {
    if identifier.chars().next().is_some_and(|first| !starts_identifier(first)) {
        identifier.insert(0, '_');
    }
}

fn is_taken(name: &str, position: NamePosition) -> bool {
    let taken = match position {
        NamePosition::Global => TAKEN_GLOBALS,
        NamePosition::Property => TAKEN_PROPERTIES,
    };
    taken.binary_search(&name).is_ok()
}

fn starts_identifier(letter: char) -> bool {
    letter == '$' || letter == '_' || unicode_ident::is_xid_start(letter)
}

fn continues_identifier(letter: char) -> bool {
    const ZERO_WIDTH_NON_JOINER: char = '\u{200c}';
    const ZERO_WIDTH_JOINER: char = '\u{200d}';
    letter == '$'
        || letter == ZERO_WIDTH_NON_JOINER
        || letter == ZERO_WIDTH_JOINER
        || unicode_ident::is_xid_continue(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_taken_names_are_sorted() {
        assert!(TAKEN_GLOBALS.is_sorted());
        assert!(TAKEN_PROPERTIES.is_sorted());
    }
}
