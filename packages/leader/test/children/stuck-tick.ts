/** Stops an election whose scheduler has a handler that never ends. Argument: path of a node. */

import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { deferred } from "@x/redlock-core/kit";
import { connect, LEASE } from "../support/redis.ts";

const [path = ""] = process.argv.slice(2);
const election = new LeaderElection(connect([path]), { name: "stuck", ...LEASE });
const scheduler = new LeaderScheduler({ election, drainTimeout: 200 });
const begun = deferred<void>();
scheduler.every("often", 200, () => {
  begun.resolve();
  return new Promise(() => undefined);
});
scheduler.start();
await begun.promise;
await election.stop({ drainTimeout: 0 });
process.disconnect();
