/**
 * The start and the shutdown of everything in the module.
 *
 * No work starts before all modules are ready. At the shutdown, the application first takes no more work, then running
 * work may end, then locks are released, then connections are closed. Work that outlasts `drainTimeout` keeps its lock
 * while it runs, because otherwise another process would begin the same work.
 */
import { Logger } from "@nestjs/common";
import type { Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import type { Discovery } from "./discovery.ts";
import type { Leadership } from "./leader/leadership.ts";
import type { LockedCalls } from "./locked/locked-calls.ts";
import { logToNest } from "./nest-log.ts";
import type { ResolvedCoordinationOptions } from "./options.ts";
import type { ExclusiveWorkers } from "./workers/exclusive-workers.ts";

interface LifecycleParts {
  readonly options: ResolvedCoordinationOptions;
  readonly discovery: Discovery;
  readonly calls: LockedCalls;
  readonly workers: ExclusiveWorkers;
  readonly leadership: Leadership;
}

const logger = new Logger("CoordinationModule");

export class Lifecycle {
  readonly #parts: LifecycleParts;
  #deadlineMs: number | undefined;
  #stopLogging: (() => void) | undefined;

  constructor(parts: LifecycleParts) {
    this.#parts = parts;
  }

  get #redlock(): Redlock {
    return this.#parts.options.redlock;
  }

  /** Throws for a decorator that is used wrongly. */
  prepare(): void {
    const { discovery, workers, leadership } = this.#parts;
    leadership.prepare(discovery);
    workers.prepare(discovery);
  }

  start(): void {
    this.#stopLogging ??= logToNest();
    this.#parts.workers.start();
    this.#parts.leadership.start();
  }

  /** Takes no more work, and gives running work time to end. */
  async drain(): Promise<void> {
    const { workers, leadership } = this.#parts;
    const ended = Promise.all([workers.stop(), leadership.stop(this.#leftMs())]);
    if (await this.#inTime(ended)) return;
    logger.warn("jobs or the leader's work did not end within drainTimeout: their signals abort");
    workers.cancel("the application is closed");
  }

  /** Releases the locks and closes the connections. Runs when no request is served any more. */
  async close(): Promise<void> {
    const { calls, workers, options } = this.#parts;
    const ended = Promise.all([calls.untilNone(), workers.stop()]);
    const isInTime = await this.#inTime(ended);
    if (!isInTime)
      logger.warn(`work did not end within drainTimeout, ${calls.count} calls of @Locked methods: it keeps its locks`);
    const closed = options.keepOpen ? ended : ended.then(() => this.#redlock.close());
    if (isInTime) await closed;
    this.#stopLogging?.();
  }

  /** Returns the rest of `drainTimeout`, counted from the first call. */
  #leftMs(): number {
    const { clock } = protocolOf(this.#redlock);
    this.#deadlineMs ??= clock.monotonicMs() + this.#parts.options.drainTimeout;
    return Math.max(0, Math.floor(this.#deadlineMs - clock.monotonicMs()));
  }

  async #inTime(work: Promise<unknown>): Promise<boolean> {
    let cancel = (): void => undefined;
    const late = new Promise<false>((resolve) => {
      cancel = protocolOf(this.#redlock).clock.schedule(this.#leftMs(), () => resolve(false), { keepAlive: true });
    });
    const isInTime = await Promise.race([work.then(() => true), late]);
    cancel();
    return isInTime;
  }
}
