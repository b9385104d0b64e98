/** The interface of a driver: a lock library or a queue, with its configuration as text. */
import type { FaultKind } from "../events.ts";

export const SYSTEM_NAMES = [
  "x-locks",
  "x-workers",
  "redlock5",
  "redlock4",
  "redis-semaphore",
  "redlock-universal",
  "groupmq",
  "pg-boss",
] as const;
export type SystemName = (typeof SYSTEM_NAMES)[number];

/** A piece of exclusive work. */
export interface Turn {
  /** Asks the system, by the means that it documents, whether the work may go on. */
  isHeld(): boolean | Promise<boolean>;
  /** For the store, if the system has such tokens and documents that a store compares them. */
  readonly fencingToken?: number | undefined;
}

export interface JobData {
  readonly key: string;
  readonly job: number;
}

interface Described {
  /** Package whose version is printed. */
  readonly package: string;
  readonly title: string;
  readonly configuration: string;
  /** The question that the driver asks the system before each step. */
  readonly question: string;
  /** Promises that the system itself documents, and the limits that it names. */
  readonly promises: string;
  /** Faults that the servers of this system do not support here. */
  readonly without?: readonly FaultKind[];
}

export interface LockSystem extends Described {
  readonly kind: "locks";
  /** Returns a function that waits for the lock of `key` by the library's own means, and holds it during `work`. */
  readonly open: (
    nodes: readonly Address[],
    leaseMs: number,
  ) => (key: string, work: (turn: Turn) => Promise<void>) => Promise<unknown>;
}

export interface QueueSystem extends Described {
  readonly kind: "queue";
  readonly server: "redis" | "postgres";
  /** Creates the queue, and returns its producer. Adding a job again with the same `id` adds no second job. */
  readonly openProducer: (address: Address, leaseMs: number) => Promise<Producer>;
  readonly startWorker: (
    address: Address,
    leaseMs: number,
    process: (data: JobData, turn: Turn) => Promise<void>,
  ) => Promise<void> | void;
}

export interface Producer {
  add(data: JobData, id: string): Promise<void>;
  close(): Promise<unknown>;
}

export interface Address {
  readonly host: string;
  readonly port: number;
}

export const QUEUE = "torture";
/** Jobs that one process works on at a time. */
export const CONCURRENCY = 4;

export class TurnLostError extends Error {
  override readonly name = "TurnLostError";
}
