/** Sends the operators' commands to the lane: from a worker between its jobs, and from a queue. */
import { type BullTarget, runScript } from "../bullmq/bullmq.ts";
import type { ComposedScript } from "../bullmq/rules/compose.ts";
import type { OperatorCommand } from "../scripts/operate.lua.ts";
import { rejectWithoutCommand } from "../without-command.ts";

interface OperatorCall {
  readonly script: ComposedScript;
  readonly nowMs: number;
  /** The expected rules of the workers, as "=<JSON>". Empty if the caller is a worker, which follows its own rules. */
  readonly rules: string;
}

/** Runs a function of scripts/operators.lua.ts. Resolves with the reply. */
export async function operate(
  { queue }: BullTarget,
  { script, nowMs, rules }: OperatorCall,
  command: OperatorCommand,
  args: readonly (string | number)[],
): Promise<unknown> {
  const prefix = queue.toKey("");
  const keys = [`${prefix}lane:holders`, `${prefix}lane:none`, `${prefix}lane:rules`];
  return await rejectWithoutCommand(
    async () => await runScript(await queue.client, script, [...keys, prefix, nowMs, command, ...args, rules]),
  );
}
