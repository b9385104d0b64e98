/** Asks for a list of many schedules with nothing else that keeps the process alive. Argument: path of a node. */
import { writeSync } from "node:fs";
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { connect, LEASE } from "../support/redis.ts";

const [path = ""] = process.argv.slice(2);
const scheduler = new LeaderScheduler({ election: new LeaderElection(connect([path]), { name: "listed", ...LEASE }) });
for (let i = 0; i < 500; i += 1) scheduler.cron(`s${i}`, `${i % 60} ${i % 24} * * *`, () => undefined);
const schedules = await scheduler.list();
writeSync(1, `listed ${schedules.length}\n`);
process.disconnect();
