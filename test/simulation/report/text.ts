/** The timeline of a run as text: true time, actor, event. */
import type { ScheduleResult } from "../schedule.ts";

export function timelineText(result: ScheduleResult): string {
  const head = [
    `seed ${result.seed}`,
    ...result.about,
    result.violation === undefined
      ? "no invariant broke"
      : `${result.violation.invariant} broke at ${result.violation.atMs.toFixed(1)} ms: ${result.violation.message}`,
    "",
  ];
  const lines = result.recordedEvents.map(
    ({ atMs, who, kind, text }) => `${atMs.toFixed(2).padStart(10)}  ${who.padEnd(10)} ${kind.padEnd(9)} ${text}`,
  );
  return [...head, ...lines, ""].join("\n");
}
