/**
 * A Redis Cluster refuses scripts while it moves their keys to another master, and while it has no master for them. The
 * client gives up after some 1.6 s. A refused script has done nothing, so it may be sent again.
 */
import type { Clock } from "@x/redlock-core";
import { sleep } from "@x/redlock-core/protocol";

const REFUSAL = /^(?:Too many Cluster redirections\. Last error: \w*Error: )?(?:TRYAGAIN|ASK|MOVED|CLUSTERDOWN) /;
const AGAIN_MS = 100;

/** Sends again for `forMs` what a Cluster refuses, and rejects then as the last one did. */
export async function sendRefusedAgain<Value>(clock: Clock, forMs: number, send: () => Promise<Value>): Promise<Value> {
  const untilMs = clock.monotonicMs() + forMs;
  for (;;) {
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof Error && REFUSAL.test(error.message)) || clock.monotonicMs() >= untilMs) throw error;
    }
    await sleep(clock, AGAIN_MS);
  }
}
