/** The work of this application while it leads: the ticks of its schedules, and its `@OnElected` methods. */
import { Logger } from "@nestjs/common";
import type { LeaderElection, LeaderTerm } from "@x/leader";
import type { LeaderScheduler } from "@x/leader/scheduler";
import type { Discovery, MarkedMethod } from "../discovery.ts";
import { at } from "../rules/names.ts";
import { ON_ELECTED, SCHEDULE, type ScheduleMark } from "./leader-methods.ts";

const logger = new Logger("Leader");

export class Leadership {
  readonly #election: LeaderElection | null;
  readonly #scheduler: LeaderScheduler | null;
  #onElected: readonly MarkedMethod<true>[] = [];

  constructor(election: LeaderElection | null, scheduler: LeaderScheduler | null) {
    this.#election = election;
    this.#scheduler = scheduler;
  }

  /** Collects the marked methods. Throws for a decorator that is used wrongly, before any work starts. */
  prepare(discovery: Discovery): void {
    const schedules = discovery.methods<ScheduleMark>(SCHEDULE);
    this.#onElected = discovery.methods<true>(ON_ELECTED);
    const [first] = [...schedules, ...this.#onElected];
    if (this.#scheduler === null) {
      if (first === undefined) return;
      throw new TypeError(`${first.name} needs the option election of CoordinationModule, got undefined`);
    }
    for (const schedule of schedules) add(this.#scheduler, schedule);
  }

  /** Starts to take part in the election. */
  start(): void {
    const election = this.#election;
    if (election === null) return;
    election
      .run((term) => this.#lead(term))
      // Rejects only if the election cannot start, or if its Redlock was closed by other code.
      .catch((error: unknown) => logger.error("the election has ended", stackOf(error)));
  }

  /** Hands the leadership over once the work has ended, at the latest after `drainTimeout`. */
  async stop(drainTimeout: number): Promise<void> {
    await this.#election?.stop({ drainTimeout });
  }

  /**
   * Runs the scheduler and the `@OnElected` methods. Settles when all of the work has ended, so that the lease is not
   * released earlier.
   */
  async #lead(term: LeaderTerm): Promise<void> {
    const work = [
      async () => await this.#scheduler?.lead(term),
      ...this.#onElected.map((each) => () => each.call(term)),
    ];
    const ends = await Promise.allSettled(
      work.map(async (run) => {
        try {
          await run();
        } catch (error) {
          // Not awaited: `resign` waits for this very task.
          void term.resign();
          throw error;
        }
      }),
    );
    const failure = ends.find((end) => end.status === "rejected");
    if (failure !== undefined) throw failure.reason;
  }
}

function add(scheduler: LeaderScheduler, { name, shortName, mark, call }: MarkedMethod<ScheduleMark>): void {
  const { name: ownName = shortName, ...options } = mark.options;
  try {
    if (mark.kind === "cron") scheduler.cron(ownName, mark.expression, call, options);
    else scheduler.every(ownName, mark.ms, call, options);
  } catch (error) {
    throw at(name, error);
  }
}

function stackOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
