//! Maps positions in the JavaScript that runs back to what the model wrote.

use crate::front_end::{self, Mapping, PROLOGUE_LINES, Places};
use crate::position::SourcePosition;

/// Maps positions in [`PreparedScript::javascript`](crate::PreparedScript::javascript) back to the model's source.
///
/// Built only when an error has to be shown, because it repeats the front end with mapping on.
#[derive(Debug)]
pub struct SourceMap {
    source: String,
    places: Places,
}

impl SourceMap {
    /// `None` for a source that [`prepare`](crate::prepare) refuses.
    pub fn new(source: &str) -> Option<Self> {
        let compiled = front_end::compile(source, Mapping::With).ok()?;
        Some(Self { source: source.to_owned(), places: compiled.places })
    }

    /// Where the model wrote what stands at `generated`, as the engine reports it: unlike in
    /// every other [`SourcePosition`], the engine's column counts bytes of UTF-8.
    ///
    /// The engine points at the start of a run without white space, so this is where the
    /// expression begins and not always the exact name in it.
    pub fn original(&self, generated: SourcePosition) -> Option<SourcePosition> {
        let marks = match &self.places {
            Places::Marked(marks) => marks,
            Places::Kept => {
                let line = generated.line.checked_sub(PROLOGUE_LINES + 1)?;
                let before: usize = self.source.split_inclusive('\n').take(line as usize).map(str::len).sum();
                let line = self.source[before..].split('\n').next().filter(|_| before < self.source.len())?;
                let column = generated.column.saturating_sub(1) as usize;
                return Some(SourcePosition::of(&self.source, before + column.min(line.len())));
            }
        };
        let after = marks.partition_point(|mark| mark.generated <= generated);
        let is_on_line = |mark: &&Mark| mark.generated.line == generated.line;
        let before = marks[..after].last().filter(is_on_line);
        let mark = before.or_else(|| marks.get(after).filter(is_on_line))?;
        Some(SourcePosition::of(&self.source, mark.offset))
    }
}

/// Text at `generated`, whose column counts bytes, comes from `offset` in the source.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) generated: SourcePosition,
    pub(crate) offset: usize,
}

/// A source map counts lines and columns from zero, and columns in UTF-16.
pub(crate) struct Utf16Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// The entries of the printed body's source map, with positions in the whole script.
pub(crate) fn marks(
    places: impl Iterator<Item = (Utf16Position, Utf16Position)>,
    text: &str,
    printed: &str,
    lines_before: u32,
) -> Vec<Mark> {
    let text = Utf16Offsets::of(text);
    let printed = Utf16Offsets::of(printed);
    places
        .map(|(generated, original)| {
            let line_start = printed.offset(&Utf16Position { line: generated.line, column: 0 });
            let column = printed.offset(&generated) - line_start + 1;
            Mark {
                generated: SourcePosition { line: generated.line + lines_before + 1, column: column as u32 },
                offset: text.offset(&original),
            }
        })
        .collect()
}

/// The byte offset of every place in a text.
struct Utf16Offsets {
    /// By UTF-16 unit, the end included.
    offsets: Vec<usize>,
    /// The first unit of every line, by all the line terminators of the language.
    line_starts: Vec<usize>,
}

impl Utf16Offsets {
    fn of(text: &str) -> Self {
        let mut places = Self { offsets: Vec::with_capacity(text.len() + 1), line_starts: vec![0] };
        let mut chars = text.char_indices().peekable();
        while let Some((offset, c)) = chars.next() {
            places.offsets.extend(std::iter::repeat_n(offset, c.len_utf16()));
            let crlf = c == '\r' && matches!(chars.peek(), Some((_, '\n')));
            if matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}') && !crlf {
                places.line_starts.push(places.offsets.len());
            }
        }
        places.offsets.push(text.len());
        places
    }

    fn offset(&self, place: &Utf16Position) -> usize {
        let end = self.offsets.len() - 1;
        let line_start = self.line_starts.get(place.line as usize).map_or(end, |&start| start);
        self.offsets[(line_start + place.column as usize).min(end)]
    }
}
