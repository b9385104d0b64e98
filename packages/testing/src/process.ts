/**
 * A process in virtual time: the clock that its `Redlock` is given, and what can happen to it.
 *
 * Its code runs in the test's own process, so it is never stopped in the middle of a turn of the event loop. What is
 * frozen or killed are its timers, and the replies that it would get.
 */
import type { Clock } from "@x/redlock-core";
import { abortSignal, Check, integer, Schema, sleep } from "@x/redlock-core/protocol";
import type { Machine } from "./world/machine.ts";

export const DURATION: Check<number> = integer({ min: 0 });
export const STEP: Check<number> = integer({ min: Number.MIN_SAFE_INTEGER });
const SLEEP = new Schema({ signal: abortSignal.optional() });

const machines = new WeakMap<object, Machine>();

export const PROCESS: Check<VirtualProcess> = new Check({
  rule: "a VirtualClock or a process of one",
  faultOf: (value) => (machines.has(value as object) ? undefined : "type"),
});

/** Returns the machine that a process runs on, for the kit's other files. */
export function machineOf(process: VirtualProcess): Machine {
  const machine = machines.get(PROCESS.of("clock", process));
  if (machine === undefined) throw new TypeError("clock must be a VirtualClock or a process of one");
  return machine;
}

export class VirtualProcess implements Clock {
  readonly name: string;

  /** Is called by `VirtualClock`, which makes processes. */
  constructor(machine: Machine) {
    this.name = machine.name;
    machines.set(this, machine);
  }

  monotonicMs(): number {
    return machineOf(this).clock.monotonicMs();
  }

  wallMs(): number {
    return machineOf(this).clock.wallMs();
  }

  suspendedMs(nowMs: number): number {
    return machineOf(this).clock.suspendedMs(nowMs);
  }

  schedule(afterMs: number, run: () => void): () => void {
    return machineOf(this).clock.schedule(afterMs, run);
  }

  defer(run: () => void): void {
    machineOf(this).clock.defer(run);
  }

  /** Waits for `ms` of this process's time. Rejects with the signal's reason when `signal` aborts. */
  async sleep(ms: number, options: { readonly signal?: AbortSignal | undefined } = {}): Promise<void> {
    const { signal } = SLEEP.resolve(options);
    await sleep(this, DURATION.of("ms", ms), signal);
  }

  /** Stops the process for `ms`, as SIGSTOP or a long garbage collection does: clocks go on, and nothing runs. */
  freeze(ms: number): void {
    machineOf(this).freeze(DURATION.of("ms", ms), "timer");
  }

  /** Suspends its machine for `ms`, as a closed laptop or a paused VM: the monotonic clock stands still, too. */
  suspend(ms: number): void {
    machineOf(this).suspend(DURATION.of("ms", ms));
  }

  /** Steps the process's wall clock by `ms`, forwards or back. */
  skew(ms: number): void {
    machineOf(this).stepWallClock(STEP.of("ms", ms));
  }

  /** Ends the process for good: it releases nothing, no timer of it fires, and nothing that it waits for comes. */
  kill(): void {
    machineOf(this).kill();
  }
}
