//! A query that asks for several things, split into them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::LazyLock;

use super::words::fold;

/// More needs than this are too many for one list of tools; the last one keeps the rest.
pub(super) const NEEDS_MAX: usize = 8;

/// The parts of a query that each ask for something, in order. They cover the query.
pub(super) fn split(query: &str) -> Vec<Range<usize>> {
    let tokens = tokens(query);
    let mut clauses: Vec<Clause> = Vec::new();
    for at in 0..tokens.len() {
        let boundary = at == 0 || boundary_before(&tokens, at);
        match clauses.last_mut() {
            Some(clause) if !boundary => clause.tokens.end = at + 1,
            _ => clauses.push(Clause { tokens: at..at + 1 }),
        }
    }
    let mut needs: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    // What the need that is being read amounts to so far.
    let mut so_far = Tone::Context;
    for clause in &clauses {
        let tone = clause.tone(&tokens);
        let first = tokens[clause.tokens.start].range.start;
        let separate = match (so_far, tone) {
            (_, Tone::Context) | (Tone::Context, _) => false,
            (Tone::Wish, Tone::Order) => CONNECTORS.contains(&&*tokens[clause.tokens.start].word),
            (Tone::Wish | Tone::Order, Tone::Wish | Tone::Order) => true,
        };
        if separate && needs.len() + 1 < NEEDS_MAX {
            needs.push(start..first);
            start = first;
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
    /// `I want …`: the order that comes next may be about the same.
    Wish,
    Order,
}

#[derive(Debug)]
struct Token {
    word: String,
    range: Range<usize>,
    before: Pause,
}

/// What stands between a token and the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pause {
    None,
    Comma,
    Sentence,
}

fn tokens(query: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut pause = Pause::None;
    let mut start = None;
    for (at, letter) in query.char_indices().chain([(query.len(), '\n')]) {
        let inside = letter.is_alphanumeric() || matches!(letter, '\'' | '\u{2019}');
        if inside {
            start.get_or_insert(at);
            continue;
        }
        if let Some(start) = start.take() {
            let word = fold(&query[start..at]);
            tokens.push(Token { word, range: start..at, before: pause });
            pause = Pause::None;
        }
        let next = query[at..].chars().nth(1);
        let ends = next.is_none_or(char::is_whitespace);
        pause = pause.max(match letter {
            '.' | '!' | '?' | ':' if ends => Pause::Sentence,
            '\n' | ';' | '。' | '？' | '！' => Pause::Sentence,
            ',' | '，' | '、' | '—' | '–' => Pause::Comma,
            _ => Pause::None,
        });
    }
    tokens
}

fn boundary_before(tokens: &[Token], at: usize) -> bool {
    let token = &tokens[at];
    if token.before == Pause::Sentence {
        return true;
    }
    let joins = CONNECTORS.contains(&&*token.word);
    let previous_joins = CONNECTORS.contains(&&*tokens[at - 1].word);
    if previous_joins && token.before == Pause::None {
        return false;
    }
    let joins = joins && (token.word != "also" || token.before == Pause::Comma);
    if joins || token.before == Pause::Comma {
        let next = tokens[at..].iter().position(|token| !is_filler(&token.word)).map(|skipped| at + skipped);
        return next.is_some_and(|next| starts_request(tokens, next))
            || joins && token.word != "and" && token.word != "or" && token.word != "then" && token.before == Pause::Comma;
    }
    false
}

/// Whether an order or a wish begins here.
fn starts_request(tokens: &[Token], at: usize) -> bool {
    tone_at(tokens, at) > Tone::Context
}

fn tone_at(tokens: &[Token], at: usize) -> Tone {
    let word = &*tokens[at].word;
    let next = tokens.get(at + 1).filter(|next| next.before == Pause::None).map(|next| &*next.word);
    match (word, next) {
        ("can" | "could" | "would" | "will", Some("you")) | ("is" | "are", Some("there")) => Tone::Order,
        ("i" | "we", Some("need" | "want" | "would" | "also" | "wish")) | ("i'd" | "we'd", Some(_)) => Tone::Wish,
        (_, Some(next)) if VERB_SET.contains(word) && !CONNECTORS.contains(&next) => Tone::Order,
        _ => Tone::Context,
    }
}

struct Clause {
    tokens: Range<usize>,
}

impl Clause {
    fn tone(&self, tokens: &[Token]) -> Tone {
        let tokens = &tokens[self.tokens.clone()];
        let Some(first) = tokens.iter().position(|token| !is_filler(&token.word)) else {
            return Tone::Context;
        };
        let at_first = tone_at(tokens, first);
        let question = QUESTIONS.contains(&&*tokens[first].word) && tokens[0].before == Pause::Sentence;
        let connected = CONNECTORS.contains(&&*tokens[0].word);
        if question || connected {
            return Tone::Order;
        }
        let asks = tokens.windows(2).any(|pair| matches!((&*pair[0].word, &*pair[1].word), ("can" | "could" | "would", "you")));
        if asks { at_first.max(Tone::Order) } else { at_first }
    }
}

fn is_filler(word: &str) -> bool {
    CONNECTORS.contains(&word) || matches!(word, "please" | "kindly" | "just" | "that" | "this" | "all" | "to" | "first" | "second" | "third" | "try" | "it")
}

const CONNECTORS: &[&str] = &[
    "and", "then", "also", "finally", "afterwards", "afterward", "next", "lastly", "additionally", "plus", "or",
    "after", "before", "moreover", "furthermore", "subsequently", "y", "et", "und", "e", "luego", "ensuite", "dann", "puis", "danach",
];

const QUESTIONS: &[&str] = &["what", "what's", "whats", "who", "who's", "where", "where's", "when", "which", "how", "why"];

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
