const cities = ["Berlin", "Paris"];
const forecasts = await Promise.all(
  cities.map((city) => weather({ city, days: 7 })),
);

const summaries = forecasts.map((forecast, index) => {
  const temps = forecast.temps;
  const mean = temps.reduce((sum, t) => sum + t, 0) / temps.length;
  return {
    city: cities[index],
    mean: Math.round(mean * 100) / 100,
    low: Math.min(...temps),
    high: Math.max(...temps),
  };
});

summaries.sort((a, b) => b.mean - a.mean);
const text = summaries
  .map(({ city, mean, low, high }) => `${city}: ${mean.toFixed(2)} (${low}..${high})`)
  .join("; ");

if (summaries.length === 0) {
  throw new Error("no forecasts");
}
return { warmest: summaries[0].city, text, n: summaries.length };
