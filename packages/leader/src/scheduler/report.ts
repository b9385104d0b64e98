/** What becomes of ticks, told to listeners, and on channels of the same names. */

import type { Emitter } from "@x/redlock-core/protocol";
import { dateOf } from "../kit/date.ts";
import { type AboutTick, publish } from "../kit/diagnostics.ts";
import type { SchedulerEvents, SkipReason } from "./events.ts";
import type { Tick } from "./tick.ts";

export interface NamedTick {
  readonly name: string;
  readonly atMs: number;
}

export function tellSkipped(events: Emitter<SchedulerEvents>, { name, atMs }: NamedTick, reason: SkipReason): void {
  events.emit("tickSkipped", { schedule: name, scheduledAt: dateOf(atMs), reason });
}

export function aboutTick({ schedule, id, scheduledAt, firedAt, term, attempt }: Tick): AboutTick {
  return {
    election: term.election,
    schedule,
    tickId: id,
    scheduledAtMs: scheduledAt.getTime(),
    lateMs: firedAt.getTime() - scheduledAt.getTime(),
    term: term.term,
    fencingToken: term.fencingToken,
    attempt,
  };
}

export function publishTicks(events: Emitter<SchedulerEvents>, election: string): void {
  events.on("tick", (tick) => publish("x.leader.tick", () => aboutTick(tick)));
  events.on("tickDone", ({ tick, tookMs }) => publish("x.leader.tickDone", () => ({ ...aboutTick(tick), tookMs })));
  events.on("tickError", ({ tick, ...facts }) =>
    publish("x.leader.tickError", () => ({ ...aboutTick(tick), ...facts })),
  );
  events.on("tickSkipped", ({ scheduledAt, ...facts }) =>
    publish("x.leader.tickSkipped", () => ({ election, scheduledAtMs: scheduledAt.getTime(), ...facts })),
  );
  events.on("missed", (facts) => publish("x.leader.missed", () => ({ election, ...facts })));
  events.on("error", (error) => publish("x.leader.error", () => ({ election, error })));
}
