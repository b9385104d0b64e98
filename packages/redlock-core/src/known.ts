/** Pure: no option is ignored: what a name that is not known was meant to be. */

/** Every option of a kind; the compiler finds one that is left out. */
export type Known<Options> = Readonly<Record<keyof Options, true>>;

/** Options of node-redlock that have another name here. */
const REPLACED: Readonly<Record<string, string>> = {
  retryCount: "timeout",
  automaticExtensionThreshold: "autoExtend",
};

/** Throws `TypeError` if `options` has one that is not in `known`. `elsewhere`: options that other functions take, and which. */
export function checkNames(
  options: object,
  known: Readonly<Record<string, true>>,
  elsewhere: { readonly known: Readonly<Record<string, true>>; readonly of: string },
): void {
  const names = Object.keys(known);
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) throw new TypeError(`unknown option "${name}": ${hint(name, names, elsewhere)}`);
  }
}

function hint(
  name: string,
  names: readonly string[],
  elsewhere: { readonly known: Readonly<Record<string, true>>; readonly of: string },
): string {
  const replacement = REPLACED[name];
  if (replacement !== undefined) {
    return `"${replacement}" replaces it; @x/redlock-core/node-redlock takes the options of node-redlock`;
  }
  if (Object.hasOwn(elsewhere.known, name)) return `it is an option of ${elsewhere.of}`;
  const near = nearestName(name, names);
  return near === undefined ? `known are ${names.join(", ")}` : `did you mean "${near}"?`;
}

/**
 * The one of `names` that differs least from `name`, in no more than a third of its letters; case does not count. Undefined if none is
 * so near. For packages beside this one, whose options are to be checked alike.
 */
export function nearestName(name: string, names: readonly string[]): string | undefined {
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
