/**
 * Leases whose renewals run in a worker thread.
 *
 * Guaranteed: the thread renews the lease of a blocked event loop for up to `maxBlock`. The event loop reads the end of
 * its lease from shared memory, without waiting for a message.
 *
 * Not guaranteed: that the lease survives a freeze of the whole process (SIGSTOP, a frozen cgroup), because the thread
 * also stops.
 */
import { Worker } from "node:worker_threads";
import type { Clock, LockLossReason } from "@x/redlock-core";
import { abortable, asError, type Deferred, deferred, type Instant, inTime, readClock } from "@x/redlock-core/kit";
import { type LeaseEnd, leaseEnd, OVER, type RenewalPolicy } from "@x/redlock-core/protocol";
import type { ResolvedOptions } from "../../options.ts";
import type { LeaseSource, OnRefused, TermLease } from "../lease.ts";
import { beatPeriodMs, errorOf, type Report, SharedMemory, type ThreadCommand, type ThreadData } from "./shared.ts";

export function workerLeases(
  options: ResolvedOptions,
  worker: NonNullable<ResolvedOptions["worker"]>,
  clock: Clock,
  note: string,
): LeaseSource {
  const { resource, leaseDuration, retryPeriod } = options;
  const data = { resource, leaseDuration, retryPeriod, note, ...worker };
  let thread: RenewalThread | undefined;
  return {
    async acquire(signal: AbortSignal, refused?: OnRefused): Promise<TermLease | undefined> {
      const { THREAD_URL } = await import("./thread-url.ts");
      signal.throwIfAborted();
      if (thread?.isDead !== false) thread = new RenewalThread(THREAD_URL, options, data, clock);
      return thread.acquire(signal, refused);
    },
    close: async () => thread?.close(),
  };
}

class RenewalThread {
  readonly options: ResolvedOptions;
  readonly clock: Clock;
  readonly shared = new SharedMemory();
  readonly #worker: Worker;
  readonly #exited: Promise<unknown>;
  readonly #ready = deferred<Error | undefined>();
  #count = 0;
  #acquiring:
    | { readonly id: number; readonly answer: Deferred<Report | Error>; readonly refused: OnRefused | undefined }
    | undefined;
  #lease: WorkerLease | undefined;
  #isDead = false;
  #cancelBeat: () => void = () => undefined;

  constructor(url: URL, options: ResolvedOptions, data: Omit<ThreadData, "memory">, clock: Clock) {
    this.options = options;
    this.clock = clock;
    const workerData: ThreadData = { ...data, memory: this.shared.memory };
    this.#worker = new Worker(url, { workerData, name: `renewal of ${options.name}` });
    this.#worker.unref();
    this.#worker.on("message", (report: Report) => this.#receive(report));
    this.#worker.on("error", (error) => this.#die(asError(error)));
    const exited = deferred<void>();
    this.#exited = exited.promise;
    this.#worker.on("exit", () => {
      this.#die(new Error("the renewal thread has ended"));
      exited.resolve();
    });
    this.#beat(data.maxBlock);
  }

  get isDead(): boolean {
    return this.#isDead;
  }

  /**
   * Waits for an answer of the thread, and keeps the process alive. After one lease the wait ends, because a thread
   * that hangs releases nothing, and the lease has ended anyway.
   */
  attend<T>(answer: Promise<T>, otherwise: T): Promise<T> {
    const { leaseDuration: timeoutMs } = this.options;
    const waiting = inTime(this.clock, answer, { timeoutMs, otherwise: "the renewal thread hangs", keepAlive: true });
    return waiting.catch(() => otherwise);
  }

  async acquire(signal: AbortSignal, refused: OnRefused | undefined): Promise<WorkerLease | undefined> {
    const failure = await abortable(this.#ready.promise, signal);
    if (failure !== undefined) throw failure;
    this.#count += 1;
    const id = this.#count;
    const answer = deferred<Report | Error>();
    this.#acquiring = { id, answer, refused };
    this.send({ type: "acquire", id, isToWait: refused !== undefined, now: readClock(this.clock) });
    try {
      const report = await abortable(answer.promise, signal);
      if (report instanceof Error) throw report;
      if (report.type === "failed") throw errorOf(report.failure);
      if (report.type !== "granted") return undefined;
      this.#lease = new WorkerLease(this, report);
      return this.#lease;
    } catch (error) {
      this.send({ type: "cancel", id });
      throw error;
    } finally {
      this.#acquiring = undefined;
    }
  }

  send(command: ThreadCommand): void {
    if (!this.#isDead) this.#worker.postMessage(command);
  }

  async close(): Promise<void> {
    if (this.#isDead) return;
    this.send({ type: "close" });
    await this.attend(this.#exited, undefined);
    await this.#worker.terminate();
  }

  #receive(report: Report): void {
    if (report.type === "ready") this.#ready.resolve(undefined);
    else if (report.id === this.#acquiring?.id) {
      if (report.type === "refused") this.#acquiring.refused?.(report.votes);
      else this.#acquiring.answer.resolve(report);
    } else if (report.id === this.#lease?.id) this.#lease.receive(report);
  }

  #die(error: Error): void {
    this.#isDead = true;
    this.#cancelBeat();
    this.#ready.resolve(error);
    this.#acquiring?.answer.resolve(error);
    this.#lease?.threadDied(error);
  }

  #beat(maxBlock: number): void {
    this.shared.beat();
    this.#cancelBeat = this.clock.schedule(beatPeriodMs(maxBlock), () => this.#beat(maxBlock));
  }
}

class WorkerLease implements TermLease {
  readonly id: number;
  readonly fencingToken: number;
  readonly token: string;
  readonly #thread: RenewalThread;
  readonly #lost = new AbortController();
  readonly #released = deferred<boolean>();
  #policy: RenewalPolicy | undefined;
  /** Start of a lease that is over. The memory may already contain the start of the next lease. */
  #lastStart: Instant | undefined;

  constructor(thread: RenewalThread, granted: Report & { readonly type: "granted" }) {
    this.id = granted.id;
    this.fencingToken = granted.fencingToken;
    this.token = granted.token;
    this.#thread = thread;
  }

  get start(): Instant {
    return this.#lastStart ?? this.#thread.shared.start;
  }

  get validUntil(): LeaseEnd {
    if (this.signal.aborted) return OVER;
    const { leaseDuration, driftFactor } = this.#thread.options;
    return leaseEnd(this.start, leaseDuration, driftFactor);
  }

  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  get lossReason(): LockLossReason | undefined {
    return (this.signal.reason as { readonly reason: LockLossReason } | undefined)?.reason;
  }

  /** Stores the callbacks of the policy. The thread decides when to renew. */
  keep(policy: RenewalPolicy): void {
    this.#policy = policy;
  }

  leave(): void {
    if (this.#lastStart !== undefined) return;
    this.#lastStart = this.#thread.shared.start;
    this.#policy = undefined;
    this.#thread.send({ type: "leave", id: this.id });
  }

  async release(): Promise<boolean> {
    this.leave();
    if (this.#thread.isDead) return false;
    this.#thread.send({ type: "release", id: this.id });
    return this.#thread.attend(this.#released.promise, false);
  }

  receive(report: Report): void {
    switch (report.type) {
      case "renewed":
        this.#policy?.onRenewed?.(report.tookMs);
        break;
      case "renewFailed":
        this.#policy?.onFailed?.(errorOf(report.failure));
        break;
      case "lost":
        this.#lost.abort(errorOf(report.failure));
        break;
      case "released":
        this.#released.resolve(report.confirmed);
        break;
      default:
        break;
    }
  }

  /** Reports the thread's end as a failed renewal. The lease expires, and its deadline ends the term. */
  threadDied(error: Error): void {
    this.#policy?.onFailed?.(error);
    this.#released.resolve(false);
  }
}
