enum Level { Low = 1, Medium, High }
interface Issue { id: number; title: string; labels: string[]; author?: { login: string }; comments: number }
type Score = { issue: Issue; level: Level; points: number };

const weights: Record<string, number> = { bug: 5, security: 10, docs: 1 };

class Ranking<T extends Issue> {
  private readonly scores: Score[] = [];
  constructor(private readonly limit: number, readonly name = "ranking") {}

  add(issue: T): void {
    const points = issue.labels.reduce((sum, label) => sum + (weights[label] ?? 0), 0) + issue.comments * 0.5;
    const level = points > 10 ? Level.High : points > 4 ? Level.Medium : Level.Low;
    this.scores.push({ issue, level, points } satisfies Score);
  }

  top(): Score[] {
    return [...this.scores].sort((a, b) => b.points - a.points).slice(0, this.limit);
  }
}

async function fetchAll(repo: string): Promise<Issue[]> {
  const issues: Issue[] = [];
  for (let page = 1; ; page++) {
    const batch = (await listIssues({ repo, page, state: "open" })) as Issue[];
    issues.push(...batch);
    if (batch.length < 100) return issues;
  }
}

const repos = ["core", "web", "docs"] as const;
const ranking = new Ranking<Issue>(5);
const failures: string[] = [];

await Promise.all(
  repos.map(async (repo) => {
    try {
      for (const issue of await fetchAll(repo)) ranking.add(issue);
    } catch (error: unknown) {
      failures.push(`${repo}: ${(error as Error).message}`);
    }
  }),
);

const lines = ranking.top().map(({ issue, level, points }: Score): string => {
  const author = issue.author?.login ?? "unknown";
  return `#${issue.id} ${issue.title} by ${author}: ${Level[level]} (${points.toFixed(1)})`;
});

return { lines, failures, total: ranking.top().length };
