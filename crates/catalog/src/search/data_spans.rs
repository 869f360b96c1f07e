//! Data in queries: addresses, paths, file names and quoted text. They say what kind of thing a tool deals with; their own
//! words say little about which tool is meant.

use std::ops::Range;

/// A part of a query that is data.
#[derive(Debug, PartialEq)]
pub(super) struct DataSpan {
    pub(super) place: Range<usize>,
    /// What a word inside counts for.
    pub(super) weight: f32,
    /// What the data is, in words that tools have for it.
    pub(super) meaning: &'static [&'static str],
}

/// Endings of file names that people write in queries.
#[rustfmt::skip]
const EXTENSIONS: &[&str] = &[
    "avi", "bmp", "c", "cpp", "css", "csv", "db", "doc", "docx", "epub", "gif", "go", "gz", "html", "ini", "ipynb", "java",
    "jpeg", "jpg", "js", "json", "jsonl", "log", "md", "mov", "mp3", "mp4", "ods", "odt", "parquet", "pdf", "php", "png",
    "ppt", "pptx", "py", "rb", "rs", "rtf", "sh", "sql", "sqlite", "svg", "tar", "tex", "toml", "ts", "tsv", "txt", "wav",
    "webp", "xls", "xlsx", "xml", "yaml", "yml", "zip",
];

/// The data in a query, in order.
pub(super) fn find(query: &str) -> Vec<DataSpan> {
    let mut spans = Vec::new();
    let mut at = 0;
    while let Some(start) = query[at..].find(|letter: char| !letter.is_whitespace()).map(|found| at + found) {
        if let Some(end) = end_of_quote(&query[start..]).map(|length| start + length) {
            spans.push(DataSpan { place: start..end, weight: 0.6, meaning: &[] });
            at = end;
            continue;
        }
        let end = query[start..].find(char::is_whitespace).map_or(query.len(), |found| start + found);
        spans.extend(token(query, start..end));
        at = end;
    }
    spans
}

/// How long a quotation at the beginning is.
fn end_of_quote(text: &str) -> Option<usize> {
    let open = text.chars().next()?;
    let close = match open {
        '"' | '\'' | '`' => open,
        '“' => '”',
        '«' => '»',
        '「' => '」',
        _ => return None,
    };
    let inner = open.len_utf8();
    let ends = |(at, letter): (usize, char)| {
        let after = text[inner + at + letter.len_utf8()..].chars().next();
        // An apostrophe is no end.
        (letter == close && !after.is_some_and(char::is_alphanumeric)).then_some(inner + at + letter.len_utf8())
    };
    text[inner..].char_indices().take_while(|(_, letter)| *letter != '\n').find_map(ends)
}

/// What a text without spaces is, if it is data.
fn token(query: &str, place: Range<usize>) -> Option<DataSpan> {
    let is_around =
        |letter: char| matches!(letter, '(' | ')' | '<' | '>' | '[' | ']' | '"' | '\'' | ',' | ';' | '!' | '?');
    let text = query[place.clone()].trim_matches(is_around).trim_end_matches(['.', ':']);
    let span = |weight, meaning| Some(DataSpan { place: place.clone(), weight, meaning });
    let is_address = text.contains("://") || text.starts_with("www.");
    if is_address {
        return span(0.4, &["url", "web", "page"]);
    }
    if text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.')) {
        return span(0.2, &["email"]);
    }
    let is_rooted = ["/", "./", "../", "~/"].iter().any(|root| text.starts_with(root)) && text.len() > 2;
    let is_windows = text.as_bytes().get(1..3) == Some(b":\\");
    if is_rooted || is_windows || text.matches('/').count() > 1 {
        return span(0.3, &["file", "path"]);
    }
    let (name, extension) = text.rsplit_once('.')?;
    let is_file = !name.is_empty() && EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str());
    if is_file { span(0.5, &["file"]) } else { None }
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn addresses_paths_files_and_quotations_are_told_from_words() {
        let query = "Read /home/me/taxes 2025.csv and C:\\x.txt, mail \"the best offer\" to ann@example.com, don't open \
                     https://github.com/a/b or report.pdf and/or 3.5 of 'it's me'";
        let found: Vec<&str> = find(query).into_iter().map(|span| &query[span.place]).collect();
        assert_eq!(
            found,
            [
                "/home/me/taxes",
                "2025.csv",
                "C:\\x.txt,",
                "\"the best offer\"",
                "ann@example.com,",
                "https://github.com/a/b",
                "report.pdf",
                "'it's me'"
            ]
        );
    }
}
