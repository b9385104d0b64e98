/** What becomes of ticks, told to listeners and on the diagnostics channel. */
import { dateOf } from "../kit/date.ts";
import { type LeaderMessages, publish } from "../kit/diagnostics.ts";
import type { Emitter } from "../kit/emitter.ts";
import type { LeaderTerm } from "../term/term.ts";
import type { SchedulerEvents, SkipReason } from "./events.ts";

export interface Audience {
  readonly term: LeaderTerm;
  readonly events: Emitter<SchedulerEvents>;
}

export interface NamedTick {
  readonly name: string;
  readonly atMs: number;
}

export function tellSkipped({ term, events }: Audience, { name, atMs }: NamedTick, reason: SkipReason): void {
  publishTick(term, { name, atMs }, { outcome: "skipped", tookMs: undefined, lateMs: undefined, count: 1 });
  events.emit("tickSkipped", { schedule: name, scheduledAt: dateOf(atMs), reason });
}

/** `atMs`: the last tick that was dealt with before those. */
export function tellMissed({ term, events }: Audience, { name, atMs }: NamedTick, count: number): void {
  publishTick(term, { name, atMs }, { outcome: "missed", tookMs: undefined, lateMs: undefined, count });
  events.emit("missed", { schedule: name, count });
}

export function publishTick(
  { election, term }: LeaderTerm,
  { name, atMs }: NamedTick,
  facts: Pick<LeaderMessages["x.leader.tick"], "outcome" | "tookMs" | "lateMs" | "count">,
): void {
  publish("x.leader.tick", () => ({ election, schedule: name, scheduledAtMs: atMs, term, ...facts }));
}
