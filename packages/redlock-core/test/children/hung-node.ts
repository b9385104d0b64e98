/** Locks while one of its nodes hangs, closes nothing, and has to end all the same. */
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { Redlock } from "@x/redlock-core";

const redlock = new Redlock(
  process.argv.slice(2).map((path) => ({ path })),
  { quarantine: false, nodeTimeout: 60_000 },
);
while ((await redlock.inspect("r")).nodes.some((node) => node.error !== undefined)) await delay(20);
process.send?.("ready");
await once(process, "message");
const lock = await redlock.acquire("r");
await lock.release();
process.stdout.write("done\n");
process.disconnect();
