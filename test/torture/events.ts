/** The events of a run. Every process appends to one file synchronously, so SIGKILL loses no event. */
import { closeSync, openSync, readFileSync, writeSync } from "node:fs";

export const FAULT_KINDS = [
  "process killed",
  "process frozen",
  "event loop blocked",
  "clock stepped",
  "connection lost",
  "connection silent",
  "server frozen",
  "server restarted",
  "replica promoted",
] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

/** All times are `CLOCK_MONOTONIC` in ms, which the processes of a machine share. */
export type TortureEvent =
  /** The system has let a process work on a key: the lock is granted, or the job's processor was called. */
  | {
      readonly kind: "granted";
      readonly who: string;
      readonly turn: string;
      readonly key: string;
      readonly job?: number | undefined;
      readonly atMs: number;
    }
  /** The system has confirmed that the turn is still exclusive. The time was read before the question was asked. */
  | { readonly kind: "confirmed"; readonly turn: string; readonly atMs: number }
  /** The work of the turn is over. */
  | { readonly kind: "ended"; readonly turn: string; readonly atMs: number }
  /**
   * The store has decided on a write. `read` is the counter that the turn knew, `found` the counter before the write.
   */
  | {
      readonly kind: "written";
      readonly turn: string;
      readonly key: string;
      readonly job?: number | undefined;
      readonly read: number;
      readonly found: number;
      readonly isAccepted: boolean;
    }
  /** The queue has confirmed that it has the job. Jobs of a key are numbered in this order. */
  | { readonly kind: "added"; readonly key: string; readonly job: number; readonly atMs: number }
  /** An uncaught error. Without the handler that records the error, Node.js would have ended the process. */
  | { readonly kind: "uncaught"; readonly who: string; readonly message: string; readonly atMs: number }
  | {
      readonly kind: "fault";
      readonly id: number;
      readonly fault: FaultKind;
      /** The process that was struck; undefined for a server. */
      readonly who: string | undefined;
      readonly text: string;
      readonly atMs: number;
    }
  | { readonly kind: "mended"; readonly id: number; readonly atMs: number };

export class EventFile implements Disposable {
  readonly #file: number;

  constructor(path: string) {
    this.#file = openSync(path, "a");
  }

  append(entry: TortureEvent): void {
    writeSync(this.#file, `${JSON.stringify(entry)}\n`);
  }

  [Symbol.dispose](): void {
    closeSync(this.#file);
  }
}

export function readEvents(path: string): TortureEvent[] {
  const lines = readFileSync(path, "utf8").split("\n");
  return lines.flatMap((line) => (line === "" ? [] : [JSON.parse(line) as TortureEvent]));
}
