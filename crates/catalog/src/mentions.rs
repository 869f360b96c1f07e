//! Which functions a program mentions.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::ToolIndex;
use crate::function::Function;

/// Functions by the words that a program may mention them with. A program has few words, and a catalog may have thousands of
/// functions.
#[derive(Debug)]
pub(crate) struct Mentions {
    /// By whole names: a function's identifier, its aliases, and its exact name if that is a word.
    by_name: BTreeMap<Box<str>, Vec<ToolIndex>>,
    /// Functions whose exact names are more than a word, such as `get-weather`, by the first word.
    by_first_word: BTreeMap<Box<str>, Vec<ToolIndex>>,
    /// Functions whose exact names have no word in them.
    without_word: Vec<ToolIndex>,
    lengths: NameLengths,
}

/// The lengths of all names by their first byte, one bit each. They tell of most words of a program that they are no names.
#[derive(Debug)]
struct NameLengths([u64; 256]);

impl NameLengths {
    fn add(&mut self, name: &str) {
        self.0[first_byte(name)] |= length_bit(name);
    }

    fn may_have(&self, word: &str) -> bool {
        self.0[first_byte(word)] & length_bit(word) != 0
    }
}

fn first_byte(word: &str) -> usize {
    word.bytes().next().map_or(0, usize::from)
}

fn length_bit(word: &str) -> u64 {
    1 << word.len().min(63)
}

impl Mentions {
    pub(crate) fn new(functions: &[Function]) -> Mentions {
        let mut mentions = Mentions {
            by_name: BTreeMap::new(),
            by_first_word: BTreeMap::new(),
            without_word: Vec::new(),
            lengths: NameLengths([0; 256]),
        };
        for function in functions {
            let lengths = &mut mentions.lengths;
            let mut add = |map: &mut BTreeMap<Box<str>, Vec<ToolIndex>>, name: &str| {
                map.entry(name.into()).or_default().push(function.tool);
                lengths.add(name);
            };
            add(&mut mentions.by_name, &function.identifier);
            function.aliases.iter().for_each(|alias| add(&mut mentions.by_name, alias));
            let exact_name = function.exact_name.as_str();
            match words(exact_name).next() {
                Some(word) if word == exact_name => add(&mut mentions.by_name, word),
                Some(word) => add(&mut mentions.by_first_word, word),
                None => mentions.without_word.push(function.tool),
            }
        }
        mentions
    }

    /// Tools whose functions are mentioned in some code. `functions` are those that this was made from.
    pub(crate) fn in_code(&self, code: &str, functions: &[Function]) -> BTreeSet<ToolIndex> {
        let has_exact_name = |tool: &&ToolIndex| code.contains(&functions[tool.0 as usize].exact_name);
        let mut mentioned: BTreeSet<_> = self.without_word.iter().filter(has_exact_name).copied().collect();
        // Each word once, however often a program has it: all functions that begin with it are looked for.
        for word in words(code).filter(|word| self.lengths.may_have(word)).collect::<BTreeSet<_>>() {
            mentioned.extend(self.by_name.get(word).into_iter().flatten());
            mentioned.extend(self.by_first_word.get(word).into_iter().flatten().filter(has_exact_name));
        }
        mentioned
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter| !is_of_word(letter)).filter(|word| !word.is_empty())
}

fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter.is_alphanumeric() || matches!(letter, '_' | '$')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{Catalog, read_tools};

    #[test]
    fn functions_are_mentioned_by_any_of_their_names() {
        let names = ["get-weather", "send_mail", "2fa", "--", "-x-y", "größe messen", "mail"];
        let tools: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        let catalog = Catalog::new(read_tools(&json!(tools)).unwrap());
        let mentioned = |code: &str| catalog.mentioned_in(code).collect::<Vec<_>>();
        assert_eq!(mentioned("return 1"), [""; 0]);
        assert_eq!(mentioned("await send_mail(await get_weather({}))"), ["get-weather", "send_mail"]);
        assert_eq!(mentioned("await tools['get-weather']({}), tools.sendMail({})"), ["get-weather", "send_mail"]);
        assert_eq!(mentioned("get_weathers(); resend_mail(); mailbox - x"), [""; 0]);
        assert_eq!(mentioned("tools['--']; tools['-x-y']; tools[\"größe messen\"]"), ["--", "-x-y", "größe messen"]);
        assert_eq!(mentioned("tools['2fa']"), ["2fa"]);
    }

    #[test]
    fn names_may_be_long_and_many_and_begin_alike() {
        let long = "x".repeat(100);
        let names: Vec<String> = (0..2_000).map(|number| format!("a-{number}")).chain([long.clone()]).collect();
        let tools: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        let catalog = Catalog::new(read_tools(&json!(tools)).unwrap());
        let code = format!("{}'a-1999'; {long}()", "a ".repeat(10_000));
        // Going over all functions for every word would take minutes.
        assert_eq!(catalog.mentioned_in(&code).collect::<Vec<_>>(), ["a-1", "a-19", "a-199", "a-1999", long.as_str()]);
    }
}
