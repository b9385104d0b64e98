/** Observes until there is no leader, with nothing else that keeps the process alive. Argument: path of a node. */
import { LeaderElection } from "@x/leader";
import { connect, LEASE } from "../support/redis.ts";

const [path = ""] = process.argv.slice(2);
const redlock = connect([path]);
const election = new LeaderElection(redlock, { name: "once", ...LEASE });
for await (const leader of election.observe()) {
  if (leader === null) break;
  process.send?.(leader.term);
}
await redlock.close();
process.disconnect();
