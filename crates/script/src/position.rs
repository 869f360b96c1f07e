//! Positions in a source text, and how they are shown.

use std::fmt::Write;

const LINES_BEFORE: usize = 2;
const LINES_AFTER: usize = 1;
const FRAME_COLUMNS_MAX: usize = 100;
pub(crate) const BYTE_ORDER_MARK: char = '\u{feff}';

/// A position in the text that the model wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourcePosition {
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1, in Unicode code points.
    pub column: u32,
}

impl SourcePosition {
    /// The position of a byte offset; one past the end or inside a character is moved back.
    pub(crate) fn of(source: &str, offset: usize) -> Self {
        Cursor::new(source).advance_to(offset)
    }
}

/// Finds the positions of ascending offsets in one pass.
pub(crate) struct Cursor<'s> {
    source: &'s str,
    offset: usize,
    position: SourcePosition,
}

impl<'s> Cursor<'s> {
    pub(crate) fn new(source: &'s str) -> Self {
        Self { source, offset: 0, position: SourcePosition { line: 1, column: 1 } }
    }

    pub(crate) fn advance_to(&mut self, offset: usize) -> SourcePosition {
        let end = self.source.floor_char_boundary(offset);
        let passed = &self.source[self.offset..end];
        let SourcePosition { line, column } = self.position;
        self.position = if let Some(last) = passed.rfind('\n') {
            let lines = passed.bytes().filter(|byte| *byte == b'\n').count() as u32;
            SourcePosition { line: line + lines, column: 1 + passed[last + 1..].chars().count() as u32 }
        } else {
            let is_start = line == 1 && column == 1;
            let shown = if is_start { passed.trim_start_matches(BYTE_ORDER_MARK) } else { passed };
            SourcePosition { line, column: column + shown.chars().count() as u32 }
        };
        self.offset = end;
        self.position
    }
}

/// The lines around a position, with line numbers, `>` on the line and `^` under the column.
///
/// ```
/// use dacapo_script::{SourcePosition, code_frame};
/// let frame = code_frame("let a\nlet b = ;", SourcePosition { line: 2, column: 9 });
/// assert_eq!(frame, "  1 | let a\n> 2 | let b = ;\n    |         ^");
/// ```
pub fn code_frame(source: &str, at: SourcePosition) -> String {
    let line_index = at.line.saturating_sub(1) as usize;
    let column_index = at.column.saturating_sub(1) as usize;
    let first = line_index.saturating_sub(LINES_BEFORE);
    let number_width = (line_index + 1 + LINES_AFTER).to_string().len();
    // One window for all lines, so that what is aligned in the source stays aligned.
    let window_start = (column_index + FRAME_COLUMNS_MAX / 2).saturating_sub(FRAME_COLUMNS_MAX);

    let mut frame = String::new();
    let lines = source.trim_start_matches(BYTE_ORDER_MARK).split('\n').enumerate();
    for (index, line) in lines.skip(first).take(line_index + 1 + LINES_AFTER - first) {
        let marker = if index == line_index { '>' } else { ' ' };
        let shown: String = line
            .trim_end_matches('\r')
            .chars()
            .skip(window_start)
            .take(FRAME_COLUMNS_MAX)
            // A tab as one space keeps the caret under its column.
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let row = format!("{marker} {:>number_width$} | {shown}", index + 1);
        frame.push_str(row.trim_end());
        frame.push('\n');
        if index == line_index {
            let indent = column_index - window_start;
            // Writing to a string cannot fail.
            writeln!(frame, "  {:>number_width$} | {:indent$}^", "", "").unwrap_or_default();
        }
    }
    frame.truncate(frame.trim_end_matches('\n').len());
    frame
}
