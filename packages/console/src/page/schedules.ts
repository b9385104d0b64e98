/** The schedules of all schedulers, with the histories that browsers show. */
import { LeaderScheduler, type ScheduleInfo, type TickOutcome } from "@x/leader/scheduler";
import type { Clock } from "@x/redlock-core";
import type { Elections } from "./elections.ts";
import { Histories } from "./histories.ts";
import type { FoundScheduler } from "./rules/lock-table.ts";
import { type BrowserQuery, PAGE_ROWS, type PageSection, type ScheduleView, SHOWN_TICKS } from "./state.ts";
import { Watched } from "./watched.ts";

/** How many schedules every look may list. More schedules are listed less often. */
const SCHEDULES_A_LOOK = 500;
const FAILURES: ReadonlySet<TickOutcome | undefined> = new Set(["failed", "unfinished"]);
const MOST_SCHEDULERS = 20;

export class Schedules {
  /**
   * The schedulers by a name that is the same in other processes: election and `keyPrefix`, or the position in the
   * option.
   */
  readonly schedulers: Map<string, LeaderScheduler>;
  readonly #isGiven: boolean;
  readonly #elections: Elections;
  readonly #list: Watched<readonly ScheduleView[]>;
  readonly #histories = new Histories();
  #pausedLooks = 0;

  /** Without `given`, shows all schedulers that are found. */
  constructor(clock: Clock, elections: Elections, given: readonly LeaderScheduler[] | undefined) {
    this.schedulers = new Map((given ?? []).map((each, at) => [String(at), each]));
    this.#isGiven = given !== undefined;
    this.#elections = elections;
    this.#list = new Watched(clock, () => this.#listAll());
  }

  /** Adds the schedulers whose registers a node has shown. */
  found(found: readonly FoundScheduler[]): void {
    if (this.#isGiven) return;
    for (const { election, keyPrefix } of found) {
      const name = JSON.stringify([election, keyPrefix]);
      const asked = this.#elections.get(election);
      if (asked === undefined || this.schedulers.has(name) || this.schedulers.size >= MOST_SCHEDULERS) continue;
      const prefix = keyPrefix === "" ? {} : { keyPrefix };
      this.schedulers.set(name, new LeaderScheduler({ election: asked, history: SHOWN_TICKS, ...prefix }));
    }
  }

  /** All schedules with their histories, as far as these are known. */
  get views(): readonly ScheduleView[] {
    return (this.#list.section.value ?? []).map((view) => this.#withHistory(view));
  }

  sectionFor(
    wanted: BrowserQuery,
  ): PageSection<{ readonly schedules: readonly ScheduleView[]; readonly total: number }> {
    const { section } = this.#list;
    const schedules = this.#shown(wanted)?.map((view) => this.#withHistory(view));
    const value = schedules === undefined ? undefined : { schedules, total: section.value?.length ?? 0 };
    return { ...section, value };
  }

  async look(viewers: readonly BrowserQuery[]): Promise<void> {
    if (this.schedulers.size === 0) return;
    if (this.#pausedLooks > 0) this.#pausedLooks -= 1;
    else {
      await this.#list.look();
      this.#pausedLooks = Math.floor((this.#list.section.value?.length ?? 0) / SCHEDULES_A_LOOK);
    }
    // Whether a schedule has failed twice in a row is in its history only.
    const failing = (this.#list.section.value ?? []).filter(({ outcome }) => FAILURES.has(outcome));
    const shown = new Set([...viewers.flatMap((each) => this.#shown(each) ?? []), ...failing]);
    await this.#histories.look([...shown], (scheduler) => this.schedulers.get(scheduler));
  }

  #shown({ schedules: page }: BrowserQuery): readonly ScheduleView[] | undefined {
    return this.#list.section.value?.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS);
  }

  #withHistory(view: ScheduleView): ScheduleView {
    return { ...view, history: this.#histories.of(view) };
  }

  async #listAll(): Promise<readonly ScheduleView[]> {
    const lists = await Promise.all(
      [...this.schedulers].map(async ([name, scheduler]) =>
        (await scheduler.list()).map((info) => scheduleView(info, name)),
      ),
    );
    return lists.flat();
  }
}

/** Returns the election in the name of a scheduler that was found. */
function electionIn(scheduler: string): string | undefined {
  if (!scheduler.startsWith("[")) return undefined;
  return (JSON.parse(scheduler) as readonly string[])[0];
}

function scheduleView(info: ScheduleInfo, scheduler: string): ScheduleView {
  const { name, next, last, lastTick, missed, paused, running, owner } = info;
  return {
    scheduler,
    election: electionIn(scheduler),
    name,
    next: next?.getTime(),
    last: last?.getTime(),
    tickAt: lastTick?.scheduledAt.getTime(),
    outcome: lastTick?.outcome,
    lateMs: lastTick?.lateMs,
    tookMs: lastTick?.tookMs,
    failure: lastTick?.error,
    missed,
    paused,
    running,
    owner: owner?.id,
    history: [],
  };
}
