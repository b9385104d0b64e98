/**
 * Claims of ticks. A step of the register contains each claim before the tick begins, and the end of each
 * `at-least-once` tick after the tick has ended.
 */
import type { Clock } from "@x/redlock-core";
import type { Emitter } from "@x/redlock-core/kit";
import { Slice } from "../kit/slice.ts";
import { type SchedulerEvents, tellSkipped } from "./events.ts";
import type { Pauses } from "./pauses.ts";
import type { Register } from "./register.ts";
import { notedTick, noteOf, stateLine, TRIGGER, type Trigger, triggerLine } from "./rules/lines.ts";
import { decideOverlap, type OverlapDecision } from "./rules/overlap.ts";
import type { Plan } from "./rules/plan.ts";
import { type ClaimedTick, isCatchingUp, type Runner } from "./runner.ts";
import { MOST_CLAIMS, type Step } from "./step.ts";
import { type NamedTick, tickId } from "./tick.ts";
import type { Timetable, Track } from "./timetable.ts";

interface ClaimsParts {
  readonly clock: Clock;
  readonly events: Emitter<SchedulerEvents>;
  readonly register: Register;
  readonly timetable: Timetable;
  readonly runner: Runner;
  readonly pauses: Pauses;
  /** Called when the next step has an end to write. */
  readonly onEnd: () => void;
}

/** Length of the slice whose claims make one step. */
const CLAIM_SLICE_MS = 10;

export class Claims {
  readonly #parts: ClaimsParts;
  /** Notes of ticks that earlier leaders did not finish, by schedule. */
  readonly #unfinished = new Map<string, string[]>();
  /** Notes of ended ticks. */
  #ended: string[] = [];
  /** Triggered ticks and `at-least-once` ticks that are left to the next leader. */
  #left: ClaimedTick[] = [];

  constructor(parts: ClaimsParts) {
    this.#parts = parts;
  }

  /** Whether the next step has ends to write. */
  get hasEnds(): boolean {
    return this.#ended.length + this.#left.length > 0;
  }

  /** Records the note of a tick that an earlier leader did not finish. */
  inherit(note: string): void {
    const { name } = notedTick(note);
    this.#unfinished.set(name, [...(this.#unfinished.get(name) ?? []), note]);
  }

  /** Runs the unfinished ticks of a schedule again, as far as its options allow. */
  addUnfinished(step: Step, track: Track): void {
    const { name } = track.entry;
    const ticks = (this.#unfinished.get(name) ?? []).map(notedTick);
    for (const tick of ticks.toSorted((a, b) => a.atMs - b.atMs)) this.#runAgain(step, track, tick);
    this.#unfinished.delete(name);
  }

  /** Drops the unfinished ticks of a schedule that was removed. */
  dropUnfinished({ changes }: Step, name: string): void {
    for (const note of this.#unfinished.get(name) ?? []) changes.set(note, "");
    this.#unfinished.delete(name);
  }

  /** Records that no leader may run a tick again. The next step contains all ticks that ended until then. */
  end(tick: NamedTick): void {
    this.#ended.push(noteOf(tick));
    this.#parts.onEnd();
  }

  /** Leaves a tick that has not begun to the next leader. */
  leave(claimed: ClaimedTick): void {
    this.#left.push(claimed);
  }

  /** Adds the ended ticks, and the ticks that are left to the next leader. */
  addEnds({ changes }: Step): void {
    for (const note of this.#ended.splice(0)) changes.set(note, "");
    for (const claimed of this.#left.splice(0)) {
      if (claimed.trigger === undefined) changes.set(noteOf(claimed), String(claimed.attempt - 1));
      else changes.set(TRIGGER + claimed.trigger.id, triggerLine(claimed.trigger, false));
    }
  }

  /** Claims due ticks, up to the limits of a slice and a step. */
  addDue(step: Step): void {
    const { clock, timetable } = this.#parts;
    const nowMs = clock.wallMs();
    const slice = new Slice(clock, CLAIM_SLICE_MS);
    for (const track of timetable.dueAt(nowMs)) {
      const plan = timetable.planAt(nowMs, track, slice);
      if (plan !== undefined) this.#claim(step, track, plan);
      if (slice.isOver || step.changes.size >= MOST_CLAIMS) break;
    }
  }

  /** Claims the tick of a trigger, which runs even while its schedule is paused. */
  addTriggered({ confirmed, taken }: Step, track: Track, trigger: Trigger): void {
    const { name, atMs, id } = trigger;
    taken.set(name, (taken.get(name) ?? 0) + 1);
    const claimed = claimedTick(track, { atMs, isCatchup: false, isBacklog: false, attempt: 1 }, id);
    confirmed.push(() => this.#launch({ ...claimed, delivery: "at-most-once", trigger }, "queue", false));
  }

  #claim({ changes, confirmed, taken }: Step, track: Track, plan: Plan): void {
    const { events, runner, timetable, pauses } = this.#parts;
    const { options, name } = track.entry;
    const runs = runner.runsOf(name);
    const ahead = runs.queue.length + (taken.get(name) ?? 0);
    const starting = runs.running.size === 0 ? Math.min(1, ahead) : 0;
    const occupancy = { running: runs.running.size + starting, queued: ahead - starting };
    const isLate = plan.fire.length > 1 || plan.fire.some((tick) => tick.isCatchup);
    const isBacklog = options.catchup === "all" && (isLate || isCatchingUp(runs));
    if (plan.missed > 0) {
      track.missed += plan.missed;
      confirmed.push(() => events.emit("ticksMissed", { schedule: name, count: plan.missed }));
    }
    for (const tick of plan.fire) {
      const decision = track.isPaused
        ? "skip"
        : decideOverlap(options.overlap, occupancy, { isPart: isBacklog, mostQueued: options.maxCatchup });
      if (decision === "skip") {
        const reason = track.isPaused ? "paused" : "overlap";
        confirmed.push(() => tellSkipped(events, { name, atMs: tick.atMs }, reason));
        continue;
      }
      occupancy[decision === "run" ? "running" : "queued"] += 1;
      const claimed = claimedTick(track, { ...tick, isBacklog, attempt: 1 });
      track.lastMs = tick.atMs;
      if (options.delivery === "at-least-once") changes.set(noteOf(claimed), String(claimed.attempt));
      confirmed.push(() => this.#launch(claimed, decision, track.isPaused || tick.atMs <= pauses.resumedMs(track)));
    }
    if (plan.accountedMs > track.accountedMs) changes.set(name, stateLine({ ...track, accountedMs: plan.accountedMs }));
    timetable.advance(track, plan.accountedMs);
  }

  #runAgain({ changes, confirmed }: Step, track: Track, tick: NamedTick): void {
    const { delivery, maxAttempts } = track.entry.options;
    const attempt = Number(this.#parts.register.fields.get(noteOf(tick))) + 1;
    if (delivery === "at-least-once" && attempt <= maxAttempts) {
      changes.set(noteOf(tick), String(attempt));
      const claimed = claimedTick(track, { atMs: tick.atMs, isCatchup: true, isBacklog: true, attempt });
      confirmed.push(() => this.#launch(claimed, "queue", track.isPaused));
    } else {
      changes.set(noteOf(tick), "");
      confirmed.push(() => tellSkipped(this.#parts.events, tick, "attempts"));
    }
  }

  #launch(claimed: ClaimedTick, decision: OverlapDecision, isPaused: boolean): void {
    if (!isPaused) return this.#parts.runner.launch(claimed, decision);
    tellSkipped(this.#parts.events, claimed, "paused");
    if (claimed.delivery === "at-least-once") this.end(claimed);
  }
}

function claimedTick(
  track: Track,
  tick: Pick<ClaimedTick, "atMs" | "isCatchup" | "isBacklog" | "attempt">,
  suffix = "",
): ClaimedTick {
  return {
    track,
    name: track.entry.name,
    ...tick,
    id: tickId(track.entry.name, tick.atMs, suffix),
    delivery: track.entry.options.delivery,
    trigger: undefined,
    lastMs: track.lastMs,
  };
}
