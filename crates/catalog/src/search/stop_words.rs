//! Words that say little or nothing about which tool is meant.

use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Whether a word only holds a sentence together.
pub(super) fn is_stop_word(word: &str) -> bool {
    word.len() < 2 || STOP_SET.contains(word)
}

/// Whether a word belongs to how people ask rather than to what they ask for.
pub(super) fn is_request_word(word: &str) -> bool {
    REQUEST_SET.contains(word)
}

/// Whether a word is about most tools.
pub(super) fn is_generic_word(word: &str) -> bool {
    GENERIC_SET.contains(word)
}

static STOP_SET: LazyLock<BTreeSet<&str>> = LazyLock::new(|| words(STOP));
static REQUEST_SET: LazyLock<BTreeSet<&str>> = LazyLock::new(|| words(REQUEST));
static GENERIC_SET: LazyLock<BTreeSet<&str>> = LazyLock::new(|| words(GENERIC));

fn words(lines: &[&'static str]) -> BTreeSet<&'static str> {
    lines.iter().flat_map(|line| line.split(' ')).collect()
}

const STOP: &[&str] = &[
    // English
    "a about above after again against all also am an and any are aren as at be because been before being below",
    "between both but by can cannot could couldn did didn do does doesn doing don down during each either else etc",
    "ever every few for from further had hadn has hasn have haven having he her here hers herself him himself his how",
    "however i if in into is isn it its itself just least less let like ll many may maybe me might mine more most much",
    "must my myself neither no nor not of off oh ok okay on once one only onto or other others our ours ourselves out",
    "over own per perhaps please quite rather re same shall she should so some someone something such than thank",
    "thanks that the their theirs them themselves then there these they thing things this those though through till to",
    "too toward towards under until up upon us ve very via was we well were what whatever when where whether which",
    "while who whom whose why will with within without would yes yet you your yours yourself im ive hi hello hey",
    "dear sir everyone anyone anything everything somewhere anywhere really already still even since instead around",
    // Spanish, Portuguese, Italian
    "el la los las un una unos unas de del al en con por para que como cual cuales es esta este estos estas ese",
    "esa su sus mi mis tu tus nos lo le les se si pero mas muy hay ser fue puede puedes quiero necesito favor cuando",
    "donde sobre entre o um uma uns umas da das dos na em com por para seu sua meu minha voce eu ele ela nao",
    "sao qual quais quero preciso pode il lo gli uno di nel nella sul sulla con che chi sono mio mia tuo per una come",
    "vorrei puoi posso questo questa",
    // French
    "le la les un une des du de et ou dans sur avec pour par que qui quoi dont ce cet cette ces mon ma mes ton ta tes",
    "son sa ses nous vous ils elles je tu il elle on est sont etre avoir as ont pas ne plus tres svp veux voudrais",
    "peux pouvez quel quelle quels quelles comment quand moi",
    // German, Dutch
    "der die das den dem des ein eine einen einem einer und oder aber mit von vom zu zum zur im ins auf aus bei nach",
    "fur uber unter ist sind wird werden kann kannst konnen mochte ich du er sie es wir ihr mein meine dein deine",
    "mir mich dir dich uns nicht auch noch nur sehr wie wo wann wer bitte het een van voor met op te dat deze dit zijn",
    "ik je jij mijn naar wat hoe",
];

/// Polite frames, and words that fit any request.
const REQUEST: &[&str] = &[
    "help need want wish able assist assistance provide give tell know looking look make use using used",
    "recommend suggest suggestion recommendation interested explain understand learn",
    "specific certain particular various different best good great",
    "tool plugin app application service system possible way ways kind type types appreciate curious wondering",
    "wonder related based including include such well another first second next last",
    "would try trying go going come take put way lot really feel think thought mind seem sure right keep",
    "prefer require required requires specifically additionally comprehensive detailed ensure offer offers allow",
    "share access effectively efficiently quickly easily top popular important relevant several regarding concerning",
    "day days week month year people person work working",
];

/// Words that most tools could have.
const GENERIC: &[&str] = &[
    "find get show set list new current currently latest recent available today tomorrow tonight now time",
    "user users data name id item items information info detail details",
];
