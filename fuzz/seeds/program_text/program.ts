// Compares today's headlines of two countries. Both searches leave in one round.
interface Article { title: string; words: number }

const [us, france]: Article[][] = await Promise.all([
  webSearch({ query: "news US today" }),
  webSearch({ query: "actualités en France aujourd'hui" }),
]);

const longest = [...us, ...france].sort((a, b) => b.words - a.words)[0];

// Only the longest article is read: a second round, decided by the program and not by the model.
const text: string = await readArticle({ title: longest.title });

console.log(`compared ${us.length + france.length} articles`);
return {
  articles: us.length + france.length,
  longest: longest.title,
  words: longest.words.toLocaleString("en-US"),
  opening: text.split(". ")[0] + ".",
};
