import { type CommandContext, type IsGood, looking } from "../command.ts";
import type { Tone } from "../output.ts";
import { titleWithTime } from "../page/rules/problems.ts";
import { queuesOf, type ShownQueues } from "../page/serve.ts";
import type { Severity } from "../page/state.ts";
import { Watch } from "../page/watch.ts";

/** The tones of problems, also of the findings of `check`. */
export const PROBLEM_TONES: Readonly<Record<Severity, Tone>> = { critical: "bad", warning: "warn", notice: "dim" };

/** The time between two looks of one call, in ms. */
const REFRESH_MS = 1_000;

/** Shows what needs attention, as the page does. The answer is good if nothing is critical and nothing is a warning. */
export async function showProblems(
  context: CommandContext,
  options: ShownQueues & { readonly election: readonly string[] },
): Promise<IsGood> {
  const { connections, output } = context;
  const redlock = await connections.redlock();
  const queues = await queuesOf(context, options);
  const watch = new Watch({
    redlock,
    queues,
    elections: options.election,
    schedulers: undefined,
    outboxes: {},
    refresh: REFRESH_MS,
    hasActions: false,
  });
  connections.defer(() => watch.close());
  return await looking(context, async () => {
    const { problems, now } = await watch.readAll();
    output.answer(problems, () => {
      if (problems.length === 0) output.line("All well.", "good");
      else {
        output.table(
          ["severity", "what", "next step"],
          problems.map((problem) => [
            { text: problem.severity, tone: PROBLEM_TONES[problem.severity] },
            titleWithTime(problem, now),
            [problem.step, problem.command ?? ""].filter((text) => text !== "").join("\n"),
          ]),
          { 1: 60, 2: 60 },
        );
      }
    });
    return problems.every(({ severity }) => severity === "notice");
  });
}
