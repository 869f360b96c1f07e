//! A program inside a Markdown code fence.

use std::ops::Range;

use crate::position::BYTE_ORDER_MARK;

/// A fenced code block.
#[derive(Debug)]
pub(crate) struct CodeBlock {
    /// Where its opening fence starts.
    pub(crate) opening: usize,
    /// The lines between the fences; up to the end where the closing fence is missing.
    pub(crate) content: Range<usize>,
}

/// All fenced code blocks of a text.
pub(crate) fn blocks(source: &str) -> Vec<CodeBlock> {
    let mut blocks = Vec::new();
    let mut open: Option<(Fence<'_>, CodeBlock)> = None;
    let mut line_start = 0;
    for line in source.split_inclusive('\n') {
        let line_end = line_start + line.len();
        let fence = Fence::on(line);
        open = match (open, fence) {
            (None, Some(fence)) if fence.can_open() => {
                let opening = line_start + fence.indent;
                Some((fence, CodeBlock { opening, content: line_end..source.len() }))
            }
            (Some((opened, mut block)), Some(fence)) if fence.closes(&opened) => {
                block.content.end = line_start;
                blocks.push(block);
                None
            }
            (open, _) => open,
        };
        line_start = line_end;
    }
    blocks.extend(open.map(|(_, block)| block));
    blocks
}

/// The text with everything outside `kept` blanked, so that every offset stays what it was.
pub(crate) fn blank_outside(source: &str, kept: &Range<usize>) -> String {
    fn blank(text: &str) -> impl Iterator<Item = char> + '_ {
        text.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { char::from(byte) } else { ' ' })
    }
    blank(&source[..kept.start]).chain(source[kept.clone()].chars()).chain(blank(&source[kept.end..])).collect()
}

/// A line that starts with a run of three or more backticks or tildes.
struct Fence<'a> {
    indent: usize,
    mark: char,
    length: usize,
    info: &'a str,
}

impl<'a> Fence<'a> {
    fn on(line: &'a str) -> Option<Self> {
        let text = line.trim_start_matches(|c: char| c.is_whitespace() || c == BYTE_ORDER_MARK);
        let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
        let info = text.trim_start_matches(mark);
        let length = text.len() - info.len();
        (length >= 3).then(|| Self { indent: line.len() - text.len(), mark, length, info: info.trim() })
    }

    fn can_open(&self) -> bool {
        self.mark == '~' || !self.info.contains('`')
    }

    fn closes(&self, opened: &Fence<'_>) -> bool {
        self.mark == opened.mark && self.length >= opened.length && self.info.is_empty()
    }
}
