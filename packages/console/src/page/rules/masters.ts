/** Pure: the masters of a Redis Cluster, as `CLUSTER SLOTS` tells them. */

type Range = readonly [first: number, last: number];

export interface Master {
  readonly id: string;
  /** Its host and port. */
  readonly name: string;
  /** Its number, which no other master has had before. */
  readonly at: number;
  readonly slots: readonly Range[];
}

/** Reads the reply. Masters that were there `before` keep their numbers. @throws TypeError if it is not one */
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
