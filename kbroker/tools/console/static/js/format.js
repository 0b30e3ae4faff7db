// Numbers, sizes and times as people read them.

const whole = new Intl.NumberFormat("en");

export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let left = value;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (left < 1024 || unit === "TiB") return `${unit === "B" ? left : left.toFixed(left < 10 ? 1 : 0)} ${unit}`;
    left /= 1024;
  }
  return "";
}

/** So many a second; what is not known yet is a dash. */
export const rate = (value) =>
  value === null || value === undefined ? "–" : value > 0 && value < 10 ? value.toFixed(1) : number(Math.round(value));

export const bytesRate = (value) => (value === null || value === undefined ? "–" : bytes(Math.round(value)));

const pad = (value, width = 2) => String(value).padStart(width, "0");

/** A time of this browser's zone: 2026-01-31 12:00:00.000. */
export function moment(ms, { millis = true } = {}) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const t = new Date(ms);
  if (Number.isNaN(t.getTime())) return String(ms);
  const day = `${t.getFullYear()}-${pad(t.getMonth() + 1)}-${pad(t.getDate())}`;
  const time = `${pad(t.getHours())}:${pad(t.getMinutes())}:${pad(t.getSeconds())}`;
  return `${day} ${time}${millis ? `.${pad(t.getMilliseconds(), 3)}` : ""}`;
}

/** The same for a list: the year only where it is another. */
export const recent = (ms) => moment(ms).replace(`${new Date().getFullYear()}-`, "");

/** The same with the zone: 2026-01-31 12:00:00.000 +01:00. */
export function zoned(ms) {
  const minutes = -new Date(ms).getTimezoneOffset();
  if (ms < 0 || Number.isNaN(minutes)) return moment(ms);
  const away = `${minutes < 0 ? "-" : "+"}${pad(Math.floor(Math.abs(minutes) / 60))}:${pad(Math.abs(minutes) % 60)}`;
  return `${moment(ms)} ${away}`;
}

export const utc = (ms) => (ms < 0 || Number.isNaN(new Date(ms).getTime()) ? moment(ms) : new Date(ms).toISOString());

export const clock = (ms) => moment(ms, { millis: false }).slice(11);

/** The same for a field of the kind datetime-local. */
export const localTime = (ms) => moment(ms, { millis: false }).replace(" ", "T");

export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

/** A length of time: 45 s, 3 min, 2 h 5 min, 4 d; where it `isExact` with all that is less: 2 min 30 s, 4 d 4 h. */
export function duration(ms, isExact = false) {
  if (ms === null || ms === undefined) return "–";
  const seconds = Math.max(Math.round(ms / 1000), 0);
  const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(seconds / unit));
  const parts = [[days, "d"], [hours % 24, "h"], [minutes % 60, "min"], [seconds % 60, "s"]];
  const first = parts.findIndex(([amount]) => amount);
  if (first < 0) return "0 s";
  if (isExact) return parts.filter(([amount]) => amount).map((part) => part.join(" ")).join(" ");
  if (hours >= 48) return `${days} d`;
  if (hours) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return parts[first].join(" ");
}

/** The value of a config as people say it: 7 d, 1.0 GiB; nothing where it is as short as it is. */
export function inUnits(name, value) {
  if (!/^\d+$/.test(value ?? "")) return "";
  if (Number(value) > 9e18) return "without limit";
  if (name.endsWith(".ms") && value >= 1000 && value % 1000 === 0) return duration(Number(value), true);
  return name.endsWith(".bytes") && value >= 1024 ? bytes(Number(value)) : "";
}

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** A time that was chosen in a field of the kind datetime-local, with this browser's zone, for the server. */
export function withZone(local) {
  const parsed = new Date(local);
  return Number.isNaN(parsed.getTime()) ? local : parsed.toISOString();
}
