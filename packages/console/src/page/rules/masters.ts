/** Pure: the masters of a Redis Cluster, from the reply of `CLUSTER SLOTS`. */

type Range = readonly [first: number, last: number];

export interface Master {
  readonly id: string;
  /** Host and port. */
  readonly name: string;
  /** Number of the master. Unique over the life of the page. */
  readonly at: number;
  readonly slots: readonly Range[];
}

/** Parses the reply. Masters in `before` keep their numbers. @throws TypeError for an unexpected reply */
export function parseMasters(reply: unknown, before: readonly Master[]): readonly Master[] {
  if (!Array.isArray(reply)) throw new TypeError("unexpected reply about a Cluster");
  const slots = new Map<string, { readonly name: string; readonly ranges: Range[] }>();
  for (const [first, last, master] of reply as readonly (readonly unknown[])[]) {
    if (!Array.isArray(master)) throw new TypeError("unexpected reply about a Cluster");
    const [host, port, id] = master as readonly unknown[];
    const known = slots.get(String(id)) ?? { name: `${String(host)}:${String(port)}`, ranges: [] };
    known.ranges.push([Number(first), Number(last)]);
    slots.set(String(id), known);
  }
  let next = Math.max(-1, ...before.map(({ at }) => at)) + 1;
  return [...slots]
    .map(([id, { name, ranges }]) => {
      const at = before.find((master) => master.id === id)?.at ?? next++;
      return { id, name, at, slots: ranges };
    })
    .sort((one, other) => one.at - other.at);
}

export function hasSlot({ slots }: Master, slot: number): boolean {
  return slots.some(([first, last]) => slot >= first && slot <= last);
}
