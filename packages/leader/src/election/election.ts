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
import { type Clock, QuorumUnreachableError, type Redlock, RedlockClosedError } from "@x/redlock-core";
import {
  abortable,
  callQuietly,
  deferred,
  Emitter,
  type LinkedSignal,
  linkSignals,
  onAbort,
  protocolOf,
  redlock as REDLOCK,
  Schema,
  sleep,
  systemRandom,
} from "@x/redlock-core/protocol";
import { ElectionBusyError, ElectionStoppedError, LeadershipLostError } from "../errors.ts";
import { LEADER_EVENTS, type LeaderEvents, publishEvents } from "../events/events.ts";
import { logEvents } from "../events/log.ts";
import { mayVoteAgain, NodeWatch } from "../events/node-watch.ts";
import { callerSignal, durationOrNoneMs, listener as TASK } from "../kit/checks.ts";
import { publish } from "../kit/diagnostics.ts";
import type { Unsubscribe } from "../kit/emitter.ts";
import { type LeaderElectionOptions, type ResolvedOptions, resolveOptions } from "../options.ts";
import { Ledger } from "../record/ledger.ts";
import { claimOf, endedCleanly, heldNow, type LeaderInfo, type TermRecord } from "../record/record.ts";
import { type Lease, type LeaseSource, localLeases } from "../term/lease.ts";
import { HeldTerm, insist, type LeaderTerm, type TermListener } from "../term/term.ts";
import { workerLeases } from "../term/worker/worker-lease.ts";
import { cooldownMs, jitteredMs } from "../timings.ts";
import { type DrainTimes, drainTimer } from "./drain.ts";
import { type LeaderTask, lead } from "./lead.ts";
import { infoOf, iterate, Observer, type ObserverListener } from "./observer.ts";
import { keepAlive } from "./process.ts";
import {
  DEFAULT_DRAIN_TIMEOUT_MS,
  type ResolvedTaskOptions,
  resolveTaskOptions,
  STOP,
  type StopOptions,
  type TaskOptions,
} from "./run-options.ts";
import { type ElectionEvent, type ElectionState, hasTerm, IDLE, nextState } from "./state.ts";

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

/** `observe()` keeps so many values for a consumer that is slower than they come. */
const OBSERVED_BOUND = 1_000;

const HEALTH = new Schema({ maxTolerableExpiredLease: durationOrNoneMs.default(0) });

export class LeaderElection implements AsyncDisposable {
  readonly name: string;
  readonly id: string;
  readonly #redlock: Redlock;
  readonly #options: ResolvedOptions;
  readonly #clock: Clock;
  readonly #random: () => number;
  /** This text tells two starts, and two objects with one id, apart. */
  readonly #instance: string;
  readonly #ledger: Ledger;
  readonly #leases: LeaseSource;
  readonly #observer: Observer;
  readonly #nodes: NodeWatch;
  readonly #events: Emitter<LeaderEvents>;
  readonly #stop = new AbortController();
  readonly #failures: { count: number } = { count: 0 };
  #state: ElectionState = IDLE;
  #isBusy = false;
  #term: HeldTerm | undefined;
  #running: Promise<void> | undefined;
  /** Resolves when no task of `run()` runs any more, also one that outlasted its run. */
  #taskEnded: Promise<void> = Promise.resolve();
  #campaigning: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;
  #stopDrainTimeoutMs: number | undefined;
  readonly #drainListeners = new Set<() => void>();
  #coolUntilMs = 0;
  #renewFailures = 0;
  #lastError: Error | undefined;
  #stopWatchingNodes: () => void = () => undefined;
  #overrun: { readonly term: number; readonly sinceMs: number } | undefined;

  /**
   * Makes a candidate, which does nothing before it is asked to.
   * @throws TypeError, RangeError naming option, rule and value
   */
  constructor(redlock: Redlock, options: LeaderElectionOptions) {
    REDLOCK.of("redlock", redlock);
    const { maxTtl, driftFactor, nodeTimeout } = redlock.options;
    const defaultId = `${hostname()}/${process.pid}`;
    this.#options = resolveOptions(options, { defaultId, maxTtl, driftFactor, nodeTimeout });
    protocolOf(redlock).checkResource(this.#options.resource);
    this.#redlock = redlock;
    this.#random = this.#options.random ?? ((): number => systemRandom.fraction());
    this.#clock = protocolOf(redlock).clock;
    this.name = this.#options.name;
    this.id = this.#options.id;
    this.#instance = `${this.id}#${Math.floor(this.#random() * 2 ** 48).toString(36)}`;
    this.#events = new Emitter<LeaderEvents>(LEADER_EVENTS);
    publishEvents(this.#events, { election: this.name, id: this.id });
    this.#ledger = new Ledger(redlock, this.name, this.#options.resource);
    const { worker } = this.#options;
    const note = this.#leadsOnGrant
      ? claimOf({ id: this.id, instance: this.#instance, value: this.#options.value })
      : "";
    this.#leases =
      worker === undefined
        ? localLeases(redlock, this.#options, this.#clock, note)
        : workerLeases(this.#options, worker, this.#clock, note);
    this.#observer = new Observer({
      ledger: this.#ledger,
      clock: this.#clock,
      leaseMs: this.#options.leaseDuration,
      random: this.#random,
      isSelf: (record) => this.#isSelf(record),
      failed: (error) => this.#report(error),
      closed: protocolOf(redlock).closed,
    });
    this.#nodes = new NodeWatch(redlock, {
      down: (node, error) => {
        this.#lastError = error;
        this.#events.emit("nodeDown", { node, error });
      },
      quarantined: (leftMs) => {
        const quarantineLeftMs = Math.ceil(leftMs);
        this.#lastError = new Error(mayVoteAgain(quarantineLeftMs));
        this.#events.emit("quarantined", { quarantineLeftMs });
      },
      answered: () => {
        this.#lastError = undefined;
      },
    });
    const { logger } = this.#options;
    if (logger !== undefined)
      logEvents(this.#events, { logger, election: this.name, id: this.id, clock: protocolOf(redlock).clock });
  }

  get state(): ElectionState["name"] {
    return this.#state.name;
  }

  /** The `Redlock` that the election's locks are on. */
  get redlock(): Redlock {
    return this.#redlock;
  }

  /**
   * The term of this process, by the clock of this moment, also while it is draining. It is undefined when the process
   * does not lead.
   */
  get current(): LeaderTerm | undefined {
    const leads = this.#state.name === "leader" || this.#state.name === "draining";
    return leads && this.#term?.isCurrent() === true ? this.#term : undefined;
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
    const signal = callerSignal(options);
    this.#occupy();
    const linked = this.#whileOpen(signal, this.#stop.signal);
    const letGo = keepAlive(this.#clock);
    try {
      return await this.#asCampaign(this.#campaign(linked.signal));
    } finally {
      letGo();
      linked.unlink();
      this.#vacate();
    }
  }

  /**
   * Makes one attempt, without waiting.
   * @throws the signal's reason, ElectionStoppedError, ElectionBusyError, RedlockClosedError, QuorumUnreachableError
   */
  async tryCampaign(options: { readonly signal?: AbortSignal | undefined } = {}): Promise<LeaderTerm | undefined> {
    const signal = callerSignal(options);
    this.#occupy();
    const linked = this.#whileOpen(signal, this.#stop.signal);
    try {
      return await this.#asCampaign(this.#tryOnce(linked.signal));
    } finally {
      linked.unlink();
      this.#vacate();
    }
  }

  async #tryOnce(signal: AbortSignal): Promise<HeldTerm | undefined> {
    const startedMs = this.#clock.monotonicMs();
    signal.throwIfAborted();
    this.#move({ type: "campaign" });
    if (!(await this.#isEligible())) return undefined;
    const lease = await this.#leases.tryAcquire(signal);
    return lease === undefined ? undefined : await this.#takeOffice(lease, signal, startedMs);
  }

  /** Follows a campaign, for which `stop()` waits. */
  async #asCampaign<Result>(campaigning: Promise<Result>): Promise<Result> {
    this.#campaigning = campaigning.then(
      () => undefined,
      () => undefined,
    );
    try {
      return await campaigning;
    } finally {
      this.#campaigning = undefined;
    }
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
    this.#occupy({ waits: true });
    const letGo = keepAlive(this.#clock);
    const running = this.#run(task, resolved);
    this.#running = running.catch(() => undefined);
    try {
      await running;
    } finally {
      letGo();
      this.#running = undefined;
      this.#vacate();
    }
  }

  /**
   * Asks whoever leads to drain and resign. Resolves true if there was a leader to ask.
   * @throws QuorumUnreachableError
   */
  async requestResign(): Promise<boolean> {
    const held = heldNow(await this.#ledger.look(Number.MAX_SAFE_INTEGER), this.#ledger.quorum);
    if (held === undefined) return false;
    await this.#ledger.requestResign(held.record.term, REQUEST_MS);
    return true;
  }

  /**
   * Asks a quorum of the nodes who leads. It is null if nobody leads, or that is not yet known.
   * @throws QuorumUnreachableError
   */
  async leader(): Promise<LeaderInfo | null> {
    const held = heldNow(await this.#ledger.look(Number.MAX_SAFE_INTEGER), this.#ledger.quorum);
    return held === undefined ? null : infoOf(held, (record) => this.#isSelf(record));
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
    const linked = linkSignals(callerSignal(options), this.#stop.signal, protocolOf(this.#redlock).closed);
    const letGo = keepAlive(this.#clock);
    try {
      yield* iterate((listener) => this.#watch(listener), linked.signal, OBSERVED_BOUND);
    } finally {
      letGo();
      linked.unlink();
    }
  }

  /**
   * Ends everything, and never rejects. Called again it may shorten the time. In the task of `run()` do not await it:
   * it waits for that task.
   *
   * It goes in this order: no new campaign → the term's signal aborts → the task drains while the lease is renewed →
   * the lock is released and handed over. At `drainTimeout` (default: that of `run()`, else 30,000 ms) the lease is
   * left to run out instead.
   */
  stop(options: StopOptions = {}): Promise<void> {
    const { drainTimeout } = STOP.resolve(options);
    if (drainTimeout !== undefined) {
      this.#stopDrainTimeoutMs = drainTimeout;
      for (const listener of this.#drainListeners) listener();
    }
    this.#stopped ??= this.#stopAll();
    return this.#stopped;
  }

  health(options: { readonly maxTolerableExpiredLease?: number | undefined } = {}): LeaderHealth {
    const { maxTolerableExpiredLease: tolerated } = HEALTH.resolve(options);
    const term = hasTerm(this.#state) && this.#term?.isCurrent() === true ? this.#term : undefined;
    const overrunMs = this.#overrun === undefined ? 0 : this.#clock.monotonicMs() - this.#overrun.sinceMs;
    return {
      healthy: this.#state.name !== "stopped" && overrunMs <= tolerated,
      state: this.#state.name,
      ...(term === undefined
        ? {}
        : { term: term.term, remainingMs: term.remaining(), sinceRenewalMs: term.sinceRenewalMs }),
      renewFailures: this.#renewFailures,
      overrunMs,
      running: this.#running !== undefined,
      ...(this.#lastError === undefined ? {} : { lastError: this.#lastError }),
    };
  }

  /**
   * Calls `listener` with each event of that name, and returns a function that ends that. A listener that throws breaks
   * nothing.
   */
  on<Name extends keyof LeaderEvents>(name: Name, listener: (payload: LeaderEvents[Name]) => void): Unsubscribe {
    const off = this.#events.on(name, listener);
    if (name !== "leaderChange") return off;
    const stopWatching = this.#watch(listener as ObserverListener);
    off();
    return stopWatching;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #run(task: LeaderTask, run: ResolvedTaskOptions): Promise<void> {
    const linked = linkSignals(run.signal, this.#stop.signal);
    const open = this.#whileOpen(linked.signal);
    try {
      await abortable(this.#taskEnded, open.signal);
      await this.#untilAbandonedIsOver(open.signal);
      let next: "again" | "stop" = "again";
      while (next === "again") {
        const term = await this.#campaign(open.signal);
        next = await this.#lead(term, task, run, linked.signal);
      }
    } catch (error) {
      if (!linked.signal.aborted || error !== linked.signal.reason) throw error;
    } finally {
      open.unlink();
      linked.unlink();
    }
  }

  #lead(term: HeldTerm, task: LeaderTask, run: ResolvedTaskOptions, stop: AbortSignal): Promise<"again" | "stop"> {
    let stopListening: Unsubscribe = () => undefined;
    let ended = deferred<void>();
    return lead({
      term,
      task,
      run,
      clock: this.#clock,
      cooldown: this.#options.cooldown,
      stop,
      drain: this.#drainTimes(run.drainTimeout),
      failures: this.#failures,
      listener: {
        taskStarted: () => {
          ended = deferred();
          this.#taskEnded = ended.promise;
          stopListening = this.#events.on("lost", (lost) => {
            if (lost.term === term.term) this.#beginOverrun(term.term);
          });
        },
        taskEnded: () => {
          stopListening();
          ended.resolve();
          this.#endOverrun(term.term);
        },
        taskFailed: (error) => this.#events.emit("taskError", { term: term.term, error }),
        drainTimedOut: () => this.#events.emit("drainTimeout", { term: term.term }),
        cool: (ms) => this.#cool(ms),
      },
    });
  }

  /** Returns a signal that aborts with the first of `sources`, or with `RedlockClosedError`. */
  #whileOpen(...sources: readonly (AbortSignal | undefined)[]): LinkedSignal {
    const { closed } = protocolOf(this.#redlock);
    const linked = linkSignals(...sources);
    const close = (): void => linked.abort(new RedlockClosedError([this.#options.resource]));
    if (closed.aborted) close();
    const untie = onAbort(closed, close);
    return {
      ...linked,
      unlink: () => {
        untie();
        linked.unlink();
      },
    };
  }

  /** Campaigns. Rejects only with the reason of `signal`, or because the `Redlock` of a renewal thread was closed. */
  async #campaign(signal: AbortSignal): Promise<HeldTerm> {
    for (let failures = 0; ; ) {
      await this.#untilAllowed(signal);
      this.#move({ type: "campaign" });
      const startedMs = this.#clock.monotonicMs();
      try {
        const lease = await this.#leases.acquire(signal, (votes) => this.#nodes.refused(votes));
        this.#lastError = undefined;
        failures = 0;
        const term = await this.#takeOffice(lease, signal, startedMs);
        if (term !== undefined) return term;
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof RedlockClosedError) throw error;
        this.#lastError = asError(error);
        this.#report(error);
        failures = error instanceof QuorumUnreachableError ? 1 : failures + 1;
        const pause = { initial: this.#options.retryPeriod, max: this.#options.leaseDuration };
        await this.#sleep(cooldownMs(pause, failures), signal);
      }
    }
  }

  /** Goes from the lock to the leadership. Resolves undefined if the seat was lost meanwhile. */
  async #takeOffice(lease: Lease, signal: AbortSignal, startedMs: number): Promise<HeldTerm | undefined> {
    const office = { isTaken: false };
    const term = new HeldTerm({
      lease,
      ledger: this.#ledger,
      options: this.#options,
      clock: this.#clock,
      instance: this.#instance,
      listener: this.#termListener(lease.fencingToken, office),
      isEligible: () => this.#isEligible(),
      cool: (ms) => this.#cool(ms ?? cooldownMs(this.#options.cooldown, 0)),
    });
    if (!term.isCurrent()) return undefined;
    this.#term = term;
    this.#move({ type: "won", term: term.term });
    const untie = onAbort(signal, () => term.beginEnd("stopping"));
    try {
      signal.throwIfAborted();
      if (!this.#leadsOnGrant) await this.#beReady(term);
      term.assertCurrent();
      term.signal.throwIfAborted();
    } catch (error) {
      await term.finish();
      signal.throwIfAborted();
      if (error instanceof LeadershipLostError) return undefined;
      throw error;
    } finally {
      untie();
    }
    term.enter(protocolOf(this.#redlock).closed);
    office.isTaken = true;
    this.#move({ type: "led" });
    const waitMs = this.#clock.monotonicMs() - startedMs;
    publish("x.leader.elected", () => ({
      election: this.name,
      id: this.id,
      term: term.term,
      waitMs,
      vacancyMs: this.#observer.vacancyMs,
    }));
    this.#events.emit("elected", term);
    return term;
  }

  /**
   * Whether this candidate is known to lead from the grant on. One that may have to give the lock back is known to lead
   * only when that is settled.
   */
  get #leadsOnGrant(): boolean {
    return this.#options.lockDelay === 0 && this.#options.eligible === undefined;
  }

  /** Waits for what may keep the holder of the lock from leading. */
  async #beReady(term: HeldTerm): Promise<void> {
    const clock = this.#clock;
    const { lockDelay, retryPeriod } = this.#options;
    const pauseMs = Math.ceil(retryPeriod / 4);
    if (!(await this.#isEligible()))
      throw new LeadershipLostError({ election: this.name, term: term.term, reason: "ineligible" });
    const views = await insist(term, clock, pauseMs, () => this.#ledger.read(Number.MAX_SAFE_INTEGER));
    await insist(term, clock, pauseMs, () => term.announce());
    if (lockDelay > 0 && !endedCleanly(views, term.term)) await term.waitOut(lockDelay);
  }

  #termListener(number: number, office: { readonly isTaken: boolean }): TermListener {
    let endingSinceMs: number | undefined;
    const nowMs = (): number => this.#clock.monotonicMs();
    const startedMs = nowMs();
    return {
      renewed: ({ tookMs, remainingMs }) => {
        this.#renewFailures = 0;
        this.#lastError = undefined;
        publish("x.leader.renewed", () => ({
          election: this.name,
          id: this.id,
          term: number,
          tookMs,
          remainingMs,
        }));
        this.#events.emit("renewed", { term: number, tookMs, remainingMs });
      },
      renewFailed: ({ error, remainingMs }) => {
        this.#renewFailures += 1;
        this.#lastError = asError(error);
        publish("x.leader.renewFailed", () => ({
          election: this.name,
          id: this.id,
          term: number,
          error,
          remainingMs,
        }));
        this.#events.emit("renewFailed", { term: number, error, remainingMs });
      },
      ending: (reason) => {
        endingSinceMs = nowMs();
        this.#move({ type: "drain", reason });
      },
      over: (reason) => {
        const heldMs = nowMs() - startedMs;
        const drainMs = endingSinceMs === undefined ? undefined : nowMs() - endingSinceMs;
        if (this.#term?.term === number) {
          this.#term = undefined;
          this.#renewFailures = 0;
          this.#move({ type: "ended" });
        }
        if (!office.isTaken) return;
        publish("x.leader.lost", () => ({ election: this.name, id: this.id, term: number, reason, heldMs, drainMs }));
        this.#events.emit("lost", { term: number, reason, heldMs });
      },
      failed: (error) => this.#report(error),
    };
  }

  async #untilAllowed(signal: AbortSignal): Promise<void> {
    for (;;) {
      signal.throwIfAborted();
      const coolMs = this.#coolUntilMs - this.#clock.monotonicMs();
      if (coolMs > 0) {
        this.#move({ type: "cool" });
        await this.#sleep(coolMs, signal);
      } else if (await this.#isEligible()) return;
      else await this.#sleep(this.#options.retryPeriod, signal);
    }
  }

  async #sleep(ms: number, signal: AbortSignal): Promise<void> {
    await sleep(this.#clock, jitteredMs(ms, this.#options.jitter, this.#random()), signal);
  }

  #cool(ms: number): void {
    this.#coolUntilMs = this.#clock.monotonicMs() + ms;
  }

  /** Asks `eligible`. A question that is not answered within a renewal's time counts as no. */
  async #isEligible(): Promise<boolean> {
    const { eligible, retryPeriod } = this.#options;
    if (eligible === undefined) return true;
    const unanswered = new AbortController();
    const cancel = this.#clock.schedule(retryPeriod, () =>
      unanswered.abort(new Error(`eligible() gave no answer within ${retryPeriod} ms`)),
    );
    try {
      return await abortable(Promise.resolve(eligible()), unanswered.signal);
    } catch (error) {
      this.#report(error);
      return false;
    } finally {
      cancel();
    }
  }

  #watch(listener: ObserverListener): () => void {
    return this.#observer.watch((info) =>
      callQuietly(
        () => listener(info),
        (error) => this.#report(error),
      ),
    );
  }

  #isSelf(record: TermRecord): boolean {
    return record.instance === this.#instance;
  }

  /**
   * Begins to take part. `waits` is true for a caller that waits for the end of a term whose task outlasted its run.
   */
  #occupy({ waits = false }: { readonly waits?: boolean } = {}): void {
    if (this.#stop.signal.aborted) throw new ElectionStoppedError(this.name);
    const isTermOver = !hasTerm(this.#state) || (waits && this.#term?.isAbandoned === true);
    if (this.#isBusy || !isTermOver) throw new ElectionBusyError(this.name, this.#isBusy ? "busy" : this.#state.name);
    this.#isBusy = true;
    this.#stopWatchingNodes = this.#nodes.start();
  }

  async #untilAbandonedIsOver(signal: AbortSignal): Promise<void> {
    while (this.#term?.isCurrent() === true) await sleep(this.#clock, this.#term.remaining(), signal);
  }

  #vacate(): void {
    this.#isBusy = false;
    this.#stopWatchingNodes();
    if (!hasTerm(this.#state)) this.#move({ type: "ended" });
  }

  #move(event: ElectionEvent): void {
    this.#state = nextState(this.#state, event);
  }

  async #stopAll(): Promise<void> {
    const letGo = keepAlive(this.#clock);
    this.#stop.abort(new ElectionStoppedError(this.name));
    await this.#campaigning;
    if (this.#running !== undefined) await this.#running;
    else await this.#drainOwnedTerm();
    this.#observer.close();
    this.#move({ type: "stop" });
    await this.#leases.close().catch((error: unknown) => this.#report(error));
    letGo();
  }

  #drainTimes(otherwiseMs: number): DrainTimes {
    return {
      timeoutMs: () => this.#stopDrainTimeoutMs ?? otherwiseMs,
      onChange: (listener) => {
        this.#drainListeners.add(listener);
        return () => this.#drainListeners.delete(listener);
      },
    };
  }

  /** Drains a term from `campaign()`, which its owner resigns. */
  async #drainOwnedTerm(): Promise<void> {
    const term = this.#term;
    if (term === undefined || !term.isCurrent()) return;
    const over = deferred<"over">();
    const off = this.#events.on("lost", () => over.resolve("over"));
    const timer = drainTimer(this.#clock, this.#drainTimes(DEFAULT_DRAIN_TIMEOUT_MS));
    timer.start();
    term.beginEnd("stopping");
    const end = await Promise.race([over.promise, timer.isOver]);
    off();
    timer.cancel();
    if (end === "over") {
      await term.finish();
      return;
    }
    term.abandon();
    this.#events.emit("drainTimeout", { term: term.term });
  }

  #beginOverrun(term: number): void {
    this.#overrun ??= { term, sinceMs: this.#clock.monotonicMs() };
    publish("x.leader.overrun", () => ({ election: this.name, id: this.id, term, overrunMs: 0 }));
    this.#events.emit("overrun", { term, overrunMs: 0 });
  }

  #endOverrun(term: number): void {
    if (this.#overrun?.term !== term) return;
    const overrunMs = this.#clock.monotonicMs() - this.#overrun.sinceMs;
    this.#overrun = undefined;
    publish("x.leader.overrun", () => ({ election: this.name, id: this.id, term, overrunMs }));
    this.#events.emit("overrun", { term, overrunMs });
  }

  #report(error: unknown): void {
    this.#events.emit("error", error);
  }
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
