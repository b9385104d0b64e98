/**
 * Messages between the event loop and the renewal thread, and memory that both read without waiting.
 *
 * The memory contains the clocks' reading from before the last successful renewal. An event loop that was blocked
 * therefore knows its deadline as soon as it runs again. The memory also contains a beat that the event loop changes,
 * so that the thread notices a blocked event loop. A reader that sees old and new cells together trusts the lease for a
 * shorter time, never longer.
 */
import {
  FencedOffError,
  LockHeldError,
  LockLostError,
  QuorumUnreachableError,
  RedlockClosedError,
  type RedlockErrorCode,
  ReentrancyError,
  type Vote,
} from "@x/redlock-core";
import { asError, type Instant } from "@x/redlock-core/kit";
import type { LeaseOptions } from "../lease.ts";

export interface ThreadData extends LeaseOptions {
  readonly memory: SharedArrayBuffer;
  /** The URL of the module that makes the `Redlock`. */
  readonly redlock: string;
  readonly maxBlock: number;
}

/** Commands to the thread. The `id` of a message is the ID of its acquisition. */
export type ThreadCommand =
  /** Acquire the lock, with or without waiting. `now` is the event loop's reading of its clocks at the sending. */
  | { readonly type: "acquire"; readonly id: number; readonly isToWait: boolean; readonly now: Instant }
  | { readonly type: "cancel"; readonly id: number }
  | { readonly type: "leave"; readonly id: number }
  | { readonly type: "release"; readonly id: number }
  | { readonly type: "close" };

export type Report =
  /** The thread accepts commands. */
  | { readonly type: "ready"; readonly id: 0 }
  | { readonly type: "granted"; readonly id: number; readonly fencingToken: number; readonly token: string }
  | { readonly type: "refused"; readonly id: number; readonly votes: readonly Vote[] }
  | { readonly type: "held"; readonly id: number }
  | { readonly type: "failed"; readonly id: number; readonly failure: ThreadFailure }
  | { readonly type: "renewed"; readonly id: number; readonly tookMs: number }
  | { readonly type: "renewFailed"; readonly id: number; readonly failure: ThreadFailure }
  | { readonly type: "lost"; readonly id: number; readonly failure: ThreadFailure }
  | { readonly type: "released"; readonly id: number; readonly confirmed: boolean };

const CELLS = { beat: 0, monotonicUs: 1, wallUs: 2, suspendedUs: 3 } as const;

export class SharedMemory {
  readonly memory: SharedArrayBuffer;
  readonly #cells: BigInt64Array;

  constructor(memory: SharedArrayBuffer = new SharedArrayBuffer(8 * Object.keys(CELLS).length)) {
    this.memory = memory;
    this.#cells = new BigInt64Array(memory);
  }

  get beats(): bigint {
    return Atomics.load(this.#cells, CELLS.beat);
  }

  beat(): void {
    Atomics.add(this.#cells, CELLS.beat, 1n);
  }

  /** Reading of the clocks from before the last renewal, in the event loop's clocks. */
  get start(): Instant {
    const ms = (cell: number): number => Number(Atomics.load(this.#cells, cell)) / 1_000;
    return { monotonicMs: ms(CELLS.monotonicUs), wallMs: ms(CELLS.wallUs), suspendedMs: ms(CELLS.suspendedUs) };
  }

  set start(reading: Instant) {
    const store = (cell: number, ms: number): void =>
      void Atomics.store(this.#cells, cell, BigInt(Math.floor(ms * 1_000)));
    store(CELLS.monotonicUs, reading.monotonicMs);
    store(CELLS.wallUs, reading.wallMs);
    store(CELLS.suspendedUs, reading.suspendedMs);
  }
}

/** Returns the period of the event loop's beats, and of the thread's looks. */
export function beatPeriodMs(maxBlock: number): number {
  return Math.max(5, Math.floor(maxBlock / 10));
}

/** An error in a message. Messages keep the text and cause of an error, but neither its class nor its fields. */
export interface ThreadFailure {
  readonly error: Error;
  /** Code of a redlock-core error. Undefined for other errors. */
  readonly code: RedlockErrorCode | undefined;
  /** Other fields of the error, as plain data. */
  readonly facts: object;
}

const KINDS: Readonly<Record<RedlockErrorCode, { readonly prototype: Error }>> = {
  QUORUM_UNREACHABLE: QuorumUnreachableError,
  NO_LUA: QuorumUnreachableError,
  REDLOCK_CLOSED: RedlockClosedError,
  LOCK_LOST: LockLostError,
  LOCK_HELD: LockHeldError,
  FENCED_OFF: FencedOffError,
  REENTRANCY: ReentrancyError,
};

/**
 * Returns the error as data. Errors are recognized by code, because the thread's module may have its own redlock-core.
 */
export function failureOf(thrown: unknown): ThreadFailure {
  const error: Error & { readonly code?: unknown } = asError(thrown);
  const code = (Object.keys(KINDS) as RedlockErrorCode[]).find((known) => known === error.code);
  return { error, code, facts: code === undefined ? {} : Object.assign({}, error) };
}

/** Returns the thrown error with its class and fields. */
export function errorOf({ error, code, facts }: ThreadFailure): Error {
  if (code === undefined) return error;
  Object.setPrototypeOf(error, KINDS[code].prototype);
  return Object.assign(error, facts);
}
