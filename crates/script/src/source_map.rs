//! From a place in what runs back to what the model wrote.

use crate::front_end::{self, Mapping};
use crate::position::Position;

/// Maps positions in [`Script::javascript`](crate::Script::javascript) back to the model's source.
///
/// Built only when an error has to be shown, because it repeats the front end with mapping on.
#[derive(Debug)]
pub struct SourceMap {
    /// Sorted by generated position.
    marks: Vec<(Position, Position)>,
}

impl SourceMap {
    /// `None` for a source that [`prepare`](crate::prepare) refuses.
    pub fn new(source: &str) -> Option<Self> {
        let compiled = front_end::compile(source, Mapping::With).ok()?;
        let marks =
            compiled.marks.into_iter().map(|mark| (mark.generated, Position::of(source, mark.offset))).collect();
        Some(Self { marks })
    }

    /// Where the model wrote what stands at `generated`, as the engine reports it: unlike in
    /// every other [`Position`], the engine's column counts bytes of UTF-8.
    ///
    /// The engine points at the start of a run without white space, so this is where the
    /// expression begins and not always the exact name in it.
    pub fn original(&self, generated: Position) -> Option<Position> {
        let after = self.marks.partition_point(|(mark, _)| *mark <= generated);
        let same_line = |(mark, original): &(Position, Position)| (mark.line == generated.line).then_some(*original);
        let before = after.checked_sub(1).and_then(|index| same_line(&self.marks[index]));
        before.or_else(|| self.marks.get(after).and_then(same_line))
    }
}
