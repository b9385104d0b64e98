/**
 * A machine with one client process: the clocks, the timers, and the state of the process (running, frozen, suspended
 * or killed). While the process is frozen (SIGSTOP), clocks continue and no code runs. While the machine is suspended,
 * the monotonic clock also stands still.
 */
import type { Clock } from "@x/redlock-core";
import type { Instant } from "@x/redlock-core/kit";
import type { Drift } from "./drift.ts";
import type { World } from "./world.ts";

export interface MachineOptions {
  readonly name: string;
  readonly drift: Drift;
  readonly wallOffsetMs: number;
  /** The chance, per reading of a clock, that the process is frozen at this point. */
  readonly stallChance: number;
  readonly longestStallMs: number;
}

/** Work that became due while the machine did not run. */
interface Waiting {
  readonly kind: "timer" | "message";
  readonly run: () => void;
}

const machines = new WeakMap<World, readonly Machine[]>();

/** Returns all machines of a world, including killed ones. */
export function machinesOf(world: World): readonly Machine[] {
  return machines.get(world) ?? [];
}

export class Machine {
  readonly name: string;
  readonly world: World;
  readonly clock: Clock;
  readonly #options: MachineOptions;
  readonly #monotonicBaseMs: number;
  #wallStepMs = 0;
  #suspendedMs = 0;
  #suspendedSinceMs: number | undefined;
  #frozenCount = 0;
  #inbox: Waiting[] = [];
  #isAlive = true;
  readonly #killListeners: (() => void)[] = [];
  #frozenMs = 0;
  #probe: Instant | undefined;

  constructor(world: World, options: MachineOptions) {
    this.world = world;
    this.name = options.name;
    this.#options = options;
    machines.set(world, [...machinesOf(world), this]);
    this.#monotonicBaseMs = world.random.between(1_000, 1_000_000);
    this.clock = {
      monotonicMs: () => this.#read()?.monotonicMs ?? this.monotonicMs(),
      wallMs: () => this.#probe?.wallMs ?? Math.floor(this.wallMs()),
      suspendedMs: () => this.#probe?.suspendedMs ?? this.suspendedMs(),
      schedule: (afterMs, run) => this.#schedule(afterMs, run),
      defer: (run) => process.nextTick(run),
    };
  }

  get isAlive(): boolean {
    return this.#isAlive;
  }

  get isRunning(): boolean {
    return this.#isAlive && this.#frozenCount === 0;
  }

  /** How long the process has been kept from running, in true ms. */
  get frozenMs(): number {
    return this.#frozenMs + this.world.stalledMs;
  }

  /** Returns the clock's reading without the small passage of time of a real reading. */
  monotonicMs(): number {
    const ranMs = this.#ranMs();
    return this.#monotonicBaseMs + ranMs + this.#options.drift.errorMs(ranMs);
  }

  wallMs(): number {
    const { nowMs } = this.world;
    const { wallOffsetMs, drift } = this.#options;
    return this.world.epochMs + wallOffsetMs + this.#wallStepMs + nowMs + drift.errorMs(nowMs);
  }

  suspendedMs(): number {
    return Math.floor(this.world.nowMs - this.#ranMs());
  }

  /** Calls `read` with the given clock readings. `read` must not have side effects. */
  withClock<Result>(at: Instant, read: () => Result): Result {
    this.#probe = at;
    try {
      return read();
    } finally {
      this.#probe = undefined;
    }
  }

  /** Runs code of the client now, or once the machine runs again. */
  deliver(kind: Waiting["kind"], run: () => void): void {
    if (!this.#isAlive) return;
    if (this.#frozenCount > 0) {
      this.#inbox.push({ kind, run });
      return;
    }
    this.world.noteClientCode();
    run();
  }

  stepWallClock(byMs: number): void {
    this.#wallStepMs += byMs;
  }

  /**
   * Freezes the process for `ms`. Freezes may overlap. `first`: which kind of work runs first afterwards, because a
   * real event loop may choose either order.
   */
  freeze(ms: number, first?: Waiting["kind"]): void {
    this.#frozenCount += 1;
    this.#frozenMs += ms;
    this.world.at(this.world.nowMs + ms, () => this.#thaw(first));
  }

  /** Suspends the machine: the monotonic clock also stands still. */
  suspend(ms: number): void {
    if (this.#suspendedSinceMs !== undefined) return;
    this.#suspendedSinceMs = this.world.nowMs;
    this.#frozenCount += 1;
    this.#frozenMs += ms;
    this.world.at(this.world.nowMs + ms, () => {
      this.#suspendedMs += this.world.nowMs - (this.#suspendedSinceMs ?? this.world.nowMs);
      this.#suspendedSinceMs = undefined;
      this.#thaw();
    });
  }

  kill(): void {
    this.#isAlive = false;
    this.#inbox = [];
    for (const listener of this.#killListeners) listener();
  }

  onKill(listener: () => void): void {
    this.#killListeners.push(listener);
  }

  /** Returns the true time without the time spent suspended. */
  #ranMs(): number {
    const { nowMs } = this.world;
    const standingMs = this.#suspendedSinceMs === undefined ? 0 : nowMs - this.#suspendedSinceMs;
    return nowMs - this.#suspendedMs - standingMs;
  }

  #read(): { readonly monotonicMs: number } | undefined {
    if (this.#probe !== undefined) return this.#probe;
    const { random } = this.world;
    this.world.pass(random.fraction() * 0.004);
    if (!this.world.isQuiet && random.fraction() < this.#options.stallChance) {
      const stallMs = random.between(1, this.#options.longestStallMs);
      this.world.stall(stallMs);
      this.world.record(this.name, "fault", () => `frozen for ${stallMs.toFixed(1)} ms in the middle of a step`);
    }
    return undefined;
  }

  #schedule(afterMs: number, run: () => void): () => void {
    const dueMs = this.monotonicMs() + Math.max(afterMs, 1);
    let isCancelled = false;
    const arm = (): void => {
      const leftMs = this.#options.drift.trueMs(this.#ranMs(), Math.max(dueMs - this.monotonicMs(), 0));
      const lateMs = this.world.random.fraction() * 1.5;
      this.world.at(this.world.nowMs + leftMs + lateMs, fire);
    };
    const fire = (): void => {
      if (isCancelled || !this.#isAlive) return;
      this.deliver("timer", () => {
        if (isCancelled) return;
        if (this.monotonicMs() < dueMs) arm();
        else run();
      });
    };
    arm();
    return () => {
      isCancelled = true;
    };
  }

  #thaw(kind: Waiting["kind"] = this.world.random.chance(0.5) ? "timer" : "message"): void {
    this.#frozenCount -= 1;
    if (this.#frozenCount > 0 || !this.#isAlive) return;
    const waiting = this.#inbox;
    this.#inbox = [];
    const first = waiting.filter((each) => each.kind === kind);
    const then = waiting.filter((each) => each.kind !== kind);
    for (const { kind, run } of [...first, ...then]) this.world.at(this.world.nowMs, () => this.deliver(kind, run));
  }
}
