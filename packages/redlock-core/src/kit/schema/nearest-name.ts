/** Pure: what a name that is not known was meant to be. */

/**
 * Returns the one of `names` that differs least from `name`, in no more than a third of its letters; case does not
 * count. The result is undefined if none is so near.
 */
export function nearestName(name: string, names: readonly string[]): string | undefined {
  const [best] = names
    .filter((known) => Math.abs(known.length - name.length) <= tolerance(known))
    .map((known) => ({ known, distance: distance(name.toLowerCase(), known.toLowerCase()) }))
    .filter((each) => each.distance <= tolerance(each.known))
    .toSorted((a, b) => a.distance - b.distance);
  return best?.known;
}

function tolerance(known: string): number {
  return Math.max(1, Math.floor(known.length / 3));
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
