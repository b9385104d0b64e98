import { setTimeout as delay } from "node:timers/promises";
import { systemClock } from "@x/redlock-core";
import { type ExclusionMode, ExclusionRefusedError, type ExclusionReport, type QueueOperators } from "@x/workers";
import { type CommandContext, confirmed, type IsGood, looking } from "../command.ts";
import { ConsoleFailure } from "../failure.ts";
import { operatorOf, type QueueOptions } from "../operator.ts";
import { durationText } from "../output.ts";
import { countedText, countText, earlyText } from "../page/rules/words.ts";

/** Time between two looks at the keys whose jobs still overlap, in ms. */
const LOOK_MS = 500;

/**
 * Shows whether a queue is exclusive, and what exclusion would have prevented. The answer is good if the queue is
 * exclusive.
 */
export async function showExclusion(
  context: CommandContext,
  { limit, ...options }: QueueOptions & { readonly limit: number },
): Promise<IsGood> {
  const { output } = context;
  const operator = await operatorOf(context, options);
  return await looking(context, async () => {
    const report = await operator.exclusion({ limit });
    output.answer(report, () => show(context, options.queue, report));
    return report.mode === "on";
  });
}

function show({ output }: CommandContext, queue: string, report: ExclusionReport): void {
  const { mode, watchedSinceMs, watchedUntilMs, overlappingKeys, keys, obstacles } = report;
  if (mode === "on") output.line(`${queue}: exclusive`, "good");
  else output.line(`${queue}: watched, so jobs of a key may run at the same time`, "warn");
  if (overlappingKeys > 0) output.line(`${countedText(overlappingKeys, "key")} with jobs that overlap now`, "warn");
  if (watchedSinceMs !== undefined) {
    const time = durationText((watchedUntilMs ?? systemClock.wallMs()) - watchedSinceMs);
    output.line(`Watched for ${time}: ${earlyText(report)}.`);
  }
  if (keys.length > 0) {
    output.table(
      ["key", "early starts"],
      keys.map(({ key, starts }) => [key, countText(starts)]),
    );
  }
  if (mode === "on") return;
  output.line(obstacles.length === 0 ? "Nothing prevents the change to exclusive." : "Not ready to be exclusive:");
  for (const obstacle of obstacles) output.line(`- ${obstacle}`, "warn");
}

/**
 * Changes whether the jobs of a key exclude each other. For `on`, waits until no jobs overlap any more. The answer is
 * good if the queue is in this mode and no jobs overlap against it.
 */
export async function setExclusion(
  context: CommandContext,
  { mode, force, ...options }: QueueOptions & { readonly mode: ExclusionMode; readonly force: boolean },
): Promise<IsGood> {
  const { output } = context;
  const { queue } = options;
  const operator = await operatorOf(context, options);
  const question =
    mode === "on"
      ? `From now on, start no job of ${queue} while its key is busy?`
      : `From now on, let jobs of one key of ${queue} run at the same time?`;
  if (!(await confirmed(context, question))) return false;
  const beganMs = systemClock.monotonicMs();
  const isChanged = await change(operator, mode, force);
  const isDone = mode === "watch" || (await untilSeparate(context, operator, beganMs));
  const tookMs = Math.round(systemClock.monotonicMs() - beganMs);
  output.answer({ queue, mode, changed: isChanged, overlapping: !isDone, tookMs }, () => {
    const what = mode === "on" ? "exclusive" : "watched";
    const took = durationText(tookMs);
    if (!isDone) output.line(`${queue} is ${what}. Jobs that overlapped before still run.`, "warn");
    else if (isChanged)
      output.line(`${queue} is ${what}. The change took ${took}, and no job has waited for it.`, "good");
    else output.line(`${queue} was ${what} before`, "good");
  });
  return isDone;
}

async function change(operator: QueueOperators, mode: ExclusionMode, force: boolean): Promise<boolean> {
  try {
    return await operator.setExclusion(mode, { force });
  } catch (error) {
    if (!(error instanceof ExclusionRefusedError)) throw error;
    throw new ConsoleFailure(`${error.message}.`, "Repeat the command when this is done, or pass --force.");
  }
}

/** Waits until no key has more jobs than it allows. Resolves with false if the terminal's signal aborts before. */
async function untilSeparate(
  { output, terminal }: CommandContext,
  operator: QueueOperators,
  beganMs: number,
): Promise<boolean> {
  let shown = 0;
  for (;;) {
    const { overlappingKeys } = await operator.exclusion({ limit: 0 });
    if (overlappingKeys === 0) return true;
    if (overlappingKeys !== shown && !output.isJson) {
      const time = durationText(systemClock.monotonicMs() - beganMs);
      output.line(
        `${time}: ${countedText(overlappingKeys, "key")} with jobs that started before and still overlap`,
        "dim",
      );
    }
    shown = overlappingKeys;
    try {
      await delay(LOOK_MS, undefined, { signal: terminal.signal });
    } catch {
      return false;
    }
  }
}
