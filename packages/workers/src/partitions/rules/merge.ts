/** Pure: combines the answers of several partitions. */

/** Returns a page of all partitions' jobs, from `start` to `end` (included). Each of `pages` must begin at 0. */
export function mergePages<Job extends { readonly timestamp: number }>(
  pages: readonly (readonly (Job | null | undefined)[])[],
  { start, end, asc }: { readonly start: number; readonly end: number; readonly asc: boolean },
): Job[] {
  const sign = asc ? 1 : -1;
  const jobs = pages.flat().filter((job): job is Job => (job ?? undefined) !== undefined);
  jobs.sort((a, b) => sign * (a.timestamp - b.timestamp));
  return jobs.slice(start, end + 1);
}

/** Returns the values without repetitions. Values are equal if their JSON is equal. */
export function distinct<Value>(values: readonly Value[]): Value[] {
  return [...new Map(values.map((value) => [JSON.stringify(value), value])).values()];
}
