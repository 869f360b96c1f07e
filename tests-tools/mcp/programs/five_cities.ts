// Finds the hour at which five cities that know no summer time are all awake. (time)
const zones = ["America/Bogota", "UTC", "Africa/Lagos", "Asia/Kolkata", "Asia/Tokyo"];
const now = await Promise.all(zones.map((timezone) => time.get_current_time({ timezone })));
const instants = now.map(({ datetime }) => Date.parse(datetime));
const converted = await Promise.all(
  zones.map((target_timezone) =>
    time.convert_time({ source_timezone: "UTC", time: "12:30", target_timezone }),
  ),
);
const hours = converted.map(({ target, time_difference }) => ({
  zone: target.timezone,
  clock: target.datetime.slice(11, 16),
  offset: time_difference,
}));
return {
  sameInstant: Math.max(...instants) - Math.min(...instants) < 60_000,
  hours,
  awake: hours.filter(({ clock }) => clock >= "07:00" && clock <= "22:00").length,
};
