/**
 * A process in virtual time: the clock for its `Redlock`, and the faults of the process.
 *
 * The code of a virtual process runs in the test's own process. So the code never stops in the middle of a turn of the
 * event loop. A frozen or killed process gets no timers and no replies.
 */
import type { Clock } from "@x/redlock-core";
import { abortSignal, Check, integer, Schema, sleep } from "@x/redlock-core/kit";
import type { Machine } from "./world/machine.ts";

export const DURATION: Check<number> = integer({ min: 0 });
export const STEP: Check<number> = integer({ min: Number.MIN_SAFE_INTEGER });
const SLEEP = new Schema({ signal: abortSignal.optional() });

const machines = new WeakMap<object, Machine>();

export const PROCESS: Check<VirtualProcess> = new Check({
  rule: "a VirtualClock or a process of one",
  faultOf: (value) => (machines.has(value as object) ? undefined : "type"),
});

/** Returns the machine that a process runs on. */
export function machineOf(process: VirtualProcess): Machine {
  const machine = machines.get(PROCESS.of("clock", process));
  if (machine === undefined) throw new TypeError("clock must be a VirtualClock or a process of one");
  return machine;
}

export class VirtualProcess implements Clock {
  readonly name: string;

  /** Called by `VirtualClock`. */
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

  /** Stops the process for `ms`, like SIGSTOP or a long garbage collection: clocks continue, but no code runs. */
  freeze(ms: number): void {
    machineOf(this).freeze(DURATION.of("ms", ms), "timer");
  }

  /** Suspends the machine for `ms`, like a closed laptop or a paused VM. The monotonic clock also stands still. */
  suspend(ms: number): void {
    machineOf(this).suspend(DURATION.of("ms", ms));
  }

  /** Steps the process's wall clock by `ms`, forwards or backwards. */
  skew(ms: number): void {
    machineOf(this).stepWallClock(STEP.of("ms", ms));
  }

  /** Ends the process for good. The process releases nothing, and its timers and replies never arrive. */
  kill(): void {
    machineOf(this).kill();
  }
}
