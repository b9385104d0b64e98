/**
 * An election has at most one leader among any number of processes, through a lock on 1 to N Redis nodes.
 *
 * Guaranteed, as long as the lock nodes meet the requirements of redlock-core:
 * - At most one candidate has a term whose `isCurrent()` is true, while clock rates differ by less than
 *   `leaseDuration / renewDeadline`.
 * - Terms strictly increase.
 * - A candidate campaigns again after every loss, whatever errors the nodes return.
 * - Two runs of the task never overlap in one process.
 * - The lock is released after the task has ended, not before.
 *
 * Not guaranteed: that running work stops in time. Pass `term.fencingToken` to the store.
 */
import { hostname } from "node:os";
import type { Redlock } from "@x/redlock-core";
import { abortSignal, callback, deferred, linkSignals, Schema } from "@x/redlock-core/kit";
import { protocolOf, redlock as REDLOCK } from "@x/redlock-core/protocol";
import { ElectionBusyError, ElectionStoppedError } from "../errors.ts";
import type { LeaderEvents, Unsubscribe } from "../events/events.ts";
import { keepAlive } from "../kit/keep-alive.ts";
import type { LeaderTerm } from "../leader-term.ts";
import { type LeaderElectionOptions, resolveOptions } from "../options.ts";
import { claimOf, type LeaderInfo } from "../rules/record.ts";
import type { ElectionState } from "../rules/state.ts";
import { durationOrNoneMs } from "../rules/values.ts";
import { type LeaseSource, localLeases } from "../term/lease.ts";
import { Standing } from "../term/standing.ts";
import type { HeldTerm } from "../term/term.ts";
import { workerLeases } from "../term/worker/worker-lease.ts";
import { CandidateRun, leadsOnGrant } from "./candidate-run.ts";
import { LIMIT_DRAIN } from "./drain.ts";
import { LeaderRun, type LeaderTask } from "./leader-run.ts";
import { NodeWatch } from "./node-watch.ts";
import { infoOf, Observer } from "./observer.ts";
import { resolveTaskOptions, STOP, type StopOptions, type TaskOptions } from "./options.ts";

export interface LeaderHealth {
  /** False while the task overruns its lease by more than the tolerated time, and after the election was stopped. */
  readonly healthy: boolean;
  readonly state: ElectionState["name"];
  readonly term?: number;
  /** Time until the deadline, in ms. */
  readonly remainingMs?: number;
  /** Time since the last successful renewal, in ms. */
  readonly sinceRenewalMs?: number;
  /** Number of renewals that failed in a row. */
  readonly renewFailures: number;
  /** Time for which a task has been running without its lease, in ms. */
  readonly overrunMs: number;
  /** Whether `run()` campaigns or leads. */
  readonly running: boolean;
  /** The last error of a node, an attempt or a renewal. Undefined if a quorum has answered since. */
  readonly lastError?: Error;
}

/**
 * Lifetime of a request to resign on the nodes. The leader sees the request with its next record, which may fail for a
 * while.
 */
const REQUEST_MS = 3_600_000;

const SIGNAL = new Schema({ signal: abortSignal.optional() });
const TASK = callback<LeaderTask>();
const HEALTH = new Schema({ maxTolerableExpiredLease: durationOrNoneMs.default(0) });

/** The current work of this object. An object does one work at a time, and `stop()` waits for the end of the work. */
interface Work {
  readonly name: "campaign" | "run";
  readonly ended: Promise<void>;
}

export class LeaderElection implements AsyncDisposable {
  readonly name: string;
  readonly id: string;
  readonly #leases: LeaseSource;
  readonly #observer: Observer;
  readonly #nodes: NodeWatch;
  readonly #standing: Standing<HeldTerm>;
  readonly #candidate: CandidateRun;
  readonly #leader: LeaderRun;
  readonly #stop = new AbortController();
  #work: Work | undefined;
  #stopped: Promise<void> | undefined;

  /**
   * Creates a candidate. The candidate does nothing until a method is called.
   * @throws TypeError, RangeError naming option, rule and value
   */
  constructor(redlock: Redlock, options: LeaderElectionOptions) {
    REDLOCK.of("redlock", redlock);
    const { maxTtl, driftFactor, nodeTimeout } = redlock.options;
    const defaultId = `${hostname()}/${process.pid}`;
    const resolved = resolveOptions(options, { defaultId, maxTtl, driftFactor, nodeTimeout });
    const { id, name, resource, value, worker } = resolved;
    protocolOf(redlock).keys.checkResource(resource);
    const standing = new Standing<HeldTerm>(redlock, resolved);
    const note = leadsOnGrant(resolved) ? claimOf({ id, instance: standing.instance, value }) : "";
    this.name = name;
    this.id = id;
    this.#standing = standing;
    this.#leases =
      worker === undefined
        ? localLeases(redlock, { ...resolved, note })
        : workerLeases(resolved, worker, standing.clock, note);
    this.#observer = new Observer(standing);
    this.#nodes = new NodeWatch(standing);
    this.#candidate = new CandidateRun({
      standing,
      leases: this.#leases,
      nodes: this.#nodes,
      vacancyMs: () => this.#observer.vacancyMs,
    });
    this.#leader = new LeaderRun(standing, this.#candidate);
    Object.defineProperty(this, LIMIT_DRAIN, { value: (timeoutMs: number) => this.#leader.limitDrain(timeoutMs) });
  }

  get state(): ElectionState["name"] {
    return this.#standing.state.name;
  }

  /** The `Redlock` that the election's locks are on. */
  get redlock(): Redlock {
    return this.#standing.redlock;
  }

  /**
   * The current term of this process, even while the term is draining. Undefined if the process does not lead. Reads
   * the clocks, and sends no request.
   */
  get current(): LeaderTerm | undefined {
    const { state } = this.#standing;
    const leads = state.name === "leader" || state.name === "draining";
    return leads && state.term.isCurrent() ? state.term : undefined;
  }

  /** Reports whether this process leads. Reads the clocks, and sends no request. */
  isLeader(): boolean {
    return this.current !== undefined;
  }

  /**
   * Waits until this candidate is elected. The process stays alive until then. The caller owns the term:
   * `await using term = await election.campaign()`, or `term.resign()`.
   * @throws the signal's reason, ElectionStoppedError, ElectionBusyError, RedlockClosedError
   */
  async campaign(options: { readonly signal?: AbortSignal | undefined } = {}): Promise<LeaderTerm> {
    return await this.#asCandidate(options, (signal) => this.#candidate.campaign(signal));
  }

  /**
   * Makes one attempt, without waiting for another leader or a cooldown. If the option `lockDelay` applies,
   * a successful attempt still waits for this delay. Resolves with undefined if another candidate holds the lock, if
   * this candidate is not eligible, or if the lease is lost before the term begins.
   * @throws the signal's reason, ElectionStoppedError, ElectionBusyError, RedlockClosedError, QuorumUnreachableError
   */
  async tryCampaign(options: { readonly signal?: AbortSignal | undefined } = {}): Promise<LeaderTerm | undefined> {
    return await this.#asCandidate(options, (signal) => this.#candidate.tryOnce(signal));
  }

  /**
   * Campaigns forever and runs `task` in each term. Two runs of a task never overlap. If the task of an earlier call
   * outlasted its `drainTimeout`, this call first waits for the end of that task.
   *
   * The process stays alive until the call resolves: after `stop()`, after `signal` aborted, or by `onTaskEnd: "stop"`.
   * The task has then ended, unless the task outlasted `drainTimeout`.
   * @throws ElectionStoppedError, ElectionBusyError, RedlockClosedError, TypeError, RangeError
   */
  async run(task: LeaderTask, options?: TaskOptions): Promise<void> {
    TASK.of("task", task);
    const resolved = resolveTaskOptions(options);
    await this.#do("run", () => this.#leader.run(task, resolved, this.#stop.signal));
  }

  /**
   * Asks the current leader, in any process, to drain and resign. Resolves with false if there is no leader.
   * @throws QuorumUnreachableError
   */
  async requestResign(): Promise<boolean> {
    const { ledger } = this.#standing;
    const held = await ledger.held();
    if (held === undefined) return false;
    await ledger.requestResign(held.record.term, REQUEST_MS);
    return true;
  }

  /**
   * Asks a quorum of the nodes for the current leader. Null if there is no leader, or if the nodes do not know the
   * leader yet.
   * @throws QuorumUnreachableError
   */
  async leader(): Promise<LeaderInfo | null> {
    const { instance, ledger } = this.#standing;
    const held = await ledger.held();
    return held === undefined ? null : infoOf(held, instance);
  }

  /**
   * Iterates over the current leader, then each change, in order: each term once, null while there is no leader. If a
   * leader proclaims several values, earlier values may be skipped.
   *
   * Works without a campaign, while a quorum of nodes keeps its data. The iteration ends when `signal` aborts, the
   * election stops or its `Redlock` is closed, and keeps the process alive until then. A consumer that is 1,000 values
   * behind loses the oldest values.
   */
  async *observe(
    options: { readonly signal?: AbortSignal | undefined } = {},
  ): AsyncGenerator<LeaderInfo | null, void, undefined> {
    const linked = linkSignals(SIGNAL.resolve(options).signal, this.#stop.signal, protocolOf(this.redlock).closed);
    const letGo = keepAlive(this.#standing.clock);
    try {
      yield* this.#observer.values(linked.signal);
    } finally {
      letGo();
      linked.unlink();
    }
  }

  /**
   * Ends all work of this object. Never rejects. A second call may shorten the time. Do not await the call in the task
   * of `run()`, because the call waits for the task.
   *
   * The order is: no new campaign → the term's signal aborts → the task drains → the lock is handed over. The lease is
   * renewed until then. If the task outlasts `drainTimeout` (default: the `drainTimeout` of `run()`, otherwise 30,000
   * ms), the lease expires instead.
   */
  stop(options: StopOptions = {}): Promise<void> {
    const { drainTimeout } = STOP.resolve(options);
    if (drainTimeout !== undefined) this.#leader.limitDrain(drainTimeout);
    this.#stopped ??= this.#stopAll();
    return this.#stopped;
  }

  /**
   * Returns the health of this candidate. Sends no request. `maxTolerableExpiredLease` is the time in ms for which a
   * task may run without its lease before `healthy` is false. Default 0.
   */
  health(options: { readonly maxTolerableExpiredLease?: number | undefined } = {}): LeaderHealth {
    const { maxTolerableExpiredLease: tolerated } = HEALTH.resolve(options);
    const { lastError, term: held } = this.#standing;
    const term = held?.isCurrent() === true ? held : undefined;
    const { overrunMs } = this.#leader;
    return {
      healthy: this.state !== "stopped" && overrunMs <= tolerated,
      state: this.state,
      ...(term === undefined
        ? {}
        : { term: term.term, remainingMs: term.remaining(), sinceRenewalMs: term.sinceRenewalMs }),
      renewFailures: term?.renewFailures ?? 0,
      overrunMs,
      running: this.#work?.name === "run",
      ...(lastError === undefined ? {} : { lastError }),
    };
  }

  /**
   * Calls `listener` with each event of this name. Returns a function that removes the listener. An error of the
   * listener is emitted as `error`.
   */
  on<Name extends keyof LeaderEvents>(name: Name, listener: (payload: LeaderEvents[Name]) => void): Unsubscribe {
    const off = this.#standing.listeners.on(name, listener);
    if (name !== "leaderChanged") return off;
    const stopWatching = this.#observer.watch(listener as (info: LeaderInfo | null) => void);
    off();
    return stopWatching;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /**
   * Does one work at a time, and keeps the process alive until its end. `run` may begin while a term is left whose task
   * outlasted an earlier `run`, because `run` waits for the end of that task.
   */
  async #do<Result>(name: Work["name"], work: () => Promise<Result>): Promise<Result> {
    if (this.#stop.signal.aborted) throw new ElectionStoppedError(this.name);
    const { term } = this.#standing;
    if (this.#work !== undefined) throw new ElectionBusyError(this.name, "busy");
    if (term !== undefined && !(name === "run" && term.status === "abandoned"))
      throw new ElectionBusyError(this.name, this.state);
    const ended = deferred<void>();
    this.#work = { name, ended: ended.promise };
    const undo = [this.#nodes.start(), keepAlive(this.#standing.clock)];
    try {
      return await work();
    } finally {
      for (const each of undo) each();
      this.#work = undefined;
      if (this.#standing.term === undefined) this.#standing.move({ type: "ended" });
      ended.resolve();
    }
  }

  #asCandidate<Term extends HeldTerm | undefined>(
    options: { readonly signal?: AbortSignal | undefined },
    campaign: (signal: AbortSignal) => Promise<Term>,
  ): Promise<Term> {
    const { signal } = SIGNAL.resolve(options);
    return this.#do("campaign", async () => {
      const linked = this.#standing.whileOpen(signal, this.#stop.signal);
      try {
        return await campaign(linked.signal);
      } finally {
        linked.unlink();
      }
    });
  }

  async #stopAll(): Promise<void> {
    const letGo = keepAlive(this.#standing.clock);
    this.#stop.abort(new ElectionStoppedError(this.name));
    const work = this.#work;
    await work?.ended;
    if (work?.name !== "run") await this.#leader.drainOwned();
    this.#observer.close();
    this.#standing.move({ type: "stop" });
    await this.#leases.close().catch((error: unknown) => this.#standing.report(error));
    letGo();
  }
}
