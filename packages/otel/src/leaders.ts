/** Metrics of elections and of schedules. */
import type { Meter } from "@opentelemetry/api";
import type { LeaderMessages } from "@x/leader";
import { allOf, listen } from "./channels.ts";
import { durations, Switches, shares } from "./meters.ts";

interface OfSchedule {
  readonly election: string;
  readonly schedule: string;
}

/**
 * A task that ends within this time after its term counts as stopped in time. The election's log also contains shorter
 * overruns.
 */
const LONG_OVERRUN_MS = 1_000;

export function leaderMetrics(meter: Meter): () => void {
  const isLeader = new Switches(meter, "x.leader.election", {
    name: "x.leader.is_leader",
    description: "1 in the process that leads, 0 in one that has led",
  });
  /**
   * The latest term of each election. In a process with two candidates, the end of the previous term may be reported
   * after the next election.
   */
  const terms = new Map<string, number>();
  const vacancy = durations(meter, "x.leader.vacancy.duration", "How long nobody led, as observers saw it");
  const remaining = durations(meter, "x.leader.renewal.remaining", "What is left until the deadline after a renewal");
  const share = shares(
    meter,
    "x.leader.renewal.share",
    "What is left until the deadline after a renewal succeeded or failed, as a share of renewDeadline: the early warning",
  );
  const failed = meter.createCounter("x.leader.renewals.failed", { unit: "{renewal}" });
  const ended = meter.createCounter("x.leader.terms.ended", {
    description: "Terms, by why they ended",
    unit: "{term}",
  });
  const overran = meter.createCounter("x.leader.overruns", {
    description: "Tasks that still ran a second after their term was over",
    unit: "{task}",
  });
  const ticks = meter.createCounter("x.scheduler.ticks", { description: "Ticks, by their outcome", unit: "{tick}" });
  const lateness = durations(meter, "x.scheduler.tick.lateness");
  const duration = durations(meter, "x.scheduler.tick.duration");

  const electionOf = ({ election }: { readonly election: string }) => ({ "x.leader.election": election });
  const scheduleOf = (message: OfSchedule) => ({ ...electionOf(message), "x.scheduler.schedule": message.schedule });
  const count = (message: OfSchedule, outcome: string, many: number): void =>
    ticks.add(many, { ...scheduleOf(message), "x.scheduler.outcome": outcome });
  const tickEnded = (message: OfSchedule & { readonly tookMs: number }, outcome: string): void => {
    count(message, outcome, 1);
    duration.record(message.tookMs / 1_000, scheduleOf(message));
  };
  return allOf([
    isLeader.stop,
    listen("x.leader.elected", ({ election, term }) => {
      terms.set(election, term);
      isLeader.set(election, true);
    }),
    listen("x.leader.ended", (message) => {
      const { election, term } = message;
      if ((terms.get(election) ?? term) === term) isLeader.set(election, false);
      ended.add(1, { ...electionOf(message), "x.leader.reason": message.reason });
    }),
    listen("x.leader.leaderChanged", (message) => {
      if (message.leader !== undefined && message.vacancyMs !== undefined)
        vacancy.record(message.vacancyMs / 1_000, electionOf(message));
    }),
    listen("x.leader.renewed", (message) => {
      remaining.record(Math.max(0, message.remainingMs) / 1_000, electionOf(message));
      share.record(message.remainingMs / message.deadlineMs, electionOf(message));
    }),
    listen("x.leader.renewFailed", (message) => {
      failed.add(1, electionOf(message));
      share.record(message.remainingMs / message.deadlineMs, electionOf(message));
    }),
    onOverrun((message) => overran.add(1, electionOf(message))),
    listen("x.leader.tickStarted", (message) => lateness.record(message.lateMs / 1_000, scheduleOf(message))),
    listen("x.leader.tickCompleted", (message) => tickEnded(message, "run")),
    listen("x.leader.tickFailed", (message) => tickEnded(message, "failed")),
    listen("x.leader.tickSkipped", (message) => count(message, "skipped", 1)),
    listen("x.leader.ticksMissed", (message) => count(message, "missed", message.count)),
  ]);
}

/**
 * Calls `count` once for each task that outlasts its term by a second. The overrun is reported when it begins, and once
 * more with its duration when the task has ended.
 */
function onOverrun(count: (message: LeaderMessages["overrun"]) => void): () => void {
  const open = new Map<string, { readonly timer: NodeJS.Timeout; isCounted: boolean }>();
  const stopListening = listen("x.leader.overrun", (message) => {
    const { election, candidate, term, overrunMs } = message;
    const task = JSON.stringify([election, candidate, term]);
    const begun = open.get(task);
    if (begun === undefined && overrunMs === 0) {
      const own = {
        isCounted: false,
        // oxlint-disable-next-line eslint/no-restricted-globals -- no Clock: only what is exported depends on it
        timer: setTimeout(() => {
          own.isCounted = true;
          count(message);
        }, LONG_OVERRUN_MS).unref(),
      };
      open.set(task, own);
      return;
    }
    clearTimeout(begun?.timer);
    open.delete(task);
    if (begun?.isCounted !== true && overrunMs >= LONG_OVERRUN_MS) count(message);
  });
  return () => {
    stopListening();
    for (const { timer } of open.values()) clearTimeout(timer);
  };
}
