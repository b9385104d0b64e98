import type { Finding } from "@x/redlock-core";
import { type CommandContext, type IsGood, looking } from "../command.ts";
import type { Tone } from "../output.ts";
import { type Checked, problemsOf } from "../page/rules/problems.ts";

const TONES: Readonly<Record<Finding["severity"], Tone>> = { error: "bad", warning: "warn", info: "dim" };

/** A state of which only the findings are known. */
const NOTHING: Checked = {
  now: 0,
  nodes: { value: undefined, error: undefined, at: undefined },
  findings: [],
  processes: [],
  elections: [],
  schedules: [],
  queues: [],
  outboxes: [],
};

/** Looks for problems of the lock nodes. The answer is good if no finding is worse than `info`. */
export async function checkNodes(context: CommandContext): Promise<IsGood> {
  const { output } = context;
  const redlock = await context.connections.redlock();
  return await looking(context, async () => {
    const findings = await redlock.check();
    output.answer(findings, () => {
      if (findings.length === 0) output.line("Nothing is wrong.", "good");
      else {
        output.table(
          ["severity", "code", "about", "message"],
          findings.map(({ severity, code, subjects, message }) => [
            { text: severity, tone: TONES[severity] },
            code,
            subjects.join("\n"),
            message,
          ]),
          { 3: 70 },
        );
      }
    });
    return problemsOf({ ...NOTHING, findings }).length === 0;
  });
}
