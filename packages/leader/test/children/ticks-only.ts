/** Leads a scheduler in a term of its own, with nothing else that keeps the process alive. Argument: path of a node. */
import { writeSync } from "node:fs";
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { connect, LEASE } from "../support/redis.ts";

const [path = ""] = process.argv.slice(2);
const redlock = connect([path]);
const election = new LeaderElection(redlock, { name: "ticking", ...LEASE });
const scheduler = new LeaderScheduler({ election });
const term = await election.campaign();
let ticks = 0;
scheduler.every("often", 200, () => {
  ticks += 1;
  if (ticks === 2) void term.resign();
});
await scheduler.lead(term);
await election.stop();
await redlock.close();
writeSync(1, `ticked ${ticks}\n`);
process.disconnect();
