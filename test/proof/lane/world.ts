/**
 * One queue with a few jobs as a small world: BullMQ's real worker and jobs, the real class `Lane` and the real
 * scripts, on a real Redis. Before each step, the state is written to Redis. After the step, Redis is read and compared
 * with the promises of the lane (spec.ts).
 *
 * Time passes only in a step of its own, from one timer to the next, and each lock expires only in a step of its own.
 */

import { NODE_KEYS } from "../../../packages/redlock-core/src/rules/keys.ts";
import type { BullTarget } from "../../../packages/workers/src/bullmq/bullmq.ts";
import type { LaneRules } from "../../../packages/workers/src/bullmq/rules/compose.ts";
import type { LaneCode } from "../../simulation/lanes/load.ts";
import { installed } from "../../simulation/lanes/release.ts";
import { type LaneData, NEAR_MS } from "../../simulation/lanes/setting.ts";
import type { VirtualTime } from "../../simulation/lanes/virtual-time.ts";
import type { LaneWorld } from "../../simulation/lanes/world.ts";
import type { Graph, Step } from "../graph.ts";
import { type Action, actionsOf, shownLock } from "./actions.ts";
import { Moves } from "./moves.ts";
import { RedisFacts, readEntries, writeEntries } from "./redis-state.ts";
import * as spec from "./spec.ts";
import { type Bounds, Draft, type State, textOf } from "./state.ts";
import { StepLocks, Wire } from "./wire.ts";

const RULES: LaneRules = { path: ["k"], onFailure: "skip", nearMs: NEAR_MS, farMs: 3_600_000 };
/** The clock of Redis reaches this number only in 2065, so that each fencing token is just the next number. */
const FIRST_NUMBER = 3_000_000_000_000_000;

export class SmallLane implements Graph<State> {
  readonly start: State;
  readonly #world: LaneWorld;
  readonly #bounds: Bounds;
  readonly #time: VirtualTime;
  readonly #moves: Moves;

  /** Empties the Redis of `world`. */
  static async open(
    world: LaneWorld,
    code: LaneCode,
    { bounds, time }: { readonly bounds: Bounds; readonly time: VirtualTime },
  ): Promise<SmallLane> {
    const locks = new StepLocks(bounds.hasLocks);
    const keyOf = (job: { readonly data: unknown }): unknown => (job.data as LaneData).k;
    const setting = { rules: { ...RULES, ...bounds.rules }, keyOf };
    const [member] = await world.reset(code, setting, { time, locks, onParked: () => undefined });
    if (member === undefined) throw new Error("the world has no worker");
    const wire = new Wire(locks);
    const sample = new installed.Job(member.worker as never, "sample", {});
    route(code.bullmq.targetOf(member.worker, sample), wire);
    const library = `local call = redis.call\n${code.locks.embedded}\n`;
    const moves = new Moves({ world, member, bounds, wire, library });
    await world.redis.set(NODE_KEYS.lastNumber, String(FIRST_NUMBER));
    const keys = [...new Set(bounds.jobs.flat())];
    const start = {
      entries: await readEntries(world.redis),
      nowMs: time.nowMs,
      processes: [],
      releases: [],
      spec: { ...spec.startOf(keys, bounds.rules.slots ?? 1), greatest: FIRST_NUMBER },
      left: bounds.events,
    };
    return new SmallLane({ world, bounds, time, moves, start });
  }

  private constructor(parts: {
    readonly world: LaneWorld;
    readonly bounds: Bounds;
    readonly time: VirtualTime;
    readonly moves: Moves;
    readonly start: State;
  }) {
    this.#world = parts.world;
    this.#bounds = parts.bounds;
    this.#time = parts.time;
    this.#moves = parts.moves;
    this.start = parts.start;
  }

  textOf(state: State): string {
    return textOf(state);
  }

  isDone(state: State): boolean {
    return spec.isDone(state.spec);
  }

  async stepsOf(state: State): Promise<readonly Step<State>[]> {
    this.#time.pass(state.nowMs - this.#time.nowMs);
    const steps: Step<State>[] = [];
    for (const action of actionsOf(state, this.#bounds)) steps.push(await this.#step(state, action));
    return steps;
  }

  async #step(state: State, { name, event, isCertain, take }: Action): Promise<Step<State>> {
    const { redis } = this.#world;
    // Sent on the same connection as the commands of the step, and answered before them.
    const written = writeEntries(redis, state.entries);
    const draft = new Draft(state);
    try {
      await take(draft, this.#moves);
    } catch (error) {
      draft.violation = String(error);
    }
    await written;
    const entries = await readEntries(redis);
    draft.violation ??= violationAfter(draft, new RedisFacts(entries));
    const { processes, releases, violation } = draft;
    const left = event === undefined ? state.left : { ...state.left, [event]: (state.left[event] ?? 0) - 1 };
    const next = { entries, nowMs: state.nowMs + draft.passMs, processes, releases, spec: draft.spec, left };
    const action = draft.result === "" ? name : `${name}: ${draft.result}`;
    return { action, state: next, violation, isCertain };
  }
}

/** Lets replies of the worker's commands be lost. */
function route(target: BullTarget, wire: Wire): void {
  const routed = target.execCommand.bind(target);
  target.execCommand = (client, name, args) => routed(wire.around(client), name, args);
}

/** Returns the first promise that a step has broken. */
function violationAfter(draft: Draft, after: RedisFacts): string | undefined {
  // A job may have been handed out with a reply that was lost.
  const seen = new Set(draft.processes.flatMap(({ id, phase }) => (phase === "sends again" ? [] : [id])));
  for (const id of after.active) {
    if (seen.has(id) || draft.before.active.includes(id)) continue;
    draft.result = id;
    const objection = spec.objectionTo(draft.spec, id, draft.nowMs);
    if (objection !== undefined) return objection;
    draft.spec = spec.handOut(draft.spec, id, false);
  }
  const idle = draft.isIdle ? spec.idleJob(draft.spec, after, draft.nowMs) : undefined;
  if (idle !== undefined) return `${idle} could start, and a fetch does not find it`;
  for (const { lock, id, phase } of draft.processes) {
    if (lock === undefined || lock.isLost === true || after.keyLock(lock.name) === lock.token) continue;
    const holder = phase === "plain code" ? phase : id;
    const how = after.keyLock(lock.name) === undefined ? "is free" : "is held by another process";
    return `the lock of ${shownLock(lock.name)}, which ${holder} holds, ${how}`;
  }
  return spec.difference(draft.spec, after);
}
