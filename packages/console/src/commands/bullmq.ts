/** Compares the scripts of the installed BullMQ with the tested ones, and tests unknown scripts on the user's Redis. */
import { ExclusiveWorker, type UnknownTexts, UnsupportedBullMQError } from "@x/workers";
import type { Cluster, Redis } from "ioredis";
import { type CommandContext, confirmed, type IsGood } from "../command.ts";
import { ConsoleFailure } from "../failure.ts";
import { changesSince } from "../self-test/changes.ts";
import { installedElsewhere, installedVersion } from "../self-test/installed.ts";
import { type PhaseResult, runSelfTest } from "../self-test/self-test.ts";

/**
 * Reports whether the texts of BullMQ's scripts are known. If some are unknown, or with `test`, runs the self-test. The
 * answer is good if the texts are known or the self-test has passed.
 */
export async function checkBullMQ(
  context: CommandContext,
  { test, diff }: { readonly test: boolean; readonly diff: boolean },
): Promise<IsGood> {
  const { connections, output, terminal } = context;
  const elsewhere = installedElsewhere(process.cwd());
  if (elsewhere !== undefined) {
    throw new ConsoleFailure(
      `this project uses the BullMQ in ${elsewhere}, and this console another one`,
      "Install the console into the project: npm install --save-dev @x/console",
    );
  }
  const client = await connections.queueRedis();
  const unknown = unknownScripts(client);
  const version = installedVersion();
  if (!output.isJson) {
    const words = unknown === undefined ? "all scripts are known." : `unknown: ${unknown.scripts.join(", ")}.`;
    output.line(`BullMQ ${version}: ${words}`, unknown === undefined ? "good" : "warn");
    if (unknown !== undefined && !diff) output.line(`--diff shows what differs from ${unknown.nearest}.`);
  }
  const changes = unknown !== undefined && diff ? await changesSince(unknown) : [];
  for (const { script, lines } of output.isJson ? [] : changes) {
    output.line(`${script}, ${unknown?.nearest ?? ""} (-) and ${version} (+):`);
    for (const line of lines) output.line(`  ${line}`, line.startsWith("+") ? "good" : "bad");
  }
  const results: PhaseResult[] = [];
  if (unknown !== undefined || test) {
    const question = "Test the scripts on this Redis, under keys that are removed afterwards? It takes about a minute.";
    if (!(await confirmed(context, question))) return false;
    const settings = {
      client,
      connection: connections.options,
      acceptScripts: unknown?.fingerprint,
      signal: terminal.signal,
    };
    await runSelfTest(settings, (result) => {
      results.push(result);
      if (!output.isJson) showResult(context, result);
    });
  }
  const isGood = results.every(({ fault }) => fault === null) && (unknown === undefined || results.length > 0);
  const acceptScripts = isGood ? (unknown?.fingerprint ?? null) : null;
  const report = { version, unknown: unknown?.scripts ?? [], nearest: unknown?.nearest ?? null };
  output.answer({ ...report, changes, phases: results, isGood, acceptScripts }, () => {
    if (results.length > 0)
      output.line(isGood ? "All phases have passed." : "Do not use this BullMQ.", isGood ? "good" : "bad");
    if (acceptScripts !== null)
      output.line(`Pass this option to each ExclusiveWorker: acceptScripts: "${acceptScripts}"`);
  });
  return isGood;
}

function showResult({ output }: CommandContext, { phase, seconds, fault }: PhaseResult): void {
  const time = `${seconds.toFixed(1)} s`;
  if (fault === null) output.line(`passed  ${phase} (${time})`, "good");
  else output.line(`FAILED  ${phase} (${time}): ${fault}`, "bad");
}

/** Returns the installed scripts that a worker refuses. Undefined if all are known. */
function unknownScripts(client: Redis | Cluster): UnknownTexts | undefined {
  try {
    const worker = new ExclusiveWorker("x-self-test", null, { connection: client, key: "k", autorun: false });
    worker.on("error", () => undefined);
    void worker.close(true).catch(() => undefined);
    return undefined;
  } catch (error) {
    if (!(error instanceof UnsupportedBullMQError)) throw error;
    if (error.texts === undefined) throw new ConsoleFailure(error.message);
    return error.texts;
  }
}
