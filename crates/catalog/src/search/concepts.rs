//! Words that people use for the same thing, in this language or another.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::topics::TOPICS;
use super::translations::TRANSLATIONS;
use super::vocabulary::stem;

/// How two words are related. Where several relations apply, the first one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kinship {
    Synonym,
    /// They belong to the same topic.
    Related,
    /// They are verbs for similar actions.
    Action,
    Translation,
}

/// The words that belong to a stem, as stems.
pub(super) fn kin_of(stem: &str) -> impl Iterator<Item = (&'static str, Kinship)> {
    let kin = TABLE.numbers.get(stem).map_or(&[][..], |number| TABLE.kin(*number));
    kin.iter().map(|(_, kin, kinship)| (&*TABLE.stems[usize::from(*kin)], *kinship))
}

static TABLE: LazyLock<Table> = LazyLock::new(Table::read);

#[derive(Default)]
struct Table {
    stems: Vec<String>,
    numbers: BTreeMap<String, u16>,
    /// A stem, another that belongs to it, and how. Sorted.
    links: Vec<(u16, u16, Kinship)>,
}

impl Table {
    fn read() -> Table {
        let mut table = Table::default();
        for line in ACTIONS {
            let verbs = table.learn(line);
            table.link(&verbs, &verbs, Kinship::Action);
        }
        for line in TOPICS {
            let (same, near) = line.split_once('|').unwrap_or((line, ""));
            let (same, near) = (table.learn(same), table.learn(near));
            table.link(&same, &same, Kinship::Synonym);
            table.link(&same, &near, Kinship::Related);
            table.link(&near, &same, Kinship::Related);
        }
        for line in TRANSLATIONS {
            let (english, words) = line.split_once(':').expect("a line names what it translates");
            let (english, foreign) = (table.learn(english), table.learn(words));
            table.link(&foreign, &english, Kinship::Translation);
            let telling = words.split_whitespace().zip(&foreign).filter(|(word, _)| is_telling(word));
            let telling: Vec<u16> = telling.map(|(_, number)| *number).collect();
            table.link(&english, &telling, Kinship::Translation);
        }
        table.links.sort_unstable();
        table.links.dedup_by_key(|(stem, kin, _)| (*stem, *kin));
        table
    }

    fn learn(&mut self, words: &str) -> Vec<u16> {
        let mut numbers = Vec::new();
        for stem in words.split_whitespace().map(stem) {
            let next = self.stems.len() as u16;
            let number = *self.numbers.entry(stem).or_insert_with_key(|stem| {
                self.stems.push(stem.clone());
                next
            });
            numbers.push(number);
        }
        numbers
    }

    fn link(&mut self, stems: &[u16], others: &[u16], kinship: Kinship) {
        let links = stems.iter().flat_map(|stem| others.iter().map(move |other| (*stem, *other, kinship)));
        self.links.extend(links.filter(|(stem, other, _)| stem != other));
    }

    fn kin(&self, number: u16) -> &[(u16, u16, Kinship)] {
        let start = self.links.partition_point(|(stem, ..)| *stem < number);
        let length = self.links[start..].partition_point(|(stem, ..)| *stem == number);
        &self.links[start..start + length]
    }
}

/// Whether a foreign word cannot be taken for an English one or a name: then tools that have it are found in English too.
fn is_telling(word: &str) -> bool {
    const LETTERS_MIN: usize = 7;
    !word.is_ascii() || word.len() >= LETTERS_MIN
}

/// Verbs that ask for much the same, one kind per line.
const ACTIONS: &[&str] = &[
    "get fetch retrieve read show display view obtain load return see",
    "list browse enumerate show get",
    "find search query lookup locate discover explore seek look",
    "create add new make generate insert build compose produce",
    "write draft compose",
    "update edit modify change set alter adjust patch replace rename",
    "delete remove erase drop clear discard",
    "send post notify deliver message publish",
    "upload import attach",
    "download export save store",
    "start run execute launch invoke trigger begin open",
    "stop cancel end abort pause terminate close quit",
    "convert transform change turn translate",
    "calculate compute evaluate determine figure estimate count",
    "analyze examine inspect review assess evaluate investigate study",
    "schedule book reserve plan arrange",
    "buy purchase order shop",
    "check verify validate test confirm",
    "compare contrast difference",
    "recommend suggest advise recommendation suggestion",
    "summarize condense shorten summary digest",
    "join merge combine concatenate append",
    "connect link attach integrate",
    "move transfer copy",
    "track monitor watch follow",
    "share publish post",
    "improve optimize enhance boost",
    "learn study teach train",
    "fix repair debug solve",
    "deploy release ship host",
    "enable activate on",
    "disable deactivate off",
    "extract parse scrape pull",
    "select choose pick",
    "navigate visit open go browse",
    "log record track",
];
