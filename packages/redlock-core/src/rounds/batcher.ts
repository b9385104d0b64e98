/**
 * A batcher sends the requests for one node. All operations issued in one turn of the event loop travel together, in
 * the order of issue, in one request or a few. They are sent by the end of the same turn, so batching adds no latency.
 *
 * Each operation is settled at most once, by the node's answer or by an error. An operation that was not sent before
 * its round gave up is never sent. An operation that was given up after sending may still execute; its release follows
 * on the same connection.
 *
 * A node that does not answer costs a limited amount of memory. At most `MAX_IN_FLIGHT` requests are unanswered, and
 * the other operations wait here until their rounds give up. In a Cluster the limit applies per hash slot, so that one
 * hanging master does not stop the others.
 *
 * Releases that cannot be delivered are kept until their keys have expired, and sent when the node can be asked again
 * (undelivered.ts).
 */

import type { Clock } from "../kit/clock.ts";
import { show } from "../kit/schema/show.ts";
import { type LockNode, notConnected, requestError } from "../nodes/node.ts";
import { digits, isAcquisition, isNumber, type Target } from "../rules/operation.ts";
import { batchScript, isReadOnly, isRefused, operationError, parseReplies } from "../scripts/batch.lua.ts";
import { type BatchOperation, type BatchRequests, MAX_IN_FLIGHT } from "./batch-request.ts";
import { ConnectionWatch } from "./connection-watch.ts";
import { GrantNumbers } from "./fencing-clock.ts";
import { type UndeliveredOperation, UndeliveredRequests, type UndeliveredScript } from "./undelivered.ts";

/** Reply of a node to one operation. */
export interface Reply {
  readonly kind: "reply";
  /** Value described by the operation's script file, or an error. */
  readonly value: unknown;
  /** Clock of the node in microseconds. */
  readonly nodeTimeUs: number;
  /** Milliseconds until the node may vote. 0 if the node may vote now. */
  readonly quarantineLeftMs: number;
}

/** An operation that is sent to one or several nodes. Each node gives the operation one outcome. */
export interface Request extends BatchOperation {
  /**
   * Nodes to whose connection the request was passed, as bits. From then on a node may execute the request, even
   * without an answer.
   */
  sentTo: number;
  /** Whether the caller has given up. An abandoned request that is not sent yet is dropped. */
  readonly isAbandoned: boolean;
  onReply(node: number, reply: Reply): void;
  onError(node: number, error: Error): void;
}

/**
 * Keeps one request, and so one run of the script on the node, below about a millisecond if each lock has one resource.
 */
const MAX_OPERATIONS = 250;

/**
 * Number of requests into which many operations of one turn are split. The requests are sent together: the node answers
 * the first while the others are on their way, and neither side waits for the other. With 100 callers on one node:
 * 145,000 pairs/s, against 80,000 in one request.
 *
 * While fewer requests are unanswered, a full request is sent before the turn ends: 155,000 pairs/s.
 */
const PIPELINED_REQUESTS = 4;

/**
 * A request with fewer operations is not worth splitting. With several nodes, one node works while requests to the
 * others are written, and larger requests cost both sides less. With 100 callers on three nodes: 63,000 pairs/s,
 * against 57,000 with smaller requests.
 */
const FULL_REQUEST = { oneNode: 50, severalNodes: 100 } as const;

/** Reply of an operation that succeeded without further data. */
const YES: Reply = { kind: "reply", value: 1, nodeTimeUs: 0, quarantineLeftMs: 0 };

export class Batcher {
  readonly node: LockNode;
  readonly index: number;
  readonly watch: ConnectionWatch;
  readonly numbers: GrantNumbers = new GrantNumbers();
  readonly #clock: Clock;
  readonly #requests: BatchRequests;
  readonly #stopListening: () => void;
  readonly #pending: PendingRequests;
  readonly #unanswered: UnansweredRequests;
  /** Undefined while every request has been delivered. */
  #undelivered: UndeliveredRequests | undefined;
  /** Number of answers of the node, to requests and scripts of any kind, with or without an error. */
  #answerCount = 0;
  #isFlushScheduled = false;
  #isClosed = false;
  #onAnswered: (() => void) | undefined;

  constructor(node: LockNode, index: number, clock: Clock, requests: BatchRequests, nodeTimeoutMs: number) {
    this.node = node;
    this.index = index;
    this.#clock = clock;
    this.#requests = requests;
    this.watch = new ConnectionWatch(node, clock, { nodeTimeoutMs, answerCount: () => this.#answerCount });
    const isCluster = node.isCluster === true;
    this.#pending = new PendingRequests(isCluster);
    this.#unanswered = new UnansweredRequests(isCluster);
    this.#stopListening = node.onStateChange(() => this.#onStateChange());
    this.#onStateChange();
  }

  submit(request: Request): void {
    if (this.#isClosed || this.node.state === "down") {
      request.onError(this.index, notConnected(this.node));
      return;
    }
    this.#pending.add(request);
    if (this.#pending.count >= this.#fullRequest && this.#isPipelining) this.#flush();
    else this.#scheduleFlush();
  }

  /** Called when the node has answered a script that this batcher did not send. */
  onScriptAnswered(): void {
    this.#answerCount += 1;
  }

  /** Called when a request was abandoned that is not sent yet. */
  onAbandoned(): void {
    this.#pending.onAbandoned();
  }

  /** Returns for how long the node has owed an answer. 0 if no request is unanswered. */
  silentMs(): number {
    const { sinceMs } = this.#unanswered;
    return sinceMs === undefined ? 0 : this.#clock.monotonicMs() - sinceMs;
  }

  /** Keeps a request that was not delivered, see `UndeliveredRequests.keep`. */
  keepUndelivered(request: UndeliveredOperation | UndeliveredScript): void {
    if (this.#isClosed) return;
    this.#undelivered ??= new UndeliveredRequests(this.node, this.#clock, () => this.#scheduleFlush());
    this.#undelivered.keep(request);
  }

  /** Resolves when no request is unanswered and nothing waits to be sent. */
  untilAnswered(): Promise<void> {
    return new Promise((resolve) => {
      this.#onAnswered = resolve;
      this.#notifyIfIdle();
    });
  }

  #notifyIfIdle(): void {
    const isWaiting = this.node.state === "ready" && this.#hasToSend;
    if (this.#unanswered.count === 0 && !isWaiting) this.#onAnswered?.();
  }

  close(): void {
    this.#isClosed = true;
    this.#stopListening();
    this.watch.close();
    this.#undelivered?.close();
    this.#failPending(new Error(`${this.node.name}: closed`));
  }

  #onStateChange(): void {
    this.watch.stop();
    if (this.node.state === "down") {
      this.#failPending(notConnected(this.node));
      return;
    }
    if (this.node.state !== "ready") return;
    this.#undelivered?.onReady();
    this.#touch();
    this.#scheduleFlush();
  }

  #failPending(error: Error): void {
    for (const request of this.#pending.takeAll()) if (!request.isAbandoned) request.onError(this.index, error);
  }

  /** Starts the node's quarantine with the restart instead of with the first acquisition afterwards. */
  #touch(): void {
    if (this.#requests.sender.quarantineMs > 0) this.#send([]);
  }

  get #hasToSend(): boolean {
    return this.#pending.count > 0 || this.#undelivered?.isDue === true;
  }

  /** Sends undelivered operations again, up to the limit, because they must not pile up for a node that hangs. */
  #redeliver(): void {
    if (this.#undelivered?.isDue !== true) return;
    if (this.node.isCluster !== true && !this.#unanswered.mayAsk(0)) return;
    const due = this.#undelivered.take(MAX_OPERATIONS, (slot) => this.#unanswered.mayAsk(slot));
    for (const operation of due) this.#pending.add(new Redelivery(operation, this));
  }

  #scheduleFlush(): void {
    if (this.#isFlushScheduled || !this.#hasToSend) return;
    this.#isFlushScheduled = true;
    this.#clock.defer(this.#onTurnEnd);
  }

  readonly #onTurnEnd = (): void => {
    this.#isFlushScheduled = false;
    this.#flush();
  };

  #flush(): void {
    if (this.node.state !== "ready") return;
    this.watch.suspectIfSilent(this.silentMs());
    this.#redeliver();
    const size = Math.max(this.#fullRequest, Math.ceil(this.#pending.count / PIPELINED_REQUESTS));
    while (this.#pending.count > 0) {
      const batch = this.#pending.take(Math.min(size, MAX_OPERATIONS), this.#unanswered);
      if (batch.length === 0) return;
      this.#send(batch);
    }
  }

  #send(batch: readonly Request[]): void {
    const { keys, args } = this.#requests.of(batch, this.numbers.greatest);
    const bit = 1 << this.index;
    for (const request of batch) request.sentTo |= bit;
    this.#unanswered.add(slotOf(batch), this.#clock.monotonicMs());
    this.#eval(keys, args).then(
      (reply) => this.#onAnswer(batch, reply),
      (error: unknown) => this.#onAnswer(batch, undefined, requestError(error, this.node)),
    );
  }

  /** Sends the request. A custom adapter may throw. */
  #eval(keys: readonly string[], args: readonly string[]): Promise<unknown> {
    try {
      return this.node.eval(batchScript, keys, args);
    } catch (error) {
      return Promise.reject(requestError(error, this.node));
    }
  }

  get #fullRequest(): number {
    return this.#requests.sender.isAlone ? FULL_REQUEST.oneNode : FULL_REQUEST.severalNodes;
  }

  get #isPipelining(): boolean {
    const { count } = this.#unanswered;
    return count > 0 && count < PIPELINED_REQUESTS && this.node.isCluster !== true;
  }

  #onAnswer(batch: readonly Request[], reply: unknown, error?: Error): void {
    this.#answerCount += 1;
    this.#unanswered.remove(slotOf(batch));
    if ((error !== undefined && isReadOnly(error.message)) || (Array.isArray(reply) && reply.some(isRefusedAsReplica)))
      this.watch.refusedAsReplica();
    if (error !== undefined) this.#fail(batch, error);
    else if (reply === 1 || (typeof reply === "string" && isNumber(reply))) this.#succeeded(batch, reply);
    else if (Array.isArray(reply) && reply.length === batch.length + 2) this.#replied(batch, reply);
    else this.#fail(batch, new Error(`${this.node.name}: unexpected reply ${show(reply)}`));
    this.#scheduleFlush();
    this.#notifyIfIdle();
  }

  /** Settles a batch whose operations all succeeded. A node alone replies the last number of its consecutive grants. */
  #succeeded(batch: readonly Request[], reply: string | 1): void {
    if (reply === 1) {
      for (const request of batch) request.onReply(this.index, YES);
      return;
    }
    this.numbers.note(reply);
    let number = Number(reply) + 1;
    for (const { kind } of batch) if (isAcquisition(kind)) number -= 1;
    for (const request of batch) {
      request.onReply(this.index, isAcquisition(request.kind) ? granted(number++) : YES);
    }
  }

  #replied(batch: readonly Request[], reply: readonly unknown[]): void {
    const { nodeTimeUs, quarantineLeftMs, values } = parseReplies(reply);
    for (const [at, request] of batch.entries()) {
      const value = values[at];
      if (this.#requests.sender.isAlone && isAcquisition(request.kind) && typeof value === "number")
        this.numbers.note(digits(value));
      request.onReply(this.index, { kind: "reply", value, nodeTimeUs, quarantineLeftMs });
    }
  }

  #fail(batch: readonly Request[], error: Error): void {
    for (const request of batch) request.onError(this.index, error);
  }
}

function isRefusedAsReplica(value: unknown): boolean {
  return typeof value === "object" && isReadOnly(operationError(value));
}

/** Another delivery of an operation. If this delivery fails, the batcher keeps the operation. */
class Redelivery implements Request {
  readonly kind: "release" | "leave";
  readonly target: Target;
  readonly text: string;
  readonly isAbandoned = false;
  sentTo = 0;
  readonly #operation: UndeliveredOperation;
  readonly #batcher: Batcher;

  constructor(operation: UndeliveredOperation, batcher: Batcher) {
    this.kind = operation.kind;
    this.target = operation.target;
    this.text = operation.text;
    this.#operation = operation;
    this.#batcher = batcher;
  }

  onReply(_node: number, { value }: Reply): void {
    if (isRefused(value)) this.onError();
  }

  onError(): void {
    this.#batcher.keepUndelivered(this.#operation);
  }
}

/** Requests that are not sent yet, in the order of issue. */
class PendingRequests {
  readonly #isCluster: boolean;
  #requests: Request[] = [];
  #abandonedCount = 0;

  constructor(isCluster: boolean) {
    this.#isCluster = isCluster;
  }

  get count(): number {
    return this.#requests.length;
  }

  add(request: Request): void {
    this.#requests.push(request);
  }

  /** Removes abandoned requests once they are the majority, so that they do not pile up for a silent node. */
  onAbandoned(): void {
    this.#abandonedCount += 1;
    if (this.#abandonedCount > 100 && this.#abandonedCount * 2 > this.#requests.length) {
      this.#requests = this.#requests.filter((request) => !request.isAbandoned);
      this.#abandonedCount = 0;
    }
  }

  /**
   * Removes and returns at most `size` requests that can be sent together: in a Cluster, the requests of one hash slot.
   * Empty if too many requests are unanswered.
   */
  take(size: number, unanswered: UnansweredRequests): readonly Request[] {
    if (this.#isCluster || this.#abandonedCount > 0) return this.#takeOneByOne(size, unanswered);
    if (!unanswered.mayAsk(0)) return [];
    return this.#requests.length > size ? this.#requests.splice(0, size) : this.takeAll();
  }

  #takeOneByOne(size: number, unanswered: UnansweredRequests): readonly Request[] {
    const batch: Request[] = [];
    const rest: Request[] = [];
    for (const request of this.#requests) {
      if (request.isAbandoned) continue;
      const { slot } = request.target;
      const isFirst = batch.length === 0 && unanswered.mayAsk(slot);
      const fits = isFirst || (batch.length > 0 && (!this.#isCluster || slot === slotOf(batch)));
      if (fits && batch.length < size) batch.push(request);
      else rest.push(request);
    }
    this.#requests = rest;
    this.#abandonedCount = 0;
    return batch;
  }

  takeAll(): readonly Request[] {
    const all = this.#requests;
    this.#requests = [];
    this.#abandonedCount = 0;
    return all;
  }
}

/** Counts the requests that the node has not answered. */
class UnansweredRequests {
  readonly #isCluster: boolean;
  /** Send times, in order. */
  readonly #sinceMs: number[] = [];
  /** Number of requests per hash slot of a Cluster. */
  readonly #countBySlot = new Map<number, number>();

  constructor(isCluster: boolean) {
    this.#isCluster = isCluster;
  }

  get count(): number {
    return this.#sinceMs.length;
  }

  /** When the oldest request was sent. Undefined if all are answered. */
  get sinceMs(): number | undefined {
    return this.#sinceMs[0];
  }

  /** Reports whether another request may be sent to the node, or to the master of the slot in a Cluster. */
  mayAsk(slot: number): boolean {
    return (this.#isCluster ? (this.#countBySlot.get(slot) ?? 0) : this.#sinceMs.length) < MAX_IN_FLIGHT;
  }

  add(slot: number, nowMs: number): void {
    this.#sinceMs.push(nowMs);
    if (this.#isCluster) this.#countBySlot.set(slot, (this.#countBySlot.get(slot) ?? 0) + 1);
  }

  remove(slot: number): void {
    this.#sinceMs.shift();
    if (!this.#isCluster) return;
    const left = (this.#countBySlot.get(slot) ?? 0) - 1;
    if (left > 0) this.#countBySlot.set(slot, left);
    else this.#countBySlot.delete(slot);
  }
}

function granted(number: number): Reply {
  return { kind: "reply", value: number, nodeTimeUs: 0, quarantineLeftMs: 0 };
}

/** Returns the hash slot of a batch. A batch without operations only reads the state of the node. */
function slotOf(batch: readonly Request[]): number {
  return batch[0]?.target.slot ?? 0;
}
