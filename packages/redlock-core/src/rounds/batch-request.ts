/** Builds the keys and arguments of one request with many operations, as scripts/batch.lua.ts expects them. */
import type { Clock } from "../kit/clock.ts";
import { nodeKeysOf, sideKeyOf } from "../rules/keys.ts";
import { digits, isAcquisition, MODE, type OperationKind, SIDE_KEYS, type Target } from "../rules/operation.ts";

export const NO_NUMBER: string = digits(0);

export interface BatchOperation {
  readonly kind: OperationKind;
  readonly target: Target;
  readonly text: string;
}

interface BatchSender {
  /** Whether the node alone votes and numbers the grants. */
  readonly isAlone: boolean;
  readonly isCluster: boolean;
  readonly quarantineMs: number;
  readonly grantTtlMs: number;
  readonly countsReceivers: boolean;
  readonly waiterTtlMs: number;
}

interface BatchRequest {
  readonly keys: readonly string[];
  readonly args: readonly string[];
}

/** This number of requests keeps a connection busy. Beyond it, larger batches are cheaper than more requests. */
export const MAX_IN_FLIGHT = 16;

interface BuiltRequest {
  readonly operations: readonly BatchOperation[];
  readonly request: BatchRequest;
}

/** Serves all nodes with the same settings, so that a request to several nodes is built only once. */
export class BatchRequests {
  readonly sender: BatchSender;
  readonly #clock: Pick<Clock, "defer">;
  readonly #settings: string;
  /**
   * Requests that were built in this turn of the event loop, at most `MAX_IN_FLIGHT`. A batcher sends no more in one
   * turn, except to a Cluster.
   */
  #built: BuiltRequest[] = [];

  constructor(sender: BatchSender, clock: Pick<Clock, "defer">) {
    this.sender = sender;
    this.#clock = clock;
    const { quarantineMs, grantTtlMs, countsReceivers, waiterTtlMs } = sender;
    this.#settings = `${quarantineMs} ${grantTtlMs} ${countsReceivers ? 1 : 0} ${waiterTtlMs}`;
  }

  /**
   * Builds the request. `greatestNumber` is the greatest number, of 16 digits, that the node has given a grant of this
   * client.
   *
   * Several nodes receive the same operations one after another, in the same turn of the event loop. The nodes share
   * one request object, which adapters recognize.
   */
  of(operations: readonly BatchOperation[], greatestNumber: string = NO_NUMBER): BatchRequest {
    if (this.sender.isAlone) return this.#make(operations, greatestNumber);
    const known = this.#built.find((built) => areSame(built.operations, operations));
    if (known !== undefined) return known.request;
    if (this.#built.length === 0) this.#clock.defer(this.#onTurnEnd);
    if (this.#built.length === MAX_IN_FLIGHT) this.#built = [];
    const request = this.#make(operations, greatestNumber);
    this.#built.push({ operations, request });
    return request;
  }

  readonly #onTurnEnd = (): void => {
    this.#built = [];
  };

  #make(operations: readonly BatchOperation[], greatestNumber: string): BatchRequest {
    const { isAlone, isCluster, quarantineMs } = this.sender;
    const { lines, lineEnds, hash, lastNumber } = nodeKeysOf(isCluster ? operations[0]?.target.slot : undefined);
    const keys = [lines, lineEnds];
    const args: string[] = [];
    if (operations.length > 0 && operations.every(({ kind }) => kind === "release")) {
      args.push(`${MODE.releases}${NO_NUMBER}${this.#settings}`);
    } else if (!isAlone) {
      keys.push(hash);
      args.push(`${MODE.several}${NO_NUMBER}${this.#settings}`);
      appendRegisters(args, operations);
    } else if (quarantineMs > 0) {
      keys.push(hash, lastNumber);
      args.push(`${MODE.aloneQuarantined}${greatestNumber}${this.#settings}`);
    } else {
      keys.push(lastNumber);
      args.push(`${MODE.alone}${greatestNumber}${this.#settings}`);
    }
    for (const { kind, target, text } of operations) {
      for (const key of target.keys) keys.push(key);
      const sideKey = SIDE_KEYS[kind];
      if (sideKey !== undefined) for (const key of target.keys) keys.push(sideKeyOf(key, sideKey));
      args.push(text);
    }
    return { keys, args };
  }
}

function areSame(some: readonly BatchOperation[], others: readonly BatchOperation[]): boolean {
  if (some.length !== others.length) return false;
  for (let at = 0; at < some.length; at += 1) if (some[at] !== others[at]) return false;
  return true;
}

/** Appends the number of registers, followed by the registers of each acquisition. */
function appendRegisters(args: string[], operations: readonly BatchOperation[]): void {
  const countAt = args.push("") - 1;
  for (const { kind, target } of operations) {
    if (isAcquisition(kind)) for (const register of target.registers ?? []) args.push(register);
  }
  args[countAt] = String(args.length - 1 - countAt);
}
