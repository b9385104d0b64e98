/**
 * The sections of the page. Each section is read from its own source and shows its own error, so a source that fails
 * hides no other section. The problems are found in all sections together.
 *
 * The cost of one look is bounded, however many keys, locks and jobs exist: docs/console/page.md has the numbers.
 */
import type { LeaderElection } from "@x/leader";
import type { LeaderScheduler } from "@x/leader/scheduler";
import type { Clock, Finding, Redlock } from "@x/redlock-core";
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
import type { BrowserQuery, MarkView, OwnState, ProblemView, ProcessView, SharedState } from "./state.ts";
import { TimeLine } from "./time-line.ts";
import { Watched } from "./watched.ts";

/** Every fifth look reads the nodes' quarantine, and every thirtieth look checks the nodes for problems. */
const QUARANTINE_LOOKS = 5;
const CHECK_LOOKS = 30;
/** Every fifth look counts the outboxes, which costs more than to ask a node. */
const OUTBOX_LOOKS = 5;
/** The most looks at the nodes' keys before `searchNodes` resolves. */
const MOST_STEPS = 200;

export interface Sources {
  readonly redlock: Redlock;
  readonly elections: readonly (string | LeaderElection)[];
  /** The schedulers to show. Undefined: all schedulers that are found. */
  readonly schedulers: readonly LeaderScheduler[] | undefined;
  readonly queues: readonly AskedQueue[];
  readonly outboxes: Readonly<Record<string, OutboxSource>>;
}

export class Sections {
  readonly redlock: Redlock;
  readonly elections: Elections;
  readonly queues: Queues;
  readonly #clock: Clock;
  readonly #viewers: () => readonly BrowserQuery[];
  readonly #turns = new SearchTurns();
  readonly #nodes: LockNodes;
  readonly #findings: Watched<readonly Finding[]>;
  readonly #schedules: Schedules;
  readonly #outboxes: Outboxes;
  readonly #timeLine = new TimeLine();

  /** `viewers` returns what the open browsers want to see. */
  constructor({ redlock, elections, schedulers, queues, outboxes }: Sources, viewers: () => readonly BrowserQuery[]) {
    const { clock } = protocolOf(redlock);
    this.redlock = redlock;
    this.#clock = clock;
    this.#viewers = viewers;
    this.elections = new Elections(redlock, elections);
    this.queues = new Queues(clock, queues, this.#turns);
    this.#outboxes = new Outboxes(clock, outboxes);
    this.#schedules = new Schedules(clock, this.elections, schedulers);
    this.#nodes = new LockNodes({
      redlock,
      turns: this.#turns,
      viewers,
      onLook: (look) => {
        this.elections.found(look.elections);
        this.#schedules.found(look.schedulers);
      },
      onRestart: (node) => this.mark(`Lock node ${nameText(node)} has restarted or was replaced`, "page"),
    });
    this.#findings = new Watched(clock, () => redlock.check());
  }

  get schedulers(): ReadonlyMap<string, LeaderScheduler> {
    return this.#schedules.schedulers;
  }

  /** The problems that are open now. */
  get openProblems(): readonly ProblemView[] {
    return this.#timeLine.problems.filter(({ solvedAt }) => solvedAt === undefined);
  }

  /** The number of looks until each election and each history of a failing schedule was read. */
  get looksForAll(): number {
    return Math.max(1 + Math.ceil(this.elections.views.length / ELECTIONS_A_LOOK), 3);
  }

  /** Adds a mark to the time line. */
  mark(text: string, kind: MarkView["kind"]): void {
    this.#timeLine.add({ at: this.#clock.wallMs(), kind, text });
  }

  /** Whether the results for a browser are known, or can still be searched before the next look. */
  canShow({ findLock, queue, findKey }: BrowserQuery): boolean {
    return this.#nodes.canFind(findLock) && this.queues.canFind(queue, findKey);
  }

  /** Searches at most `MOST_STEPS` times 1,000 keys of each lock node. */
  async searchNodes(): Promise<void> {
    for (let step = 0; step < MOST_STEPS && !this.#nodes.isComplete; step += 1) await this.#nodes.look();
  }

  /**
   * Runs the look with this number, which decides whether quarantine, outboxes and findings are read. Look 0 reads all
   * three. While browsers are open, each look also reads the findings if the number of answering nodes has changed.
   */
  async look(number: number): Promise<void> {
    this.#turns.renew();
    const viewers = this.#viewers();
    const answering = this.#nodes.section.value?.answering;
    const isChecked = number % CHECK_LOOKS === 0;
    await Promise.all([
      this.#nodes.look(),
      this.elections.look(),
      this.queues.look(viewers),
      this.#schedules.look(viewers),
      ...(number % QUARANTINE_LOOKS === 0 ? [this.#nodes.lookAtQuarantine()] : []),
      ...(number % OUTBOX_LOOKS === 0 ? [this.#outboxes.look()] : []),
      ...(isChecked ? [this.#findings.look()] : []),
    ]);
    // A finding about a node that was away is wrong once the node answers again.
    const hasChanged = this.#nodes.section.value?.answering !== answering;
    if (hasChanged && !isChecked && this.#viewers().length > 0) await this.#findings.look();
    this.#findProblems();
  }

  /** The part of the state that all browsers share. */
  get shared(): Omit<SharedState, "actions"> {
    return {
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

  /** Returns the part of the state that one browser wants to see. */
  ownFor(wanted: BrowserQuery): OwnState {
    return {
      now: this.#clock.wallMs(),
      schedules: this.#schedules.sectionFor(wanted),
      locks: this.#nodes.locksFor(wanted),
      keys: this.queues.keys(wanted),
      key: this.queues.key(wanted),
    };
  }

  async close(): Promise<void> {
    await this.elections.close();
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
}
