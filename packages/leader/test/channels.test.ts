/** Events of elections and schedulers are published on channels of the same names. */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { Emitter } from "@x/redlock-core/kit";
import { expect, it, onTestFinished } from "vitest";
import { LEADER_EVENTS, type LeaderEvents, publishEvents } from "../src/events/events.ts";
import type { LeaderTerm } from "../src/leader-term.ts";
import { publishTicks, SCHEDULER_EVENTS, type SchedulerEvents } from "../src/scheduler/events.ts";
import type { Tick } from "../src/scheduler/tick.ts";

/** Records the messages published as `x.leader.` and each of these names. */
function published(names: readonly string[]): Map<string, unknown> {
  const messages = new Map<string, unknown>();
  for (const name of names) {
    const listener = (message: unknown): void => void messages.set(name, message);
    subscribe(`x.leader.${name}`, listener);
    onTestFinished(() => void unsubscribe(`x.leader.${name}`, listener));
  }
  return messages;
}

it("each event of a scheduler has its channel", () => {
  const term = { election: "jobs", term: 7, fencingToken: 7 } as LeaderTerm;
  const tick: Tick = {
    schedule: "s",
    scheduledAt: new Date(1_000),
    firedAt: new Date(1_030),
    id: "s@1",
    catchup: false,
    attempt: 2,
    data: undefined,
    term,
    fencingToken: 7,
    signal: new AbortController().signal,
  };
  const error = new Error("broken");
  const told: SchedulerEvents = {
    tickStarted: tick,
    tickCompleted: { tick, tookMs: 5 },
    tickFailed: { tick, tookMs: 6, error },
    tickSkipped: { schedule: "s", scheduledAt: new Date(2_000), reason: "paused" },
    ticksMissed: { schedule: "s", count: 3 },
    error,
  };
  const names = Object.keys(SCHEDULER_EVENTS) as (keyof SchedulerEvents)[];
  const messages = published(names);
  const events = new Emitter<SchedulerEvents>(SCHEDULER_EVENTS);
  publishTicks(events, { election: "jobs", candidate: "me" });
  for (const name of names) events.emit(name, told[name]);
  const about = {
    election: "jobs",
    schedule: "s",
    tickId: "s@1",
    scheduledAtMs: 1_000,
    term: 7,
    fencingToken: 7,
    attempt: 2,
    lateMs: 30,
  };
  expect(Object.fromEntries(messages)).toEqual({
    tickStarted: about,
    tickCompleted: { ...about, tookMs: 5 },
    tickFailed: { ...about, tookMs: 6, error },
    tickSkipped: { election: "jobs", schedule: "s", scheduledAtMs: 2_000, reason: "paused" },
    ticksMissed: { election: "jobs", schedule: "s", count: 3 },
    error: { election: "jobs", candidate: "me", error },
  });
});

it("an event of an election that is emitted with all its fields has its channel", () => {
  const error = new Error("broken");
  const events = new Emitter<LeaderEvents>(LEADER_EVENTS);
  const messages = published(["drainTimedOut", "nodeFailed", "quarantined", "taskFailed", "error"]);
  publishEvents(events, { election: "jobs", candidate: "me" }, 1_000);
  events.emit("drainTimedOut", { term: 7 });
  events.emit("nodeFailed", { node: "a", error });
  events.emit("quarantined", { quarantineLeftMs: 5 });
  events.emit("taskFailed", { term: 7, error });
  events.emit("error", error);
  const own = { election: "jobs", candidate: "me" };
  expect(Object.fromEntries(messages)).toEqual({
    drainTimedOut: { ...own, term: 7 },
    nodeFailed: { ...own, node: "a", error },
    quarantined: { ...own, quarantineLeftMs: 5 },
    taskFailed: { ...own, term: 7, error },
    error: { ...own, error },
  });
});
