/**
 * Looks at everything once per `refresh`, however many browsers are open. Without an open browser, no look takes place.
 *
 * The cost of one look is bounded, however many keys, locks and jobs exist: docs/console/page.md has the numbers.
 */
import type { LeaderElection } from "@x/leader";
import { LeaderScheduler, type ScheduleInfo, type TickOutcome } from "@x/leader/scheduler";
import type { Clock, Finding, NodeInspection, Redlock } from "@x/redlock-core";
import { sleep } from "@x/redlock-core/kit";
import { type NodeReply, protocolOf, slotOf } from "@x/redlock-core/protocol";
import { ELECTIONS_A_LOOK, Elections } from "./elections.ts";
import { Histories } from "./histories.ts";
import { Holders } from "./holders.ts";
import { LOOK, MASTERS } from "./look.lua.ts";
import { Outboxes, type OutboxSource } from "./outboxes.ts";
import { type Asked, Queues } from "./queues.ts";
import { processesOf } from "./rules/fleet.ts";
import { type FoundScheduler, LockTable, parseLook } from "./rules/lock-table.ts";
import { hasSlot, type Master, parseMasters } from "./rules/masters.ts";
import { problemsOf, trackedProblems } from "./rules/problems.ts";
import { SearchTurns } from "./rules/searches.ts";
import {
  jsonOf,
  type LiveView,
  type MarkView,
  type NodesView,
  type OwnState,
  PAGE_ROWS,
  type PageState,
  type ProblemCode,
  type ProblemView,
  type ProcessView,
  type ScheduleView,
  SHOWN_TICKS,
  type SharedState,
  type Wanted,
} from "./state.ts";
import { textOf, Watched } from "./watched.ts";

/** How many keys each node reads per look. */
const SEARCHED_KEYS = 1_000;
/** The most locks on open pages that each look reads again. */
const MOST_SHOWN = 500;
/** Every fifth look reads the nodes' quarantine, and every thirtieth look checks the nodes for problems. */
const QUARANTINE_LOOKS = 5;
const CHECK_LOOKS = 30;
/** Every fifth look counts the outboxes, which costs more than to ask a node. */
const OUTBOX_LOOKS = 5;
/** How many schedules every look may list. More schedules are listed less often. */
const SCHEDULES_A_LOOK = 500;
const FAILURES: ReadonlySet<TickOutcome | undefined> = new Set(["failed", "unfinished"]);
const MOST_SCHEDULERS = 20;
/** A resource that is never locked. Inspecting it shows the quarantine of the nodes. */
const PROBE = "x:console";
const KEPT_EVENTS = 50;
/** The most looks at the nodes' keys before `readAll` answers. */
const MOST_STEPS = 200;
/** Problems whose beginning and end are marks on the time line. */
const MARKED: ReadonlySet<ProblemCode> = new Set([
  "NO_WORKER",
  "KEY_HALTED",
  "NO_QUORUM",
  "NO_LEADER",
  "LOCK_LOST",
  "NODE_DOWN",
  "NODE_QUARANTINED",
]);

interface WatchParts {
  readonly redlock: Redlock;
  readonly elections: readonly (string | LeaderElection)[];
  /** The schedulers to show. Undefined: all schedulers that are found. */
  readonly schedulers: readonly LeaderScheduler[] | undefined;
  readonly queues: readonly Asked[];
  readonly outboxes: Readonly<Record<string, OutboxSource>>;
  readonly refresh: number;
  readonly hasActions: boolean;
}

/** The answer of a node, with the node's position. */
interface Answer {
  readonly at: number;
  readonly reply: NodeReply;
}

/** A state, and its JSON. The shared part of the JSON is created once per look. */
export interface Told {
  readonly state: PageState;
  readonly text: () => string;
}

interface Viewer {
  readonly wanted: Wanted;
  readonly tell: (told: Told) => void;
}

export class Watch {
  readonly elections: Elections;
  readonly queues: Queues;
  /**
   * The schedulers by a name that is the same in other processes: election and `keyPrefix`, or the position in the
   * option.
   */
  readonly schedulers: Map<string, LeaderScheduler>;
  readonly redlock: Redlock;
  readonly #parts: WatchParts;
  readonly #clock: Clock;
  readonly #prefix: string;
  readonly #turns = new SearchTurns();
  readonly #locks: LockTable;
  readonly #viewers = new Set<Viewer>();
  readonly #nodes: Watched<NodesView>;
  readonly #quarantine: Watched<readonly NodeInspection[]>;
  readonly #findings: Watched<readonly Finding[]>;
  readonly #schedules: Watched<readonly ScheduleView[]>;
  readonly #histories = new Histories();
  readonly #outboxes: Outboxes;
  readonly #holders: Holders;
  readonly #events: MarkView[] = [];
  #problems: readonly ProblemView[] = [];
  /** Since when each node has not answered, by its position. */
  readonly #downSince = new Map<number, number>();
  /** The shared state and its JSON. Undefined if the state has changed since. */
  #shared: { readonly state: SharedState; text: string | undefined } | undefined;
  #masters: readonly Master[] = [];
  #looks = 0;
  #schedulesPause = 0;
  #looking: Promise<void> | undefined;
  #lookedAtMs = Number.NEGATIVE_INFINITY;
  #running: AbortController | undefined;

  constructor(parts: WatchParts) {
    const { redlock, elections, schedulers, queues, outboxes } = parts;
    const protocol = protocolOf(redlock);
    const clock = protocol.clock;
    this.#parts = parts;
    this.#clock = clock;
    this.redlock = redlock;
    this.schedulers = new Map((schedulers ?? []).map((each, at) => [String(at), each]));
    this.elections = new Elections(redlock, elections);
    this.queues = new Queues(clock, queues, this.#turns);
    this.#outboxes = new Outboxes(clock, outboxes);
    this.#prefix = protocol.lockKey("x").slice(0, -1);
    this.#locks = new LockTable(redlock.quorum, this.#prefix, this.#turns);
    this.#holders = new Holders((clients) => protocol.namesOf(clients));
    this.#nodes = new Watched(clock, () => this.#lookAtNodes());
    this.#quarantine = new Watched(clock, async () => (await redlock.inspect(PROBE)).nodes);
    this.#findings = new Watched(clock, () => redlock.check());
    this.#schedules = new Watched(clock, () => this.#listSchedules());
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
    for (let step = 0; step < MOST_STEPS && !this.#locks.isComplete; step += 1) await this.#nodes.look();
    // The first look is complete. Elections and histories of failing schedules are read in turns.
    this.#looks = 0;
    await this.#look();
    const turns = 1 + Math.ceil(this.elections.views.length / ELECTIONS_A_LOOK);
    for (let turn = 1; turn < Math.max(turns, 3); turn += 1) await this.#look();
    return { problems: this.#problems.filter(({ solvedAt }) => solvedAt === undefined), now: this.#clock.wallMs() };
  }

  /** Shows a line to everybody who has the page open, as a mark on the time line. */
  note(text: string, kind: "note" | "fault" = "note"): void {
    this.#mark({ at: this.#clock.wallMs(), kind, text });
  }

  async close(): Promise<void> {
    this.#viewers.clear();
    this.#stop();
    await this.elections.close();
  }

  /** Whether the results for a browser are known, or can still be searched before the next look. */
  canShow({ findLock, queue, findKey }: Wanted): boolean {
    return this.#locks.find(findLock) !== undefined && this.queues.canFind(queue, findKey);
  }

  /** Returns the state for a browser. The shared part is created once per look. */
  stateFor(wanted: Wanted): Told {
    const shared = (this.#shared ??= { state: this.#sharedState(), text: undefined });
    const own = this.#ownState(wanted);
    const text = (): string => {
      shared.text ??= jsonOf(shared.state);
      return `${shared.text.slice(0, -1)},${jsonOf(own).slice(1)}`;
    };
    return { state: { ...shared.state, ...own }, text };
  }

  #sharedState(): SharedState {
    return {
      actions: this.#parts.hasActions,
      live: this.#live(),
      problems: this.#problems,
      processes: this.#processes(),
      nodes: this.#nodes.section,
      findings: this.#findings.section,
      elections: this.elections.views,
      queues: this.queues.views,
      outboxes: this.#outboxes.views,
      // A copy: a stream compares this state with the next one.
      events: [...this.#events],
    };
  }

  #ownState(wanted: Wanted): OwnState {
    const { section: nodes } = this.#nodes;
    const schedules = this.#schedules.section;
    const shown = this.#shownSchedules(wanted)?.map((view) => ({ ...view, history: this.#histories.of(view) }));
    return {
      now: this.#clock.wallMs(),
      schedules: {
        ...schedules,
        value: shown === undefined ? undefined : { schedules: shown, total: schedules.value?.length ?? 0 },
      },
      locks: { value: this.#locksFor(wanted), error: this.#lockError(nodes.value, nodes.error), at: nodes.at },
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

  /** Looks for problems, and marks what has changed on the time line. */
  #judge(): void {
    const schedules = this.#schedules.section.value ?? [];
    const now = this.#clock.wallMs();
    const found = problemsOf({
      now,
      nodes: this.#nodes.section,
      findings: this.#findings.section.value ?? [],
      processes: this.#processes() ?? [],
      elections: this.elections.views,
      schedules: schedules.map((view) => ({ ...view, history: this.#histories.of(view) })),
      queues: this.queues.views,
      outboxes: this.#outboxes.views,
    });
    const before = this.#problems;
    this.#problems = trackedProblems(before, found, now);
    const wasOpen = new Set(before.flatMap(({ id, solvedAt }) => (solvedAt === undefined ? id : [])));
    for (const { id, code, title, since, solvedAt } of this.#problems) {
      if (!MARKED.has(code)) continue;
      if (solvedAt === undefined && !wasOpen.has(id)) this.#mark({ at: since, kind: "page", text: title });
      if (solvedAt !== undefined && wasOpen.has(id))
        this.#mark({ at: solvedAt, kind: "page", text: `Solved: ${title}` });
    }
  }

  #mark(mark: MarkView): void {
    // Of two marks of the same ms, the later one stays first.
    this.#events.unshift(mark);
    this.#events.sort((one, other) => other.at - one.at);
    this.#events.splice(KEPT_EVENTS);
    this.#shared = undefined;
  }

  #live(): LiveView {
    const { value, error: lookError, at } = this.#nodes.section;
    const error = this.#lockError(value, lookError);
    return { isLive: error === undefined && value !== undefined, at, error };
  }

  #lockError(nodes: NodesView | undefined, error: string | undefined): string | undefined {
    if (error !== undefined || nodes === undefined || nodes.answering >= nodes.quorum) return error;
    if (nodes.isCluster) return `${nodes.answering} of ${nodes.nodes.length} masters answer, each has locks of its own`;
    return `${nodes.answering} of ${nodes.nodes.length} nodes answer, ${nodes.quorum} make a quorum`;
  }

  #locksFor({ locks: page, findLock }: Wanted): PageState["locks"]["value"] {
    const found = this.#locks.find(findLock);
    const nowMs = this.#clock.monotonicMs();
    const shown = found?.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS) ?? [];
    return {
      locks: shown.flatMap((key) => {
        const view = this.#locks.viewOf(key, nowMs);
        return view === undefined ? [] : { ...view, owner: view.owner ?? this.#holders.of(this.#locks.clientOf(key)) };
      }),
      total: this.#locks.size,
      found: found?.length ?? 0,
      isComplete: found !== undefined && this.#locks.isComplete,
    };
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
    const viewers = [...this.#viewers].map(({ wanted }) => wanted);
    const answering = this.#nodes.section.value?.answering;
    const checked = at % CHECK_LOOKS === 0;
    await Promise.all([
      this.#nodes.look(),
      this.elections.look(),
      this.queues.look(viewers),
      this.#lookAtSchedules(),
      ...(at % QUARANTINE_LOOKS === 0 ? [this.#quarantine.look()] : []),
      ...(at % OUTBOX_LOOKS === 0 ? [this.#outboxes.look()] : []),
      ...(checked ? [this.#findings.look()] : []),
    ]);
    // A finding about a node that was away is wrong once the node answers again.
    const hasChanged = this.#nodes.section.value?.answering !== answering;
    if (hasChanged && !checked && this.#viewers.size > 0) await this.#findings.look();
    this.#judge();
  }

  async #lookAtNodes(): Promise<NodesView> {
    const { redlock } = this;
    const { isCluster } = protocolOf(redlock);
    const shown = this.#shownLocks();
    const { cursors } = this.#locks;
    const args = [this.#prefix, SEARCHED_KEYS, cursors.length / 2, ...cursors];
    const wallMs = this.#clock.wallMs();
    const answers = isCluster ? await this.#askMasters(args, shown) : await this.#askNodes([...args, ...shown]);
    const nowMs = this.#clock.monotonicMs();
    const answered = answers.filter(({ reply }) => reply.ok).length;
    const hasQuorum = answered >= (isCluster ? answers.length : redlock.quorum);
    // Nodes are identified by their position, because two nodes may have the same name by mistake.
    const nodes = answers.map(({ at, reply }) => {
      const quarantineLeftMs = this.#quarantine.section.value?.[at]?.quarantineLeftMs;
      if (reply.ok) this.#downSince.delete(at);
      else if (!this.#downSince.has(at)) this.#downSince.set(at, wallMs);
      const downSince = this.#downSince.get(at);
      const known = { node: reply.node, tookMs: Math.round(reply.tookMs), quarantineLeftMs, downSince };
      if (!reply.ok) {
        // Without a quorum the page shows what was last known, with its age.
        if (hasQuorum) this.#locks.forget(at);
        return { ...known, error: textOf(reply.error), clockMs: undefined };
      }
      const look = parseLook(reply.value);
      this.#locks.add(at, look, { asked: shown, wallMs, nowMs });
      this.elections.found(look.elections);
      if (this.#parts.schedulers === undefined) this.#foundSchedulers(look.schedulers);
      return { ...known, error: undefined, clockMs: Math.round(look.nowMs - wallMs - reply.tookMs / 2) };
    });
    this.#locks.renew(new Set([...this.#viewers].map(({ wanted }) => wanted.findLock)));
    await this.#holders.look(this.#shownLocks().map((key) => this.#locks.clientOf(key)));
    const answering = nodes.filter(({ error }) => error === undefined).length;
    return { nodes, isCluster, quorum: isCluster ? nodes.length : redlock.quorum, answering };
  }

  async #askNodes(args: readonly (string | number)[]): Promise<readonly Answer[]> {
    const replies = await protocolOf(this.redlock).run(LOOK, { keys: [], args });
    return replies.map((reply, at) => ({ at, reply }));
  }

  /** Asks each master of the Cluster, with those shown locks that belong to the master. */
  async #askMasters(args: readonly (string | number)[], shown: readonly string[]): Promise<readonly Answer[]> {
    const protocol = protocolOf(this.redlock);
    const [told] = await protocol.run(MASTERS, { keys: [], args: [] });
    // The node that answers may be missing. The masters that are already known may still answer.
    if (told?.ok === true) this.#known(parseMasters(told.value, this.#masters));
    else if (this.#masters.length === 0) throw told?.error ?? new Error("no node");
    const asking = this.#masters.map(async (master): Promise<readonly Answer[]> => {
      const [[slot] = [0]] = master.slots;
      const own = shown.filter((key) => hasSlot(master, slotOf(key)));
      const replies = await protocol.run(LOOK, { keys: [protocol.keyInSlot(slot)], args: [...args, ...own] });
      return replies.map((reply) => ({ at: master.at, reply: { ...reply, node: master.name } }));
    });
    return (await Promise.all(asking)).flat();
  }

  #known(masters: readonly Master[]): void {
    for (const { at } of this.#masters) if (!masters.some((master) => master.at === at)) this.#locks.forget(at);
    this.#masters = masters;
  }

  #foundSchedulers(found: readonly FoundScheduler[]): void {
    for (const { election, keyPrefix } of found) {
      const name = JSON.stringify([election, keyPrefix]);
      const asked = this.elections.get(election);
      if (asked === undefined || this.schedulers.has(name) || this.schedulers.size >= MOST_SCHEDULERS) continue;
      const prefix = keyPrefix === "" ? {} : { keyPrefix };
      this.schedulers.set(name, new LeaderScheduler({ election: asked, history: SHOWN_TICKS, ...prefix }));
    }
  }

  /** The keys of the locks that browsers show. */
  #shownLocks(): readonly string[] {
    const shown = new Set<string>();
    for (const { wanted } of this.#viewers) {
      const { locks: page, findLock } = wanted;
      for (const key of this.#locks.find(findLock)?.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS) ?? []) {
        if (shown.size < MOST_SHOWN) shown.add(key);
      }
    }
    return [...shown];
  }

  #shownSchedules({ schedules: page }: Wanted): readonly ScheduleView[] | undefined {
    return this.#schedules.section.value?.slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS);
  }

  async #lookAtSchedules(): Promise<void> {
    if (this.schedulers.size === 0) return;
    await this.#listAllSchedules();
    const wanted = [...this.#viewers].map((viewer) => viewer.wanted);
    // Whether a schedule has failed twice in a row is in its history only.
    const failing = (this.#schedules.section.value ?? []).filter(({ outcome }) => FAILURES.has(outcome));
    const shown = new Set([...wanted.flatMap((each) => this.#shownSchedules(each) ?? []), ...failing]);
    await this.#histories.look([...shown], (scheduler) => this.schedulers.get(scheduler));
  }

  async #listAllSchedules(): Promise<void> {
    if (this.#schedulesPause > 0) {
      this.#schedulesPause -= 1;
      return;
    }
    await this.#schedules.look();
    this.#schedulesPause = Math.floor((this.#schedules.section.value?.length ?? 0) / SCHEDULES_A_LOOK);
  }

  async #listSchedules(): Promise<readonly ScheduleView[]> {
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
