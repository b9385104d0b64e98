/**
 * For each mutation, a recorded schedule that breaks without the protection. The tests play the schedule before any
 * search, so that a mutation costs one schedule. If a change of the code has made the schedule harmless, the search
 * follows. `--record` writes the file again.
 */
import { readFileSync, writeFileSync } from "node:fs";

/**
 * How many schedules of each kind the tests play with every protection in place: `ci/1`, `ci/2`, … The nightly run
 * plays many more.
 */
export const PLAYED = { locks: 150, elections: 30, permits: 40, latches: 20, lanes: 30, focus: 2 } as const;

/** The seed of the tests and of the recorded schedules. */
export const TEST_SEED = "ci";

const file = new URL("known.json", import.meta.url);

const read = (): Readonly<Record<string, string>> => JSON.parse(readFileSync(file, "utf8")) as Record<string, string>;

const known = read();

/** Returns the recorded schedule of this seed that breaks without the protection. Undefined if there is none. */
export function knownSchedule(protection: string, seed: string): string | undefined {
  const schedule = known[protection];
  return schedule?.startsWith(`${seed}/`) === true ? schedule : undefined;
}

/**
 * Collects recorded schedules that have become harmless. Each such schedule costs a search in every run until it is
 * recorded again.
 */
export class StaleSchedules {
  readonly #protections: string[] = [];

  note(protection: string, seed: string, brokenBy: string | undefined): void {
    const known = knownSchedule(protection, seed);
    if (known !== undefined && brokenBy !== undefined && brokenBy !== known) this.#protections.push(protection);
  }

  /** Prints the commands that record the schedules again. */
  tell(): void {
    for (const protection of this.#protections) {
      process.stdout.write(
        `record it again (test/README.md): npm run simulate -- --mutations --only "${protection}" --record\n`,
      );
    }
  }
}

/** Reports whether the tests play the schedule with every protection in place. */
export function isPlayed(schedule: string, kind: keyof typeof PLAYED): boolean {
  const [seed, number] = schedule.split("/");
  return seed === TEST_SEED && Number(number) <= PLAYED[kind];
}

/** Writes schedules, by protection. The schedules of other protections remain. */
export function recordKnown(schedules: ReadonlyMap<string, string>): void {
  const all = { ...read(), ...Object.fromEntries(schedules) };
  const sorted = Object.entries(all).toSorted(([a], [b]) => (a < b ? -1 : 1));
  writeFileSync(file, `${JSON.stringify(Object.fromEntries(sorted), undefined, 2)}\n`);
}
