//! Pure functions of the host behind the guest's standard library: URLs, collation and time zones.

use std::cmp::Ordering;

use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, Strength};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering};
use icu_collator::{CollatorBorrowed, CollatorPreferences};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use serde_json::json;
use url::{Url, quirks};

const URL_PARSE: u32 = 0;
const URL_SET: u32 = 1;
const ZONE_OFFSET: u32 = 2;
const ZONE_NAME: u32 = 3;
pub(crate) const MEANING: u32 = 4;
pub(crate) const NAMES: u32 = 5;
pub(crate) const EXPRESSION: u32 = 6;
pub(crate) const ALL_TOOLS: u32 = 7;
pub(crate) const STORE: u32 = 8;
pub(crate) const LOAD: u32 = 9;

pub(crate) fn answer(question: u32, text: &str) -> Option<String> {
    match question {
        URL_PARSE => url_parse(text),
        URL_SET => url_set(text),
        ZONE_OFFSET => zone_offset(text),
        ZONE_NAME => Some(zone(text)?.iana_name()?.to_owned()),
        _ => None,
    }
}

/// Longer labels of hosts are refused.
const LABEL_BYTES_MAX: usize = 4_000;

/// Fuel for what a URL costs beyond its length: a label of its host that is not ASCII costs the square of its length.
pub(crate) fn url_effort(text: &[u8]) -> u64 {
    text.split(u8::is_ascii).map(|run| (run.len() * run.len().min(LABEL_BYTES_MAX)) as u64).sum()
}

/// `[url, base or null]`
fn url_parse(text: &str) -> Option<String> {
    let (url, base): (String, Option<String>) = serde_json::from_str(text).ok()?;
    let base = base.map(|base| Url::parse(&base)).transpose().ok()?;
    Url::options().base_url(base.as_ref()).parse(&url).ok().map(|url| parts(&url))
}

/// `[href, part, value]`
fn url_set(text: &str) -> Option<String> {
    let (href, part, value): (String, String, String) = serde_json::from_str(text).ok()?;
    let mut url = Url::parse(&href).ok()?;
    match part.as_str() {
        "href" => url = Url::parse(&value).ok()?,
        "hash" => quirks::set_hash(&mut url, &value),
        "search" => quirks::set_search(&mut url, &value),
        "pathname" => quirks::set_pathname(&mut url, &value),
        "protocol" => quirks::set_protocol(&mut url, &value).ok()?,
        "username" => quirks::set_username(&mut url, &value).ok()?,
        "password" => quirks::set_password(&mut url, &value).ok()?,
        "host" => quirks::set_host(&mut url, &value).ok()?,
        "hostname" => quirks::set_hostname(&mut url, &value).ok()?,
        "port" => quirks::set_port(&mut url, &value).ok()?,
        _ => return None,
    }
    Some(parts(&url))
}

fn parts(url: &Url) -> String {
    json!({
        "href": quirks::href(url), "origin": quirks::origin(url), "protocol": quirks::protocol(url),
        "username": quirks::username(url), "password": quirks::password(url), "host": quirks::host(url),
        "hostname": quirks::hostname(url), "port": quirks::port(url), "pathname": quirks::pathname(url),
        "search": quirks::search(url), "hash": quirks::hash(url),
    })
    .to_string()
}

/// Zones come from the database inside this binary, never from the machine's own.
fn zone(name: &str) -> Option<TimeZone> {
    static ZONES: std::sync::LazyLock<TimeZoneDatabase> = std::sync::LazyLock::new(TimeZoneDatabase::bundled);
    ZONES.get(name).ok()
}

/// `[zone, epoch milliseconds]`, answered in minutes east of UTC.
fn zone_offset(text: &str) -> Option<String> {
    let (name, epoch_ms): (String, f64) = serde_json::from_str(text).ok()?;
    let zone = zone(&name)?;
    let at = Timestamp::from_millisecond(epoch_ms as i64).unwrap_or(Timestamp::UNIX_EPOCH);
    Some((f64::from(zone.to_offset(at).seconds()) / 60.0).to_string())
}

/// CLDR root collation; keeps the collator of the last options, because sorting asks with the same ones again and again.
#[derive(Default)]
pub(crate) struct Collation(Option<(u32, CollatorBorrowed<'static>)>);

impl Collation {
    pub(crate) fn compare(&mut self, a: &[u8], b: &[u8], options: u32) -> Ordering {
        let collator = match self.0.take() {
            Some((built_for, collator)) if built_for == options => Some(collator),
            _ => collator(options),
        };
        let Some(collator) = collator else { return a.cmp(b) };
        let order = collator.compare_utf8(a, b);
        self.0 = Some((options, collator));
        order
    }
}

/// Fuel for what a comparison costs beyond its length. The collator looks ahead over marks, prefixed vowels and, when
/// it orders by number, digits; a run of them costs the square of its length.
pub(crate) fn collation_effort(text: &[u8], options: u32) -> u64 {
    // Ideographs, whose texts have no spaces, are never looked ahead over.
    let breaks = |byte: u8| match byte {
        b'0'..=b'9' => options & NUMERIC == 0,
        0xe4..=0xe9 => true,
        _ => byte.is_ascii(),
    };
    text.split(|byte| breaks(*byte)).map(|run| (run.len() as u64).pow(2) / 4).sum()
}

const NUMERIC: u32 = 8;

/// Options: strength in bits 0 to 2, numeric in bit 3, ignore punctuation in bit 4, case first in bits 5 and 6.
fn collator(options: u32) -> Option<CollatorBorrowed<'static>> {
    let mut settings = CollatorOptions::default();
    settings.strength = Some(match options & 7 {
        1 | 3 => Strength::Primary,
        2 => Strength::Secondary,
        _ => Strength::Tertiary,
    });
    if options & 7 == 3 {
        settings.case_level = Some(CaseLevel::On);
    }
    if options & 16 != 0 {
        settings.alternate_handling = Some(AlternateHandling::Shifted);
    }
    let mut preferences = CollatorPreferences::default();
    preferences.numeric_ordering =
        Some(if options & NUMERIC != 0 { CollationNumericOrdering::True } else { CollationNumericOrdering::False });
    preferences.case_first = match options >> 5 & 3 {
        1 => Some(CollationCaseFirst::Upper),
        2 => Some(CollationCaseFirst::Lower),
        _ => None,
    };
    CollatorBorrowed::try_new(preferences, settings).ok()
}
