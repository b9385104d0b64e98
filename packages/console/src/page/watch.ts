/**
 * Looks at everything once per `refresh`, however many browsers are open. Without an open browser, no look takes place.
 *
 * The cost of one look is bounded, however many keys, locks and jobs exist: docs/console/page.md has the numbers.
 */
import type { LeaderElection } from "@x/leader";
import type { LeaderScheduler } from "@x/leader/scheduler";
import type { Clock, Finding, Redlock } from "@x/redlock-core";
import { sleep } from "@x/redlock-core/kit";
import { protocolOf } from "@x/redlock-core/protocol";
import { ELECTIONS_A_LOOK, Elections } from "./elections.ts";
import { LockNodes } from "./lock-nodes.ts";
import { Outboxes, type OutboxSource } from "./outboxes.ts";
import { type AskedQueue, Queues } from "./queues.ts";
import { processesOf } from "./rules/fleet.ts";
import { problemsOf } from "./rules/problems.ts";
import { SearchTurns } from "./rules/searches.ts";
import { nameText } from "./rules/words.ts";
import { Schedules } from "./schedules.ts";
import {
  type BrowserQuery,
  jsonOf,
  type OwnState,
  type PageState,
  type ProblemView,
  type ProcessView,
  type SharedState,
} from "./state.ts";
import { TimeLine } from "./time-line.ts";
import { textOf, Watched } from "./watched.ts";

/** Every fifth look reads the nodes' quarantine, and every thirtieth look checks the nodes for problems. */
const QUARANTINE_LOOKS = 5;
const CHECK_LOOKS = 30;
/** Every fifth look counts the outboxes, which costs more than to ask a node. */
const OUTBOX_LOOKS = 5;
/** The most looks at the nodes' keys before `readAll` answers. */
const MOST_STEPS = 200;

interface WatchParts {
  readonly redlock: Redlock;
  readonly elections: readonly (string | LeaderElection)[];
  /** The schedulers to show. Undefined: all schedulers that are found. */
  readonly schedulers: readonly LeaderScheduler[] | undefined;
  readonly queues: readonly AskedQueue[];
  readonly outboxes: Readonly<Record<string, OutboxSource>>;
  readonly refresh: number;
  readonly hasActions: boolean;
}

/** A state, and its JSON. The shared part of the JSON is created once per look. */
export interface Told {
  readonly state: PageState;
  readonly text: () => string;
}

interface Viewer {
  readonly wanted: BrowserQuery;
  readonly tell: (told: Told) => void;
}

export class Watch {
  readonly redlock: Redlock;
  readonly elections: Elections;
  readonly queues: Queues;
  readonly #parts: WatchParts;
  readonly #clock: Clock;
  readonly #turns = new SearchTurns();
  readonly #viewers = new Set<Viewer>();
  readonly #nodes: LockNodes;
  readonly #findings: Watched<readonly Finding[]>;
  readonly #schedules: Schedules;
  readonly #outboxes: Outboxes;
  readonly #timeLine = new TimeLine();
  /** The shared state and its JSON. Undefined if the state has changed since. */
  #shared: { readonly state: SharedState; text: string | undefined } | undefined;
  #looks = 0;
  #looking: Promise<void> | undefined;
  #lookedAtMs = Number.NEGATIVE_INFINITY;
  #running: AbortController | undefined;

  constructor(parts: WatchParts) {
    const { redlock, elections, schedulers, queues, outboxes } = parts;
    const { clock } = protocolOf(redlock);
    this.#parts = parts;
    this.#clock = clock;
    this.redlock = redlock;
    this.elections = new Elections(redlock, elections);
    this.queues = new Queues(clock, queues, this.#turns);
    this.#outboxes = new Outboxes(clock, outboxes);
    this.#schedules = new Schedules(clock, this.elections, schedulers);
    this.#nodes = new LockNodes({
      redlock,
      turns: this.#turns,
      viewers: () => this.#wanted,
      onLook: (look) => {
        this.elections.found(look.elections);
        this.#schedules.found(look.schedulers);
      },
      onRestart: (node) => {
        const text = `Lock node ${nameText(node)} has restarted or was replaced`;
        this.#timeLine.add({ at: this.#clock.wallMs(), kind: "page", text });
      },
    });
    this.#findings = new Watched(clock, () => redlock.check());
  }

  get schedulers(): ReadonlyMap<string, LeaderScheduler> {
    return this.#schedules.schedulers;
  }

  /** Sends each look to a browser until the returned function is called. */
  join(viewer: Viewer): () => void {
    this.#viewers.add(viewer);
    // An error of the page must not end the application around it.
    if (this.#running === undefined) void this.#run().catch((error: unknown) => this.note(textOf(error)));
    else if (this.#looks > 0) viewer.tell(this.stateFor(viewer.wanted));
    return () => {
      this.#viewers.delete(viewer);
      if (this.#viewers.size === 0) this.#stop();
    };
  }

  /** Looks at everything, unless the last look is recent. */
  async fresh(): Promise<void> {
    if (this.#clock.monotonicMs() - this.#lookedAtMs < this.#parts.refresh) return;
    await this.#look();
  }

  /**
   * Reads everything, even what the page finds and reads over several looks, and returns the problems. Searches at most
   * `MOST_STEPS` times 1,000 keys of each node.
   */
  async readAll(): Promise<{ readonly problems: readonly ProblemView[]; readonly now: number }> {
    for (let step = 0; step < MOST_STEPS && !this.#nodes.isComplete; step += 1) await this.#nodes.look();
    // The first look is complete. Elections and histories of failing schedules are read in turns.
    this.#looks = 0;
    await this.#look();
    const turns = 1 + Math.ceil(this.elections.views.length / ELECTIONS_A_LOOK);
    for (let turn = 1; turn < Math.max(turns, 3); turn += 1) await this.#look();
    return {
      problems: this.#timeLine.problems.filter(({ solvedAt }) => solvedAt === undefined),
      now: this.#clock.wallMs(),
    };
  }

  /** Shows a line to everybody who has the page open, as a mark on the time line. */
  note(text: string, kind: "note" | "fault" = "note"): void {
    this.#timeLine.add({ at: this.#clock.wallMs(), kind, text });
    this.#shared = undefined;
  }

  async close(): Promise<void> {
    this.#viewers.clear();
    this.#stop();
    await this.elections.close();
  }

  /** Whether the results for a browser are known, or can still be searched before the next look. */
  canShow({ findLock, queue, findKey }: BrowserQuery): boolean {
    return this.#nodes.canFind(findLock) && this.queues.canFind(queue, findKey);
  }

  /** Returns the state for a browser. The shared part is created once per look. */
  stateFor(wanted: BrowserQuery): Told {
    const shared = (this.#shared ??= { state: this.#sharedState(), text: undefined });
    const own = this.#ownState(wanted);
    const text = (): string => {
      shared.text ??= jsonOf(shared.state);
      return `${shared.text.slice(0, -1)},${jsonOf(own).slice(1)}`;
    };
    return { state: { ...shared.state, ...own }, text };
  }

  get #wanted(): readonly BrowserQuery[] {
    return Array.from(this.#viewers, ({ wanted }) => wanted);
  }

  #sharedState(): SharedState {
    return {
      actions: this.#parts.hasActions,
      live: this.#nodes.live,
      problems: this.#timeLine.problems,
      processes: this.#processes(),
      nodes: this.#nodes.section,
      semaphores: this.#nodes.semaphores,
      findings: this.#findings.section,
      elections: this.elections.views,
      queues: this.queues.views,
      outboxes: this.#outboxes.views,
      events: this.#timeLine.marks,
    };
  }

  #ownState(wanted: BrowserQuery): OwnState {
    return {
      now: this.#clock.wallMs(),
      schedules: this.#schedules.sectionFor(wanted),
      locks: this.#nodes.locksFor(wanted),
      keys: this.queues.keys(wanted),
      key: this.queues.key(wanted),
    };
  }

  #processes(): readonly ProcessView[] | undefined {
    const { reports } = this.queues;
    if (reports === undefined) return undefined;
    const leaders = this.elections.views.flatMap(({ name, leader }) =>
      leader === undefined ? [] : ([[name, leader.id]] as const),
    );
    return processesOf(reports, new Map(leaders));
  }

  #findProblems(): void {
    const now = this.#clock.wallMs();
    const found = problemsOf({
      now,
      nodes: this.#nodes.section,
      findings: this.#findings.section.value ?? [],
      processes: this.#processes() ?? [],
      elections: this.elections.views,
      schedules: this.#schedules.views,
      queues: this.queues.views,
      outboxes: this.#outboxes.views,
    });
    this.#timeLine.record(found, now);
  }

  async #run(): Promise<void> {
    const running = new AbortController();
    this.#running = running;
    // What the last audience saw may be long ago: the first look reads everything.
    this.#looks = 0;
    while (!running.signal.aborted) {
      await this.#look();
      for (const viewer of this.#viewers) viewer.tell(this.stateFor(viewer.wanted));
      await sleep(this.#clock, this.#parts.refresh, running.signal).catch(() => undefined);
    }
  }

  #stop(): void {
    this.#running?.abort();
    this.#running = undefined;
  }

  /** Runs one look at a time. Never rejects: each error is shown in its own section. */
  #look(): Promise<void> {
    this.#looking ??= this.#lookOnce().finally(() => {
      this.#looking = undefined;
      this.#shared = undefined;
      this.#lookedAtMs = this.#clock.monotonicMs();
    });
    return this.#looking;
  }

  async #lookOnce(): Promise<void> {
    const at = this.#looks;
    this.#looks += 1;
    this.#turns.renew();
    const viewers = this.#wanted;
    const answering = this.#nodes.section.value?.answering;
    const checked = at % CHECK_LOOKS === 0;
    await Promise.all([
      this.#nodes.look(),
      this.elections.look(),
      this.queues.look(viewers),
      this.#schedules.look(viewers),
      ...(at % QUARANTINE_LOOKS === 0 ? [this.#nodes.lookAtQuarantine()] : []),
      ...(at % OUTBOX_LOOKS === 0 ? [this.#outboxes.look()] : []),
      ...(checked ? [this.#findings.look()] : []),
    ]);
    // A finding about a node that was away is wrong once the node answers again.
    const hasChanged = this.#nodes.section.value?.answering !== answering;
    if (hasChanged && !checked && this.#viewers.size > 0) await this.#findings.look();
    this.#findProblems();
  }
}
