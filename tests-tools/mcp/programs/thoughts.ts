// Thinks in three steps, the last of which revises the first. (sequential-thinking)
const think = (thoughtNumber: number, thought: string, more = {}) =>
  sequential_thinking.sequentialthinking({
    thought,
    thoughtNumber,
    totalThoughts: 3,
    nextThoughtNeeded: thoughtNumber < 3,
    ...more,
  });
await think(1, "The theme comes first.");
await think(2, "Then come the variations.");
const last = await think(3, "The theme comes last, too.", { isRevision: true, revisesThought: 1 });
return last;
