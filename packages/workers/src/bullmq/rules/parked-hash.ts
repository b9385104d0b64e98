/** Pure: the hash of a job that is parked, and what of it is BullMQ's. */

interface ParkedHash {
  /** What BullMQ makes a job of. */
  readonly fields: Readonly<Record<string, string>>;
  /** When it was parked, in ms since the epoch, as text. */
  readonly since: string | undefined;
}

/** Returns the hash of a parked job out of its names and values, without what stands there because it is parked. */
export function parkedHash(flat: readonly string[]): ParkedHash {
  const hash: Record<string, string> = {};
  for (let i = 0; i + 1 < flat.length; i += 2) hash[String(flat[i])] = String(flat[i + 1]);
  const { ls: _place, pb: _by, lp: since, ...fields } = hash;
  return { fields, since };
}
