/**
 * Lua for the `run_id` of the answering process, read from the INFO in the Lua variable `info`. Raises an error on a
 * server without a `run_id`, such as Dragonfly.
 */
export const runIdIn = (info: string): string =>
  `(string.match(${info}, 'run_id:(%x+)') or error({err = 'NO_RUN_ID INFO of this server has no run_id, by which quarantine and schedules notice a restart: use Redis or Valkey, or locks with quarantine: false'}))`;
