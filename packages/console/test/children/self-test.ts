/**
 * Runs the self-test, or the whole command, with the BullMQ that is bundled. argv[2]: JSON `Task`. Sends the results.
 */
import { runConsole } from "@x/console";
import { ExclusiveQueue, ExclusiveWorker, type UnsupportedBullMQError } from "@x/workers";
import { Redis } from "ioredis";
import { runSelfTest } from "../../src/self-test/self-test.ts";

interface Task {
  readonly url: string;
  /** The arguments of a command. */
  readonly command?: readonly string[];
  /** The phases to run, or none for all. */
  readonly phases?: readonly string[];
  readonly acceptScripts?: string;
}

const { url, command, phases, acceptScripts } = JSON.parse(process.argv[2] ?? "{}") as Task;
const { signal } = new AbortController();

if (command !== undefined) {
  const written: string[] = [];
  const write = (text: string): void => void written.push(text);
  const terminal = { isInteractive: false, env: { REDIS_URL: url }, signal, write, writeError: write };
  const code = await runConsole(command, { ...terminal, confirm: () => Promise.resolve(false) });
  process.send?.({ code, text: written.join("") });
} else if (phases === undefined) {
  const warnings: string[] = [];
  process.on("warning", (warning) => warnings.push(`${(warning as { code?: string }).code}: ${warning.message}`));
  const connection = new Redis(url, { maxRetriesPerRequest: null });
  const options = { connection, key: "k", ...(acceptScripts === undefined ? {} : { acceptScripts }) };
  try {
    const workers = [1, 2].map(() => new ExclusiveWorker("q", () => Promise.resolve(), options));
    await Promise.all(workers.map((worker) => worker.waitUntilReady()));
    const queue = new ExclusiveQueue("q", { connection, ...(acceptScripts === undefined ? {} : { acceptScripts }) });
    const findings = await queue.check();
    await queue.close();
    await Promise.all(workers.map((worker) => worker.close()));
    process.send?.({ warnings, findings });
  } catch (error) {
    const { message, texts } = error as UnsupportedBullMQError;
    process.send?.({ error: message, fingerprint: texts?.fingerprint });
  }
  connection.disconnect();
} else {
  const client = new Redis(url, { maxRetriesPerRequest: null });
  const connection = { urls: [url], source: undefined, cluster: false, quarantine: true } as const;
  process.send?.({
    results: await runSelfTest({ client, connection, acceptScripts, signal, phases }, () => undefined),
  });
  client.disconnect();
}
process.disconnect();
