/** Leads once, with nothing else that keeps the process alive, and ends by itself. Arguments: path of a node, "main" or "worker". */
import { writeSync } from "node:fs";
import { LeaderElection } from "@x/leader";
import { programUrl } from "@x/test-support";
import { connect, LEASE } from "../support/redis.ts";

const [path = "", renewal] = process.argv.slice(2);
const redlock = connect([path]);
const worker = { redlock: programUrl(new URL("thread-redlock.ts", import.meta.url)), maxBlock: 5_000 };
const election = new LeaderElection(redlock, {
  name: "once",
  ...LEASE,
  ...(renewal === "worker" ? { renewal: { worker } } : {}),
});
const over = new AbortController();
let term = 0;
await election.run(
  async (own) => {
    ({ term } = own);
    await new Promise((resolve) => own.signal.addEventListener("abort", resolve, { once: true }));
    over.abort();
  },
  { signal: over.signal },
);
const next = await election.tryCampaign();
await next?.resign();
await election.stop();
await redlock.close();
writeSync(1, `led ${next !== undefined && next.term > term}\n`);
process.disconnect();
