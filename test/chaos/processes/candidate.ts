/** Campaigns forever, and works while its term is current. */
import { setTimeout as delay } from "node:timers/promises";
import { LeaderElection } from "@x/leader";
import { Redlock } from "@x/redlock-core";
import { ELECTION, processArguments } from "./arguments.ts";
import { Holding } from "./tell.ts";

const { lockNodes, maxTtl } = processArguments();
const redlock = new Redlock(lockNodes, { ttl: maxTtl, maxTtl, nodeTimeout: 150 });
const election = new LeaderElection(redlock, {
  name: ELECTION,
  leaseDuration: maxTtl,
  cooldown: { initial: 20, max: 100 },
});

await election.run(async (term) => {
  const holding = new Holding(`leader:${ELECTION}`, term.fencingToken, () => term.isCurrent());
  const untilMs = performance.now() + 500 + Math.random() * 4_000;
  while (holding.see() && performance.now() < untilMs) {
    if (Math.random() < 0.3) holding.write();
    await delay(10);
  }
  holding.write();
});
