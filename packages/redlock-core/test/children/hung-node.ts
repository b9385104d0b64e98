/** Locks while one of its nodes hangs, closes nothing, and has to end all the same. */
import { once } from "node:events";
import { Redlock } from "@x/redlock-core";
import { until } from "@x/test-support";

const redlock = new Redlock(
  process.argv.slice(2).map((path) => ({ path })),
  { quarantine: false, nodeTimeout: 60_000 },
);
await until(async () => (await redlock.inspect("r")).nodes.every((node) => node.error === undefined));
process.send?.("ready");
await once(process, "message");
const lock = await redlock.acquire("r");
await lock.release();
process.stdout.write("done\n");
process.disconnect();
