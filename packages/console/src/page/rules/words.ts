/** Pure: numbers, durations and names as the page, the command line and the problems write them. */
import type { CancelledState, ExclusionReport, KeyPolicy } from "@x/workers";

const COUNT = new Intl.NumberFormat("en-US");
/** The longest name in a sentence. */
const LONGEST_NAME = 80;
const CONTROL = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu;
/** The separator between a key and the number of its slot, in the name of a lock. */
const SLOT = String.fromCharCode(31);

/** Formats a count: `29,865`. */
export function countText(count: number): string {
  return COUNT.format(Math.round(count));
}

/** Formats a count with its noun: `1 schedule`, `2 schedules`. `many`: the plural, if it is not formed by an s. */
export function countedText(count: number, noun: string, many: string = `${noun}s`): string {
  return `${countText(count)} ${count === 1 ? noun : many}`;
}

/** Formats a duration: `240 ms`, `11.8 s`, `4 min 2 s`, `2 h 41 min`, `3 days`. */
export function durationText(ms: number): string {
  if (!Number.isFinite(ms)) return "forever";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1_000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = seconds / 60;
  if (minutes < 60) return `${Math.floor(minutes)} min ${Math.floor(seconds % 60)} s`;
  const hours = minutes / 60;
  return hours < 48 ? `${Math.floor(hours)} h ${Math.floor(minutes % 60)} min` : `${Math.floor(hours / 24)} days`;
}

/** Formats a name from Redis: control characters become `·`, and the slot of a key is written out. */
export function nameText(name: string): string {
  const at = name.lastIndexOf(SLOT);
  const slot = at === -1 ? "" : name.slice(at + 1);
  const hasSlot = /^\d+$/.test(slot);
  const key = hasSlot ? name.slice(0, at) : name;
  const shown = key.length > LONGEST_NAME ? `${key.slice(0, LONGEST_NAME)}…` : key;
  const text = shown.replaceAll(CONTROL, "·");
  return !hasSlot ? text : `${text}, slot ${Number(slot) + 1}`;
}

/** Says what exclusion would have prevented while a queue was watched. */
export function earlyText({ ended, overlaps, outOfOrder }: EarlyCounts): string {
  return (
    `of ${countedText(ended, "job")} that ended, ${countText(overlaps)} started while another job of the key was running, ` +
    `and ${countText(outOfOrder)} before an earlier job of the key`
  );
}

type EarlyCounts = Pick<ExclusionReport, "ended" | "overlaps" | "outOfOrder">;

/** Says what a cancellation has found. */
export function cancelledText(jobId: string, found: CancelledState): string {
  if (found === "unknown") return `job ${jobId} does not exist or has ended`;
  return found === "running"
    ? `job ${jobId} is cancelled, and fails when its processor ends`
    : `job ${jobId} was ${found}, and is cancelled`;
}

/** Says what a policy allows. */
export function policyText(policy: KeyPolicy | undefined): string {
  const { concurrency, rate, maxWaiting, weight } = policy ?? {};
  const said = [
    concurrency === undefined ? [] : [`${concurrency} at a time`],
    rate === undefined ? [] : [`${rate.max} start in ${durationText(rate.duration)}`],
    maxWaiting === undefined ? [] : [`${maxWaiting.max} wait`],
    weight === undefined ? [] : [`weight ${weight}`],
  ].flat();
  return said.length === 0 ? "as the workers' options say" : said.join(", ");
}

/** Formats a word of a command for a shell. */
export function shellWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
}
