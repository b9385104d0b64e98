/** Pure: numbers, times and names as the page writes them. */
import type { KeyPolicy } from "@x/workers";

/** Keeps a number and its unit on one line. */
const NBSP = "\u00a0";

const COUNT = new Intl.NumberFormat("en-US");

/** Returns a number with separators: `29,865`. */
export function count(value: number): string {
  return COUNT.format(value);
}

/** Returns a number with its noun: `1 lock`, `2 locks`. */
export function counted(value: number, noun: string, plural: string = `${noun}s`): string {
  return `${count(value)}${NBSP}${value === 1 ? noun : plural}`;
}

/** Returns a duration with one decimal below a minute: `11.8 s`, `4 min 2 s`, `21 min`, `2 h 41 min`, `3 days`. */
export function duration(ms: number): string {
  if (ms < 0) return `−${duration(-ms)}`;
  // 59,950 ms and more would be rounded to 60.0 s.
  return ms < 59_950 ? `${(ms / 1_000).toFixed(1)}${NBSP}s` : wholeDuration(ms);
}

/** Returns a duration without decimals: `4 s`, `4 min 2 s`. Rounds down, except below a second. */
export function wholeDuration(ms: number): string {
  if (ms < 0) return `−${wholeDuration(-ms)}`;
  const seconds = Math.round(ms / 1_000);
  if (seconds < 60) return `${seconds}${NBSP}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10 && seconds % 60 !== 0) return `${minutes}${NBSP}min ${seconds % 60}${NBSP}s`;
  if (minutes < 60) return `${minutes}${NBSP}min`;
  const hours = Math.floor(minutes / 60);
  if (hours >= 48) return `${Math.floor(hours / 24)}${NBSP}days`;
  return minutes % 60 === 0 ? `${hours}${NBSP}h` : `${hours}${NBSP}h ${minutes % 60}${NBSP}min`;
}

/** Returns the duration of an answer: `0.8 ms`, `24 ms`, `1.2 s`. */
export function latency(ms: number): string {
  if (ms >= 1_000) return duration(ms);
  return `${ms < 10 && !Number.isInteger(ms) ? ms.toFixed(1) : Math.round(ms)}${NBSP}ms`;
}

/** Returns the interval of a schedule or a rate: `10 s`, `5 min`, `daily`. */
export function interval(ms: number): string {
  if (ms === 86_400_000) return "a day";
  if (ms % 3_600_000 === 0) return `${ms / 3_600_000}${NBSP}h`;
  if (ms % 60_000 === 0) return `${ms / 60_000}${NBSP}min`;
  return ms % 1_000 === 0 ? `${ms / 1_000}${NBSP}s` : latency(ms);
}

const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const SHORT_TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** Returns the time of day in the reader's time zone: `14:32:07`. */
export function clock(ms: number): string {
  return TIME.format(ms);
}

/** Returns the time of day without seconds: `14:32`. */
export function shortClock(ms: number): string {
  return SHORT_TIME.format(ms);
}

/** Returns the time of day, with the date if the time is more than 20 h away from `now`. */
export function dayClock(ms: number, now: number): string {
  return Math.abs(now - ms) < 72_000_000 ? clock(ms) : `${DAY.format(ms)} ${clock(ms)}`;
}

/** Returns how long ago a past moment is, or how far away a future one: `3.1 s ago`, `in 53 s`. */
export function moment(ms: number, now: number): string {
  return ms > now ? `in ${wholeDuration(ms - now)}` : `${duration(now - ms)} ago`;
}

// oxlint-disable-next-line no-control-regex -- these are the characters to replace
const SLOT = /\u001f(\d+)$/;
// oxlint-disable-next-line no-control-regex -- these are the characters to replace
const CONTROL_CHARACTERS = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

/**
 * Shows a name from Redis. The lock of a further slot of a key ends with a control character and a number, which become
 * "slot 2". Any other control character becomes a dot, and so does a character that changes the direction of the text.
 */
export function printable(name: string): string {
  const slot = SLOT.exec(name);
  const shown = slot === null ? name : name.slice(0, slot.index);
  const text = shown.replaceAll(CONTROL_CHARACTERS, "·");
  return slot === null ? text : `${text} slot ${Number(slot[1]) + 1}`;
}

/** Returns the policy of a key in words: `2 at a time, 100 in 1 min`. Empty without a policy. */
export function policyText(policy: KeyPolicy | undefined): string {
  const { concurrency, rate, maxWaiting, weight } = policy ?? {};
  return [
    concurrency === undefined ? "" : `${count(concurrency)} at a time`,
    rate === undefined ? "" : `${count(rate.max)} in ${interval(rate.duration)}`,
    maxWaiting === undefined ? "" : `${count(maxWaiting.max)} may wait`,
    weight === undefined ? "" : `weight ${weight}`,
  ]
    .filter((text) => text !== "")
    .join(", ");
}

/** Returns names as a list: `a, b and c`. With more than `most`, the last item counts the rest. */
export function listed(names: readonly string[], most = 3): string {
  const shown = names.length > most ? [...names.slice(0, most), `${count(names.length - most)} more`] : names;
  return shown.length < 2 ? (shown[0] ?? "") : `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}`;
}
