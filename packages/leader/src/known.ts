/** Pure: no option is ignored. */
import { show } from "./checks.ts";

/** Every option of a kind; the compiler finds one that is left out. */
export type Known<Options> = Record<keyof Options, true>;

/** @throws TypeError if `given` is no object or has an option that is not in `known`; `prefix` names the option that it belongs to */
export function checkKnown<Options extends object>(given: Options, known: Known<Options>, prefix = ""): void {
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new TypeError(`${prefix === "" ? "options" : prefix} must be an object, got ${show(given)}`);
  }
  const names = Object.keys(known);
  const unknown = Object.keys(given).find((name) => !names.includes(name));
  if (unknown === undefined) return;
  const near = nearest(unknown, names);
  const path = prefix === "" ? "" : `${prefix}.`;
  const hint = near === undefined ? `known are ${names.join(", ")}` : `did you mean "${path}${near}"?`;
  throw new TypeError(`unknown option "${path}${unknown}": ${hint}`);
}

/** The name that differs least, in no more than a third of its letters; case does not count. */
function nearest(name: string, names: readonly string[]): string | undefined {
  const [best] = names
    .map((known) => ({ known, distance: distance(name.toLowerCase(), known.toLowerCase()) }))
    .filter((each) => each.distance <= Math.max(1, Math.floor(each.known.length / 3)))
    .toSorted((a, b) => a.distance - b.distance);
  return best?.known;
}

/** Letters to add, take out or change (Levenshtein). */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let index = 0; index < from.length; index += 1) {
    const next = [index + 1];
    for (let at = 1; at <= to.length; at += 1) {
      const changed = (row[at - 1] ?? 0) + (from[index] === to[at - 1] ? 0 : 1);
      next.push(Math.min(changed, (row[at] ?? 0) + 1, (next[at - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}
