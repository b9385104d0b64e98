/**
 * One node's outgoing side: everything issued to the node in one turn of the event loop travels together, in the order of
 * issue, in one request or, when it is much, in a few. It is sent by the end of the same turn, so batching adds no latency.
 *
 * Guaranteed: each operation is settled at most once, by the node's answer or by an error. An operation that was not yet
 * sent when its round gave up is never sent. Not guaranteed: that an operation that was given up after sending does not
 * execute; its release follows it on the same connection.
 *
 * A node that does not answer costs bounded memory: at most `MAX_IN_FLIGHT` requests are unanswered (of a Cluster: per slot, so
 * that one master that hangs does not stop the others), the rest waits here until its round gives up. Releases that cannot be
 * delivered are kept until their key has expired anyway, and sent when the node is ready again.
 */
import { BatchRequests, NO_NUMBER } from "./batch-request.ts";
import type { Clock } from "./clock.ts";
import { countsReceivers, type LockNode, notConnected, requestError } from "./node.ts";
import { digits, type Target } from "./operation.ts";
import { isRefused, Request } from "./request.ts";
import { batchScript } from "./scripts/batch.lua.ts";
import { deadConnectionMs } from "./validity.ts";

/** Enough to keep a connection busy; beyond it larger batches are cheaper than more requests. */
const MAX_IN_FLIGHT = 16;

/** Keeps one request, and so one script on the node, below about a millisecond, if locks are of one resource each. */
const MAX_OPERATIONS = 250;

/**
 * Many operations of one turn are split into so many requests, which leave together: the node answers the first while the
 * next are on their way, and neither side waits for the other. 100 callers on one node: 145,000 pairs/s against 80,000 in one request.
 * While fewer than these are unanswered, a full request leaves before the turn ends: 155,000.
 */
const PIPELINED_REQUESTS = 4;

/**
 * Below this a request is not worth splitting. With several nodes, others are written to while one works, and larger requests cost
 * both sides less: 100 callers on three nodes, 63,000 pairs/s against 57,000 with the smaller ones.
 */
const FULL_REQUEST = { oneNode: 50, severalNodes: 100 } as const;

/** Releases kept for a node that cannot be reached; the oldest go first, their keys expire by themselves. */
const MAX_UNDELIVERED = 10_000;

/** Pause before a release that a connected node refused is sent again. */
const REDELIVERY_MS = 250;

/** A release that must reach the node sooner or later, until `untilMs` (monotonic) when its key has expired. */
export interface Undelivered {
  readonly target: Target;
  readonly text: string;
  readonly untilMs: number;
}

export interface BatcherOptions {
  readonly quarantineMs: number;
  readonly grantTtlMs: number;
  readonly waiterTtlMs: number;
  readonly nodeTimeoutMs: number;
  readonly nodeCount: number;
}

export class Batcher {
  readonly node: LockNode;
  /** Which of the nodes it is. */
  readonly index: number;
  readonly #clock: Clock;
  readonly #requests: BatchRequests;
  readonly #isAlone: boolean;
  readonly #quarantined: boolean;
  readonly #nodeTimeoutMs: number;
  readonly #deadConnectionMs: number;
  readonly #fullRequest: number;
  readonly #stopListening: () => void;
  #pending: Request[] = [];
  #abandonedCount = 0;
  /** When each unanswered request was sent, in order. */
  #inFlightSinceMs: number[] = [];
  /** Unanswered requests per slot; outside a Cluster all are of one. */
  readonly #inFlight = new Map<number, number>();
  #flushScheduled = false;
  #undelivered: Undelivered[] = [];
  #cancelRedelivery: (() => void) | undefined;
  #cancelWatch: (() => void) | undefined;
  /** Answers of the node, whatever was asked. */
  #heard = 0;
  /** The greatest number that the node gave a grant of this client: one that lost its data goes on above it. */
  #greatestNumber = NO_NUMBER;
  #isClosed = false;
  #onAnswered: (() => void) | undefined;

  constructor(node: LockNode, index: number, clock: Clock, options: BatcherOptions) {
    this.node = node;
    this.index = index;
    this.#clock = clock;
    this.#quarantined = options.quarantineMs > 0;
    this.#nodeTimeoutMs = options.nodeTimeoutMs;
    this.#deadConnectionMs = deadConnectionMs(options.nodeTimeoutMs);
    this.#fullRequest = options.nodeCount === 1 ? FULL_REQUEST.oneNode : FULL_REQUEST.severalNodes;
    this.#isAlone = options.nodeCount === 1;
    this.#requests = new BatchRequests({
      ...options,
      isAlone: this.#isAlone,
      isCluster: node.isCluster === true,
      countsReceivers: countsReceivers(node),
    });
    this.#stopListening = node.onStateChange(() => this.#onStateChange());
    this.#onStateChange();
  }

  submit(request: Request): void {
    if (this.#isClosed || this.node.state === "down") {
      request.onError(this.index, notConnected(this.node));
      return;
    }
    this.#pending.push(request);
    if (this.#pending.length >= this.#fullRequest && this.#isPipelining) this.#flush();
    else this.#scheduleFlush();
  }

  /** Tells that operations were abandoned, so that a node that never answers does not keep them for ever. */
  abandoned(): void {
    this.#abandonedCount += 1;
    if (this.#abandonedCount > 100 && this.#abandonedCount * 2 > this.#pending.length) {
      this.#pending = this.#pending.filter((request) => !request.abandoned);
      this.#abandonedCount = 0;
    }
  }

  /** For how long the node has owed an answer, 0 if it owes none. */
  silentMs(): number {
    const sinceMs = this.#inFlightSinceMs[0];
    return sinceMs === undefined ? 0 : this.#clock.monotonicMs() - sinceMs;
  }

  /** The node answered, with an error or without. */
  heard(): void {
    this.#heard += 1;
  }

  /** The node did not answer in time. If nothing at all comes from it for long, its connection is replaced. */
  suspect(): void {
    if (this.#isClosed || this.node.reconnect === undefined || this.node.state !== "ready") return;
    const heard = this.#heard;
    this.#cancelWatch ??= this.#clock.schedule(this.#deadConnectionMs, () => {
      this.#cancelWatch = undefined;
      if (this.#heard === heard && this.node.state === "ready") this.node.reconnect?.();
    });
  }

  /**
   * Keeps a release that failed; it is sent again when the node is ready, or after a moment if it is (a busy
   * script, a write that the node refused).
   */
  keepUndelivered(release: Undelivered): void {
    if (this.#isClosed) return;
    this.#undelivered.push(release);
    if (this.node.state === "ready") {
      this.#cancelRedelivery ??= this.#clock.schedule(REDELIVERY_MS, () => {
        this.#cancelRedelivery = undefined;
        this.#redeliver();
        this.#scheduleFlush();
      });
    }
    if (this.#undelivered.length <= MAX_UNDELIVERED) return;
    const now = this.#clock.monotonicMs();
    this.#undelivered = this.#undelivered.filter((kept) => kept.untilMs > now).slice(-MAX_UNDELIVERED / 2);
  }

  /** Resolves when the node owes no answer and nothing waits to be sent to it. */
  untilAnswered(): Promise<void> {
    return new Promise((resolve) => {
      this.#onAnswered = resolve;
      this.#tellAnswered();
    });
  }

  #tellAnswered(): void {
    const isWaiting = this.node.state === "ready" && this.#pending.length > 0;
    if (this.#inFlightSinceMs.length === 0 && !isWaiting) this.#onAnswered?.();
  }

  close(): void {
    this.#isClosed = true;
    this.#stopListening();
    this.#cancelRedelivery?.();
    this.#cancelWatch?.();
    this.#undelivered = [];
    this.#failPending(new Error(`${this.node.name}: closed`));
  }

  #onStateChange(): void {
    this.#cancelWatch?.();
    this.#cancelWatch = undefined;
    if (this.node.state === "down") {
      this.#failPending(notConnected(this.node));
      return;
    }
    if (this.node.state !== "ready") return;
    this.#redeliver();
    this.#touch();
    this.#scheduleFlush();
  }

  #failPending(error: Error): void {
    const failed = this.#pending;
    this.#pending = [];
    this.#abandonedCount = 0;
    for (const request of failed) if (!request.abandoned) request.onError(this.index, error);
  }

  /** Starts the quarantine's clock at the restart rather than at the first acquisition after it. */
  #touch(): void {
    if (this.#quarantined) this.#send([]);
  }

  #redeliver(): void {
    const now = this.#clock.monotonicMs();
    const releases = this.#undelivered;
    this.#undelivered = [];
    for (const release of releases) {
      if (release.untilMs <= now) continue;
      this.#pending.push(new Redelivery(this, release));
    }
  }

  #scheduleFlush(): void {
    if (this.#flushScheduled || this.#pending.length === 0) return;
    this.#flushScheduled = true;
    this.#clock.defer(() => {
      this.#flushScheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.node.state !== "ready") return;
    if (this.silentMs() > this.#nodeTimeoutMs) this.suspect();
    const size = Math.max(this.#fullRequest, Math.ceil(this.#pending.length / PIPELINED_REQUESTS));
    while (this.#pending.length > 0 && (this.node.isCluster === true || this.#mayAsk(0))) {
      const batch = this.#nextBatch(Math.min(size, MAX_OPERATIONS));
      if (batch.length === 0) return;
      this.#send(batch);
    }
  }

  #nextBatch(size: number): readonly Request[] {
    if (this.node.isCluster !== true && this.#abandonedCount === 0) {
      if (!this.#mayAsk(0)) return [];
      if (this.#pending.length > size) return this.#pending.splice(0, size);
      const all = this.#pending;
      this.#pending = [];
      return all;
    }
    const sameSlotOnly = this.node.isCluster === true;
    const batch: Request[] = [];
    const rest: Request[] = [];
    for (const request of this.#pending) {
      if (request.abandoned) continue;
      const { slot } = request.target;
      const isFirst = batch.length === 0 && this.#mayAsk(slot);
      const fits = isFirst || (batch.length > 0 && (!sameSlotOnly || slot === slotOf(batch)));
      if (fits && batch.length < size) batch.push(request);
      else rest.push(request);
    }
    this.#pending = rest;
    this.#abandonedCount = 0;
    return batch;
  }

  #send(batch: readonly Request[]): void {
    const slot = slotOf(batch);
    const { keys, args } = this.#requests.of(batch, this.#greatestNumber);
    const bit = 1 << this.index;
    for (const request of batch) request.sentTo |= bit;
    this.#inFlightSinceMs.push(this.#clock.monotonicMs());
    this.#inFlight.set(slot, (this.#inFlight.get(slot) ?? 0) + 1);
    this.#eval(keys, args).then(
      (reply) => this.#onAnswer(batch, reply),
      (error: unknown) => this.#onFailure(batch, requestError(error)),
    );
  }

  /** An adapter of the user's own may throw where it should reject. */
  #eval(keys: readonly string[], args: readonly string[]): Promise<unknown> {
    try {
      return this.node.eval(batchScript, keys, args);
    } catch (error) {
      return Promise.reject(requestError(error));
    }
  }

  get #isPipelining(): boolean {
    const unanswered = this.#inFlightSinceMs.length;
    return unanswered > 0 && unanswered < PIPELINED_REQUESTS && this.node.isCluster !== true;
  }

  #mayAsk(slot: number): boolean {
    return (this.#inFlight.get(slot) ?? 0) < MAX_IN_FLIGHT;
  }

  #answered(batch: readonly Request[]): void {
    this.#heard += 1;
    this.#inFlightSinceMs.shift();
    const slot = slotOf(batch);
    const left = (this.#inFlight.get(slot) ?? 0) - 1;
    if (left > 0) this.#inFlight.set(slot, left);
    else this.#inFlight.delete(slot);
  }

  #onAnswer(batch: readonly Request[], reply: unknown): void {
    this.#answered(batch);
    if (typeof reply === "string" || reply === 1) this.#succeeded(batch, reply);
    else if (Array.isArray(reply) && reply.length === batch.length + 2) this.#replied(batch, reply);
    else this.#fail(batch, new Error(`${this.node.name}: unexpected reply ${JSON.stringify(reply)}`));
    this.#scheduleFlush();
    this.#tellAnswered();
  }

  /** All of it: then the grants of a node alone have one number after the other, the last of which it replied. */
  #succeeded(batch: readonly Request[], reply: string | 1): void {
    if (reply === 1) {
      for (const request of batch) request.onReply(this.index, 1, 0, 0);
      return;
    }
    this.noteNumber(reply);
    let number = Number(reply) + 1;
    for (const { isAcquisition } of batch) if (isAcquisition) number -= 1;
    for (const request of batch) request.onReply(this.index, request.isAcquisition ? number++ : 1, 0, 0);
  }

  #replied(batch: readonly Request[], reply: readonly unknown[]): void {
    const nodeTimeUs = Number(reply[0]);
    const quarantineLeftMs = Number(reply[1]);
    let at = 2;
    for (const request of batch) {
      const value = reply[at++];
      if (this.#isAlone && request.isAcquisition && typeof value === "number") this.noteNumber(digits(value));
      request.onReply(this.index, value, nodeTimeUs, quarantineLeftMs);
    }
  }

  /** The node has numbered a grant of this client. */
  noteNumber(number: string): void {
    if (number > this.#greatestNumber) this.#greatestNumber = number;
  }

  #onFailure(batch: readonly Request[], error: Error): void {
    this.#answered(batch);
    this.#fail(batch, error);
    this.#scheduleFlush();
    this.#tellAnswered();
  }

  #fail(batch: readonly Request[], error: Error): void {
    for (const request of batch) request.onError(this.index, error);
  }
}

class Redelivery extends Request {
  readonly #batcher: Batcher;
  readonly #release: Undelivered;

  constructor(batcher: Batcher, release: Undelivered) {
    super(release.target);
    this.text = release.text;
    this.#batcher = batcher;
    this.#release = release;
  }

  override onReply(_node: number, value: unknown): void {
    if (isRefused(value)) this.#batcher.keepUndelivered(this.#release);
  }

  override onError(): void {
    this.#batcher.keepUndelivered(this.#release);
  }

  override onDeadline(): void {}
}

/** A batch without operations looks at the node only. */
function slotOf(batch: readonly Request[]): number {
  return batch[0]?.target.slot ?? 0;
}
