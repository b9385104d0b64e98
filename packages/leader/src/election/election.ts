/**
 * An election has at most one leader among any number of processes, through a lock on 1 to N Redis nodes.
 *
 * It guarantees the following, as long as the lock nodes keep what redlock-core asks of them:
 * - Of all candidates at most one has a term whose `isCurrent()` is true, while clock rates differ by less than
 *   `leaseDuration / renewDeadline` allows.
 * - Terms strictly increase.
 * - A candidate campaigns again after every loss, and no error of a node ends that.
 * - The task never overlaps itself in one process.
 * - The lock is released after the task has ended, not before.
 *
 * It does not guarantee that work under way stops in time: pass `term.fencingToken` on.
 */
import { hostname } from "node:os";
import type { Redlock } from "@x/redlock-core";
import {
  abortSignal,
  callback,
  deferred,
  linkSignals,
  protocolOf,
  redlock as REDLOCK,
  Schema,
} from "@x/redlock-core/protocol";
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
  /** It is false while the task overruns its lease by more than is tolerated, and once the election is stopped. */
  readonly healthy: boolean;
  readonly state: ElectionState["name"];
  readonly term?: number;
  /** The time until the deadline, in ms. */
  readonly remainingMs?: number;
  /** The time since the last successful renewal, in ms. */
  readonly sinceRenewalMs?: number;
  /** The number of renewals that failed in a row. */
  readonly renewFailures: number;
  /** The time for which a task has been running without its lease, in ms. */
  readonly overrunMs: number;
  /** Whether `run()` campaigns or leads. */
  readonly running: boolean;
  /** Why a node, an attempt or a renewal failed last, unless a quorum has answered since. */
  readonly lastError?: Error;
}

/**
 * Nodes remember a request to resign this long. The leader sees it with its next record, which may fail for a while.
 */
const REQUEST_MS = 3_600_000;

const SIGNAL = new Schema({ signal: abortSignal.optional() });
const TASK = callback<LeaderTask>();
const HEALTH = new Schema({ maxTolerableExpiredLease: durationOrNoneMs.default(0) });

/** What the caller has this object do. It does one thing at a time, for which `stop()` waits. */
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
   * Makes a candidate, which does nothing before it is asked to.
   * @throws TypeError, RangeError naming option, rule and value
   */
  constructor(redlock: Redlock, options: LeaderElectionOptions) {
    REDLOCK.of("redlock", redlock);
    const { maxTtl, driftFactor, nodeTimeout } = redlock.options;
    const defaultId = `${hostname()}/${process.pid}`;
    const resolved = resolveOptions(options, { defaultId, maxTtl, driftFactor, nodeTimeout });
    const { id, name, resource, value, worker } = resolved;
    protocolOf(redlock).checkResource(resource);
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
   * The term of this process, by the clock of this moment, also while it is draining. It is undefined when the process
   * does not lead.
   */
  get current(): LeaderTerm | undefined {
    const { state } = this.#standing;
    const leads = state.name === "leader" || state.name === "draining";
    return leads && state.term.isCurrent() ? state.term : undefined;
  }

  /** Tells whether this process leads. It reads the clocks, and sends no request. */
  isLeader(): boolean {
    return this.current !== undefined;
  }

  /**
   * Waits until elected; the process stays alive meanwhile. The caller owns the term:
   * `await using term = await election.campaign()`, or `term.resign()`.
   * @throws the signal's reason, ElectionStoppedError, ElectionBusyError, RedlockClosedError
   */
  async campaign(options: { readonly signal?: AbortSignal | undefined } = {}): Promise<LeaderTerm> {
    return await this.#asCandidate(options, (signal) => this.#candidate.campaign(signal));
  }

  /**
   * Makes one attempt, without waiting.
   * @throws the signal's reason, ElectionStoppedError, ElectionBusyError, RedlockClosedError, QuorumUnreachableError
   */
  async tryCampaign(options: { readonly signal?: AbortSignal | undefined } = {}): Promise<LeaderTerm | undefined> {
    return await this.#asCandidate(options, (signal) => this.#candidate.tryOnce(signal));
  }

  /**
   * Campaigns for ever and runs `task` in each term. There are never two runs of it at once: the call first waits for
   * the task of an earlier one that outlasted its `drainTimeout`.
   *
   * The process stays alive until the call resolves: after `stop()`, after `signal` aborted, or by `onTaskEnd: "stop"`.
   * In each case the task has ended, unless it outlasted `drainTimeout`.
   * @throws ElectionStoppedError, ElectionBusyError, RedlockClosedError, TypeError, RangeError
   */
  async run(task: LeaderTask, options?: TaskOptions): Promise<void> {
    TASK.of("task", task);
    const resolved = resolveTaskOptions(options);
    await this.#do("run", () => this.#leader.run(task, resolved, this.#stop.signal));
  }

  /**
   * Asks whoever leads to drain and resign. Resolves true if there was a leader to ask.
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
   * Asks a quorum of the nodes who leads. It is null if nobody leads, or that is not yet known.
   * @throws QuorumUnreachableError
   */
  async leader(): Promise<LeaderInfo | null> {
    const { instance, ledger } = this.#standing;
    const held = await ledger.held();
    return held === undefined ? null : infoOf(held, instance);
  }

  /**
   * Iterates over the leader of now, then every change, in order: each term once, null while nobody leads. Of the
   * values that a leader proclaims you see the latest; earlier ones may be skipped.
   *
   * It works without campaigning, while a quorum of nodes keeps its data. It ends when `signal` aborts, the election
   * stops or its `Redlock` is closed, and keeps the process alive until then. A consumer that falls 1,000 values behind
   * loses the oldest.
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
   * Ends everything, and never rejects. Called again it may shorten the time. In the task of `run()` do not await it:
   * it waits for that task.
   *
   * It goes in this order: no new campaign → the term's signal aborts → the task drains → the lock is handed over.
   * Until then the lease is renewed. At `drainTimeout` (default: that of `run()`, else 30,000 ms) the lease is left to
   * run out instead.
   */
  stop(options: StopOptions = {}): Promise<void> {
    const { drainTimeout } = STOP.resolve(options);
    if (drainTimeout !== undefined) this.#leader.limitDrain(drainTimeout);
    this.#stopped ??= this.#stopAll();
    return this.#stopped;
  }

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
   * Calls `listener` with each event of that name, and returns a function that ends that. A listener that throws breaks
   * nothing.
   */
  on<Name extends keyof LeaderEvents>(name: Name, listener: (payload: LeaderEvents[Name]) => void): Unsubscribe {
    const off = this.#standing.listeners.on(name, listener);
    if (name !== "leaderChange") return off;
    const stopWatching = this.#observer.watch(listener as (info: LeaderInfo | null) => void);
    off();
    return stopWatching;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /**
   * Does one thing at a time, and keeps the process alive meanwhile. `run` waits for the end of a term whose task
   * outlasted its run, so that it may begin before.
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
