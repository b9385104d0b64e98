import type { Finding } from "@x/redlock-core";
import { type Command, type IsGood, looking } from "../command.ts";
import type { Tone } from "../output.ts";

const TONES: Readonly<Record<Finding["severity"], Tone>> = { error: "bad", warning: "warn", info: "dim" };

/** Looks for problems of the lock nodes. The answer is good if no finding is worse than `info`. */
export async function checkNodes(command: Command): Promise<IsGood> {
  const { output } = command;
  const redlock = await command.connections.redlock();
  return await looking(command, async () => {
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
    return findings.every(({ severity }) => severity === "info");
  });
}
