//! A query that asks for several things, split into them.
//!
//! Splitting what is one need costs little, because the parts share their context; but a sentence
//! that only sets the scene must not become a need of its own.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::LazyLock;

use super::words::fold;

/// More needs than this are too many for one list of tools; the last one keeps the rest.
const NEEDS_MAX: usize = 8;

/// The parts of a query that each ask for something, in order. Together they are the query.
pub(super) fn split(query: &str) -> Vec<Range<usize>> {
    let tokens = tokens(query);
    let mut needs = Vec::new();
    let mut start = 0;
    // What the need that is being read amounts to so far.
    let mut so_far = Tone::Context;
    for clause in clauses(&tokens) {
        let tone = clause_tone(clause);
        let separate = match (so_far, tone) {
            (Tone::Context, _) | (_, Tone::Context) => false,
            (Tone::Wish, Tone::Order) => is_connector(&clause[0].word),
            (Tone::Wish | Tone::Order, Tone::Wish | Tone::Order) => true,
        };
        if separate && needs.len() + 1 < NEEDS_MAX {
            needs.push(start..clause[0].start);
            start = clause[0].start;
            so_far = tone;
        }
        so_far = so_far.max(tone);
    }
    needs.push(start..query.len());
    needs
}

/// How a clause asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tone {
    /// Not at all: it says what the rest is about.
    Context,
    /// `I want …`: the order that comes next is probably about the same.
    Wish,
    Order,
}

#[derive(Debug)]
struct Token {
    word: String,
    start: usize,
    pause_before: TokenBreak,
}

/// What stands between a token and the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TokenBreak {
    None,
    Comma,
    Sentence,
}

fn tokens(query: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut pause_before = TokenBreak::Sentence;
    let mut start = None;
    let mut letters = query.char_indices().chain([(query.len(), '\n')]).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter.is_alphanumeric() || matches!(letter, '\'' | '\u{2019}') {
            start.get_or_insert(at);
            continue;
        }
        if let Some(start) = start.take() {
            let word = fold(&query[start..at]).replace('\u{2019}', "'");
            tokens.push(Token { word, start, pause_before });
            pause_before = TokenBreak::None;
        }
        let spaced = letters.peek().is_none_or(|(_, next)| next.is_whitespace());
        pause_before = pause_before.max(match letter {
            '.' | '!' | '?' | ':' if spaced => TokenBreak::Sentence,
            '\n' | ';' | '。' | '？' | '！' => TokenBreak::Sentence,
            ',' | '，' | '、' | '–' | '—' => TokenBreak::Comma,
            _ => TokenBreak::None,
        });
    }
    tokens
}

fn clauses(tokens: &[Token]) -> impl Iterator<Item = &[Token]> {
    let mut left = tokens;
    std::iter::from_fn(move || {
        let end = (1..left.len()).find(|at| begins_clause(left, *at)).unwrap_or(left.len());
        let (clause, rest) = left.split_at(end);
        left = rest;
        (!clause.is_empty()).then_some(clause)
    })
}

fn begins_clause(tokens: &[Token], at: usize) -> bool {
    let token = &tokens[at];
    match token.pause_before {
        TokenBreak::Sentence => return true,
        // `and then`: the clause began with the first of them.
        TokenBreak::None if is_connector(&tokens[at - 1].word) => return false,
        // `you can also …` goes on.
        TokenBreak::None if !is_connector(&token.word) || token.word == "also" => return false,
        TokenBreak::None | TokenBreak::Comma => {}
    }
    let adds = is_connector(&token.word) && !matches!(&*token.word, "and" | "or" | "then");
    let first = tokens[at..].iter().position(|token| !is_filler(&token.word));
    let asks = first.is_some_and(|first| tone(&tokens[at + first..]) > Tone::Context);
    asks || adds && token.pause_before == TokenBreak::Comma
}

fn clause_tone(clause: &[Token]) -> Tone {
    let Some(first) = clause.iter().position(|token| !is_filler(&token.word)) else {
        return Tone::Context;
    };
    let is_question = QUESTIONS.contains(&&*clause[first].word) && clause[0].pause_before == TokenBreak::Sentence;
    let asks_you = |pair: &[Token]| matches!(&*pair[0].word, "can" | "could" | "would") && pair[1].word == "you";
    if is_question || is_connector(&clause[0].word) || clause.windows(2).any(asks_you) {
        return Tone::Order;
    }
    tone(&clause[first..])
}

/// How the tokens begin to ask.
fn tone(tokens: &[Token]) -> Tone {
    let [first, next, ..] = tokens else {
        return Tone::Context;
    };
    if next.pause_before > TokenBreak::None {
        return Tone::Context;
    }
    match (&*first.word, &*next.word) {
        ("can" | "could" | "would" | "will", "you") | ("is" | "are", "there") => Tone::Order,
        ("i" | "we", "need" | "want" | "would" | "also" | "wish") | ("i'd" | "we'd", _) => Tone::Wish,
        // A verb without an object is a noun: `email, schedule and notes`.
        (verb, next) if VERB_SET.contains(verb) && !is_connector(next) => Tone::Order,
        _ => Tone::Context,
    }
}

fn is_connector(word: &str) -> bool {
    CONNECTORS.contains(&word)
}

/// Whether the word may stand before what is asked without being part of it.
fn is_filler(word: &str) -> bool {
    const FILLERS: [&str; 11] =
        ["please", "kindly", "just", "that", "this", "all", "to", "first", "second", "third", "it"];
    is_connector(word) || FILLERS.contains(&word)
}

#[rustfmt::skip]
const CONNECTORS: &[&str] = &[
    "and", "then", "also", "finally", "afterwards", "afterward", "next", "lastly", "additionally", "plus", "or",
    "after", "before", "moreover", "furthermore", "subsequently",
    // Spanish, French, German, Portuguese, Italian
    "y", "luego", "despues", "et", "puis", "ensuite", "und", "dann", "danach", "e", "depois", "poi",
];

const QUESTIONS: &[&str] =
    &["what", "what's", "whats", "who", "who's", "where", "where's", "when", "which", "how", "why"];

static VERB_SET: LazyLock<BTreeSet<&str>> = LazyLock::new(|| VERBS.iter().flat_map(|line| line.split(' ')).collect());

/// Verbs an order may begin with.
const VERBS: &[&str] = &[
    "add adjust alert analyse analyze announce append apply approve archive arrange ask assign attach block book",
    "browse build buy calculate call cancel capture change check choose classify clean clear click clone close collect",
    "combine commit compare compile compose compress compute configure connect convert copy count crawl create",
    "deactivate debug delete deploy describe design detect determine develop disable display divide download draft drag",
    "draw drop edit email enable encode encrypt estimate evaluate examine execute explain explore export extract fetch",
    "figure fill filter find fix forecast format forward generate get give go grab group highlight identify import",
    "inform insert inspect install invite join launch leave list listen load locate log look lookup",
    "mail make manage mark measure merge message modify monitor move multiply navigate notify obtain open",
    "optimize order organize outline parse pause pay perform pick plan play plot post predict prepare press print",
    "produce provide publish pull purchase push put query rank rate read recommend record reduce refresh register",
    "remember remind remove rename render rent reorder replace reply report request reschedule reserve reset resize",
    "resolve restart restore resume retrieve return review rewrite run save scan schedule scrape search select sell",
    "send set share show sign simulate sort speak split stage start stop store submit subscribe suggest sum summarise",
    "summarize switch synthesize tag take talk tell test text tidy toggle track transcribe transfer transform translate",
    "turn type unsubscribe update upgrade upload validate verify view visit visualize wait walk watch withdraw",
    "write zip",
    // Spanish, French, German, Portuguese, Italian
    "busca buscar encuentra envia enviar manda crea crear anade borra elimina muestra dame dime traduce lee abre guarda",
    "cherche chercher trouve trouver envoie envoyer cree creer ajoute supprime affiche montre donne traduis lis ouvre",
    "suche suchen finde sende senden schicke erstelle loesche losche zeige gib ubersetze lies offne speichere",
    "procura encontre envie mande crie adicione apague mostre traduza leia abra salve",
    "cerca trova invia manda crea aggiungi elimina mostra traduci leggi apri salva",
];
