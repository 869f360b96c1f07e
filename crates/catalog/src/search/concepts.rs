//! Words that people use for the same thing.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::vocabulary::stem;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kinship {
    /// One may stand for the other.
    Synonym,
    /// One makes think of the other.
    Related,
    Verb,
    Distant,
}

static TABLE: LazyLock<BTreeMap<String, Vec<(String, Kinship)>>> = LazyLock::new(|| {
    let mut table: BTreeMap<String, Vec<(String, Kinship)>> = BTreeMap::new();
    let mut link = |a: &str, b: &str, kinship| {
        if a != b {
            table.entry(a.to_owned()).or_default().push((b.to_owned(), kinship));
        }
    };
    for line in VERBS {
        let words: Vec<String> = line.split_whitespace().map(stem).collect();
        for a in &words {
            for b in &words {
                link(a, b, Kinship::Verb);
            }
        }
    }
    for line in CONCEPTS {
        let (same, near) = line.split_once('|').unwrap_or((line, ""));
        let same: Vec<String> = same.split_whitespace().map(stem).collect();
        let near: Vec<String> = near.split_whitespace().map(stem).collect();
        for a in &near {
            for b in &near {
                link(a, b, Kinship::Distant);
            }
        }
        for a in &same {
            for b in &same {
                link(a, b, Kinship::Synonym);
            }
            for b in &near {
                link(a, b, Kinship::Related);
                link(b, a, Kinship::Related);
            }
        }
    }
    for kin in table.values_mut() {
        kin.sort();
        kin.dedup_by(|a, b| a.0 == b.0);
    }
    table
});

/// The kin of a stem, as stems.
pub(super) fn kin_of(stem: &str) -> &'static [(String, Kinship)] {
    TABLE.get(stem).map_or(&[], Vec::as_slice)
}

const VERBS: &[&str] = &[
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

/// One idea per line: words that may stand for each other, then words that make think of them.
const CONCEPTS: &[&str] = &[
    // Weather, earth and sky
    "weather forecast meteorology climate | temperature rain snow wind humidity sunny umbrella storm celsius fahrenheit",
    "pollution smog | air quality emission carbon",
    "surf wave beach | ocean swell tide",
    "earthquake disaster | flood hurricane emergency",
    "space astronomy star planet | nasa galaxy telescope universe constellation cosmic",
    "plant garden | flower gardening houseplant botany leaf indoor watering",
    "animal pet | dog cat puppy kitten breed veterinary",
    // Travel and places
    "travel trip journey vacation holiday tour itinerary getaway | destination sightseeing tourist flight hotel abroad visit",
    "flight airline airplane plane airfare | airport fly travel ticket",
    "hotel accommodation lodging hostel motel inn stay | room booking reservation travel",
    "train railway subway metro transit rail | station commute bus line",
    "bus coach | transit route station",
    "taxi cab ride uber lyft | driver pickup car",
    "map location place coordinates geography | latitude longitude address direction nearby distance geocode city",
    "direction route navigation | driving map distance road",
    "restaurant dining eatery diner | food cuisine meal table eat dinner lunch brunch menu reservation",
    "attraction landmark sightseeing museum | tourist visit",
    "park theme | ride disney amusement",
    "parking carpark | car lot",
    "car vehicle automobile auto truck suv | drive dealer driving motor rental",
    "petrol gas fuel gasoline diesel | price station car",
    "ev electric charger charging | vehicle station car tesla",
    "house home property apartment flat condo estate residence realty | rent rental buy bedroom tenant mortgage housing neighborhood suburb",
    "rent rental lease | apartment tenant house",
    "event concert show festival gig | ticket performance theater venue music",
    "ticket pass | event seat concert",
    // Food
    "recipe cooking cook cookbook cuisine | ingredient dish meal food kitchen bake dinner",
    "food meal dish cuisine | eat nutrition hungry dinner lunch breakfast snack",
    "drink beverage cocktail | wine beer sake coffee tea alcohol bar",
    "wine beer sake | drink brewery alcohol",
    "nutrition diet calorie | food health protein meal vegan",
    "grocery supermarket | food shopping store",
    // Money
    "stock share equity ticker | market investment portfolio trading nasdaq finance",
    "finance financial money | stock investment market bank budget economy company earnings",
    "invest investment portfolio fund asset | stock finance wealth retirement etf bond return",
    "crypto cryptocurrency bitcoin blockchain | coin token ethereum nft wallet exchange defi",
    "currency exchange forex | dollar euro convert rate usd eur gbp yen",
    "price cost pricing fee | cheap expensive afford value rate quote",
    "deal discount coupon promo bargain voucher | cheap save offer sale price cashback",
    "payment pay transaction checkout | money card bank transfer invoice",
    "bank account | transaction balance money statement",
    "tax taxation | income irs deduction",
    "loan mortgage credit debt | bank interest borrow",
    "insurance coverage | policy claim quote",
    "budget expense spending | money finance cost",
    "invoice bill receipt | payment",
    "donate donation charity | nonprofit gift",
    // Shopping
    "shop shopping store product buy purchase ecommerce retail merchandise | price item brand gift order",
    "product item goods | buy shopping catalog price",
    "gift present | birthday idea shopping",
    "fashion clothing clothes outfit apparel style wardrobe | shirt shoe wear dress sneaker",
    "beauty cosmetics makeup skincare | hair lipstick",
    "furniture decor interior | room design home",
    "order delivery shipping shipment package parcel | track courier purchase",
    "inventory warehouse stock | item product supply",
    "auction bid | sell",
    // Health and sport
    "health medical medicine healthcare | doctor disease symptom patient hospital treatment wellness drug clinical",
    "doctor physician dentist therapist | appointment health hospital clinic",
    "drug medication medicine pharmacy | prescription dose",
    "clinical trial | patient disease treatment study cancer",
    "mental therapy stress anxiety depression | wellness mood emotion counseling feeling",
    "fitness workout exercise gym training | muscle health weight yoga body",
    "habit routine goal | daily track productivity motivation",
    "sport sports game match | team league player score football basketball soccer nba nfl",
    "football soccer | league team match premier player goal",
    "basketball nba | team game player",
    "score result standings | match game team",
    "meditation mindfulness | calm relax stress",
    // Media and play
    "movie film cinema | actor director watch genre theater showtime netflix hollywood",
    "tv television show series episode | watch stream movie netflix anime",
    "music song track tune melody | artist album band playlist spotify lyrics listen singer sing genre",
    "chord guitar piano instrument | music finger",
    "audio sound | music speech voice listen recording",
    "podcast episode | listen audio",
    "video clip youtube | watch footage film stream transcript",
    "book novel reading literature | author read library story",
    "story tale fiction narrative | write character bedtime children plot",
    "poem poetry | verse rhyme write",
    "joke humor funny comedy | laugh fun meme",
    "quote quotation saying | inspiration famous",
    "gif meme sticker animation | funny image reaction",
    "game gaming play | player puzzle fun video level entertainment",
    "chess checkers | board move game",
    "puzzle crossword riddle sudoku | game clue word",
    "quiz trivia | question game answer",
    "dice roll | random game",
    "tarot horoscope astrology zodiac fortune | future card sign reading",
    "personality mbti | type test introvert",
    "dream | sleep interpret",
    "religion bible quran hadith faith islam christian | verse prayer god scripture prophet",
    "anime manga | character series",
    "art artwork painting drawing | artist museum gallery exhibit sculpture",
    // Pictures and design
    "image picture photo photograph pic illustration | visual draw art camera photorealistic",
    "logo brand branding | design identity company",
    "design designer graphic | logo ui template creative layout",
    "icon emoji | symbol image",
    "ocr scan | image text document extract",
    "diagram flowchart mindmap chart graph visualization plot | draw visual data visualize mermaid",
    "presentation slides powerpoint slideshow deck | pitch",
    "screenshot snapshot capture | image page",
    "color palette | design theme",
    "cad 3d | model render",
    "qr barcode | code scan",
    // Words
    "translate translation translator | language english spanish french chinese german japanese",
    "language linguistic | speak english word translate grammar vocabulary fluent",
    "grammar spelling proofread | write correct text error",
    "dictionary definition meaning synonym | word vocabulary",
    "rephrase paraphrase rewrite reword | text sentence",
    "speech voice tts | audio speak text read aloud",
    "transcribe transcription transcript subtitle caption | audio video speech",
    "summarize summary digest tldr overview | article text condense",
    "word term | count vocabulary letter",
    "text string | character word",
    "essay article blog post | write content draft",
    "copywriting copywriter copy slogan | marketing write ad content",
    "resume cv | job cover letter career",
    "plagiarism detection | essay original",
    "prompt midjourney gpt chatgpt llm ai | model generate chatbot",
    "chat conversation talk dialogue | message friend bot speak",
    // Knowledge
    "news headline | article current journalist event press",
    "research paper academic scholarly scientific publication journal | study article arxiv science citation literature",
    "science scientific | research physics chemistry biology",
    "encyclopedia wikipedia wiki | knowledge article fact",
    "history historical | ancient war century past",
    "law legal lawyer attorney legislation statute | court contract rights act bill compliance",
    "patent trademark | invention intellectual",
    "politics politician parliament government election | vote law congress policy senator",
    "math mathematics arithmetic algebra | equation calculate number formula",
    "calculator calculation | math sum number formula",
    "sum addition add plus total | number",
    "statistics statistical | data average mean",
    "education course class lesson tutorial | learn study student university training teacher skill",
    "student school teacher university college | learn homework exam class course",
    "exam test ielts toefl | practice study prepare question",
    "child kid children | school toddler parent fun",
    "question answer | ask faq",
    // Work
    "job career employment vacancy | hire work position salary employer recruit opening",
    "hire recruit recruiter talent candidate | job staff interview employee",
    "freelancer agency contractor | hire project",
    "company business organization firm enterprise corporate | startup industry employee",
    "startup founder | venture business investor",
    "customer client crm | sales contact lead",
    "sales lead prospect | customer revenue outreach",
    "marketing advertising advertisement ad campaign promotion | brand ppc audience social",
    "seo keyword ranking | search engine website traffic backlink optimization",
    "competitor competition rival | market analysis",
    "feedback review rating survey | customer opinion product",
    "contact phone telephone number | person call address",
    "meeting appointment calendar event schedule | invite agenda availability reschedule",
    "reminder alarm timer | schedule remember alert",
    "todo task checklist | list project assign",
    "project workspace board | task team manage",
    "note memo notebook | write remember journal",
    "journal diary | write reflection daily",
    "decision choice | choose decide option",
    "email mail inbox gmail | message send recipient attachment newsletter",
    "message sms text chat dm | send slack whatsapp",
    "slack discord teams telegram whatsapp | channel message chat",
    "social twitter tweet facebook instagram linkedin tiktok | post media follower hashtag",
    "newsletter substack | email subscribe",
    "form survey questionnaire | field response",
    "erp | inventory order business",
    // Computing
    "file document folder directory | path disk save",
    "document doc docx word pdf | file text page",
    "pdf | document file page",
    "spreadsheet excel sheet csv xlsx workbook | table row column cell",
    "table row column | database sheet cell",
    "database db sql postgres mysql sqlite | query table schema record",
    "sql query | database table",
    "web website webpage site url link internet online page | browser browse domain http",
    "browser chrome tab | page web click navigate",
    "scrape scraper crawl | web page content extract",
    "search lookup | engine google query find internet web bing",
    "http request api endpoint rest | url call webhook",
    "domain dns whois | website ip",
    "code program script programming software coding | developer function python javascript develop",
    "python javascript java | code program",
    "repository repo github gitlab git | code commit branch pull issue",
    "bug issue ticket defect | report fix error",
    "commit branch merge | git",
    "deploy deployment hosting | server app cloud",
    "server host machine vm | cloud ssh instance",
    "cloud aws azure gcp | server storage deploy",
    "container docker kubernetes pod cluster | deploy",
    "terminal shell command cli bash cmd | execute run",
    "log logs logging | event error",
    "security vulnerability hack exploit cybersecurity | scan threat attack breach password",
    "password credential secret login | account secure auth authentication",
    "network ip wifi internet | connection router traffic bandwidth",
    "performance speed | slow fast page load",
    "app application mobile | build ios android software",
    "error exception failure | debug log",
    "data dataset | analysis analytics statistics table",
    "analytics metric insight statistics report | data traffic performance",
    "model ml | machine train predict",
    "config configuration setting preference option | change",
    "user account profile member | login person",
    "permission role access acl | user grant",
    "version release | software update",
    "random | number generate dice",
    "encrypt decrypt hash cipher | secure key",
    "zip compress archive | file",
    "backup restore | copy",
    "memory remember recall | knowledge store",
    "knowledge graph | entity relation node",
    "time clock timezone date hour | zone now today",
    "unit measurement | convert meter kilogram length",
    "temperature celsius fahrenheit | degree weather heat",
    "thermostat conditioner heater | temperature home",
    "light lamp | bulb home brightness",
    "appliance device | home oven washer turn",
    "sensor iot device | reading alert",
    "camera | speed photo video",
    "bluetooth wifi | connect device",
    "call dial phone | ring",
    "volume loud mute | sound",
];

pub(super) fn is_topic(stem: &str) -> bool {
    kin_of(stem).iter().any(|(_, k)| *k == Kinship::Synonym || *k == Kinship::Related)
}
pub(super) fn is_verb(stem: &str) -> bool {
    kin_of(stem).iter().any(|(_, k)| *k == Kinship::Verb)
}
