import { UnknownScheduleError } from "@x/leader";
import { LeaderScheduler, type TickOutcome, type TickRecord } from "@x/leader/scheduler";
import { systemClock } from "@x/redlock-core";
import { type CommandContext, confirmed, type IsGood, looking } from "../command.ts";
import { ConsoleFailure } from "../failure.ts";
import { type Cell, durationText, type Tone } from "../output.ts";
import { readSchedules } from "../reading.ts";
import { electionOf } from "./leader.ts";

export interface SchedulerCommandOptions {
  readonly election: string;
  /** The `keyPrefix` of the services' scheduler. */
  readonly scheduler?: string;
}

export interface ScheduleCommandOptions extends SchedulerCommandOptions {
  readonly schedule: string;
}

const TONES: Readonly<Record<TickOutcome, Tone>> = {
  running: "good",
  run: "good",
  failed: "bad",
  unfinished: "bad",
  skipped: "warn",
  missed: "bad",
};

/**
 * Opens a scheduler that only reads and sends orders. The scheduler has no schedules, and its election has no
 * candidate.
 */
async function schedulerOf(
  context: CommandContext,
  { election, scheduler }: SchedulerCommandOptions,
): Promise<LeaderScheduler> {
  return new LeaderScheduler({
    election: await electionOf(context, election),
    // The most ticks that any leader may keep.
    history: 100,
    ...(scheduler === undefined ? {} : { keyPrefix: scheduler }),
  });
}

/**
 * Calls `act` with the name of the schedule. If the schedule is unknown, throws a `ConsoleFailure` that explains the
 * reason to the user.
 */
async function ofSchedule<Answer>(
  { election, schedule }: ScheduleCommandOptions,
  act: (name: string) => Promise<Answer>,
): Promise<Answer> {
  try {
    return await act(schedule);
  } catch (error) {
    if (!(error instanceof UnknownScheduleError)) throw error;
    const name = JSON.stringify(schedule);
    throw new ConsoleFailure(
      `the lock nodes know no schedule ${name} of the election ${JSON.stringify(election)}`,
      `Try: x-console schedules list ${election}. A scheduler with a keyPrefix needs --scheduler.`,
    );
  }
}

/**
 * Lists the schedules, optionally with the last ticks of each schedule. The answer is good if the election has a leader
 * and a schedule.
 */
export async function listSchedules(
  context: CommandContext,
  options: SchedulerCommandOptions & { readonly history?: number },
): Promise<IsGood> {
  const { output } = context;
  const scheduler = await schedulerOf(context, options);
  return await looking(context, async () => {
    const reading = await readSchedules(scheduler, options.history ?? 0);
    const { leader, schedules } = reading;
    output.answer(reading, () => {
      if (schedules.length === 0) return output.line(`${options.election}: no schedule is known`, "warn");
      output.line(
        leader === null ? `${options.election}: nobody leads` : `${options.election}: ${leader.id} runs the ticks`,
        leader === null ? "bad" : "good",
      );
      const now = systemClock.wallMs();
      output.table(
        ["schedule", "kind", "next", "last", "outcome", "late", "missed", "state"],
        schedules.map(({ name, kind, next, last, lastTick, history, missed, paused, running }) => [
          name,
          kind ?? "",
          next === null
            ? ""
            : next.getTime() < now
              ? { text: `due ${agoText(next.getTime(), now)}`, tone: "bad" }
              : inText(next, now),
          lastText(last, lastTick, now),
          lastTick === null ? "" : { text: outcomesText(lastTick, history), tone: TONES[lastTick.outcome] },
          lastTick?.lateMs === undefined ? "" : durationText(lastTick.lateMs),
          missed === 0 ? "" : { text: String(missed), tone: "warn" },
          paused ? { text: "paused", tone: "warn" } : running > 0 ? `${running} run` : "",
        ]),
      );
    });
    return leader !== null && schedules.length > 0;
  });
}

/** The outcomes, the newest first. */
function outcomesText(lastTick: TickRecord, history: readonly TickRecord[]): string {
  const ticks = history.length > 0 ? history : [lastTick];
  return ticks.map(({ outcome }) => outcome).join(", ");
}

/** `last` is the last tick of the calendar; a triggered tick appears only in `lastTick`. */
function lastText(last: Date | null, lastTick: TickRecord | null, now: number): string {
  const lastMs = Math.max(last?.getTime() ?? 0, lastTick?.scheduledAt.getTime() ?? 0);
  return lastMs === 0 ? "never" : agoText(lastMs, now);
}

function agoText(ms: number, now: number): string {
  return `${durationText(Math.max(0, now - ms))} ago`;
}

function inText(date: Date, now: number): string {
  return `in ${durationText(date.getTime() - now)}`;
}

/** Shows the outcomes of the last ticks. The answer is good if the newest tick did not fail. */
export async function scheduleHistory(
  context: CommandContext,
  options: ScheduleCommandOptions & { readonly limit: number },
): Promise<IsGood> {
  const { output } = context;
  const scheduler = await schedulerOf(context, options);
  return await looking(context, async () => {
    const all = await ofSchedule(options, (name) => scheduler.history(name));
    const ticks = all.slice(0, options.limit);
    output.answer(ticks, () => {
      if (ticks.length === 0) return output.line(`${options.schedule}: no tick is recorded`, "warn");
      output.table(["due", "outcome", "late", "took", "attempt", "term", "why"], ticks.map(rowOf), { 6: 60 });
    });
    const [newest] = ticks;
    return newest?.outcome !== "failed" && newest?.outcome !== "unfinished";
  });
}

function rowOf({ scheduledAt, outcome, lateMs, tookMs, attempt, term, error, reason, count }: TickRecord): Cell[] {
  return [
    scheduledAt.toISOString(),
    { text: outcome, tone: TONES[outcome] },
    lateMs === undefined ? "" : durationText(lateMs),
    tookMs === undefined ? "" : durationText(tookMs),
    attempt === undefined ? "" : String(attempt),
    String(term),
    error ?? reason ?? (count === undefined ? "" : `${count} ticks`),
  ];
}

/** Shows the next ticks. The answer is good if there is one. */
export async function previewSchedule(
  context: CommandContext,
  options: ScheduleCommandOptions & { readonly limit: number },
): Promise<IsGood> {
  const { output } = context;
  const scheduler = await schedulerOf(context, options);
  return await looking(context, async () => {
    const ticks = await ofSchedule(options, (name) => scheduler.preview(name, options.limit));
    output.answer(ticks, () => {
      if (ticks.length === 0) return output.line(`${options.schedule}: no tick follows`, "warn");
      const now = systemClock.wallMs();
      output.table(
        ["due", "in"],
        ticks.map((tick) => [tick.toISOString(), durationText(Math.max(0, tick.getTime() - now))]),
      );
    });
    return ticks.length > 0;
  });
}

/** Removes a schedule as data. The answer is good if it existed. */
export async function removeSchedule(context: CommandContext, options: ScheduleCommandOptions): Promise<IsGood> {
  return await ordered(context, options, {
    question: `Remove ${options.schedule}? The next reconcile() of your services may add it again.`,
    done: "is removed",
    order: async (scheduler, name) => {
      if (await scheduler.remove(name)) return;
      throw new ConsoleFailure(`${name} is not stored as data`, "Remove it from the code of your services.");
    },
  });
}

/** Pauses a schedule for all leaders. The answer is good if the schedule is paused now. */
export async function pauseSchedule(context: CommandContext, options: ScheduleCommandOptions): Promise<IsGood> {
  return await ordered(context, options, {
    question: `Run no more ticks of ${options.schedule}? Ticks during the pause are not caught up.`,
    done: "is paused",
    order: (scheduler, name) => scheduler.pause(name),
  });
}

/** Ends the pause of a schedule. */
export async function resumeSchedule(context: CommandContext, options: ScheduleCommandOptions): Promise<IsGood> {
  return await ordered(context, options, {
    question: `Go on with ${options.schedule}?`,
    done: "goes on",
    order: (scheduler, name) => scheduler.resume(name),
  });
}

/** Asks the leader to run a schedule once, now. */
export async function triggerSchedule(context: CommandContext, options: ScheduleCommandOptions): Promise<IsGood> {
  return await ordered(context, options, {
    question: `Run ${options.schedule} once, now?`,
    done: "is to run now",
    order: (scheduler, name) => scheduler.trigger(name),
  });
}

interface Order {
  readonly question: string;
  readonly done: string;
  readonly order: (scheduler: LeaderScheduler, name: string) => Promise<void>;
}

async function ordered(context: CommandContext, options: ScheduleCommandOptions, order: Order): Promise<IsGood> {
  const scheduler = await schedulerOf(context, options);
  // Before the question: a mistyped name needs no answer.
  await ofSchedule(options, (name) => scheduler.history(name));
  if (!(await confirmed(context, order.question))) return false;
  await ofSchedule(options, (name) => order.order(scheduler, name));
  const { schedule } = options;
  context.output.answer({ schedule, done: true }, () => context.output.line(`${schedule} ${order.done}`, "good"));
  return true;
}
