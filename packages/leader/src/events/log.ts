/** Writes one line to the election's logger for each change and each failure. */
import type { Clock } from "@x/redlock-core";
import type { Emitter } from "@x/redlock-core/kit";
import { wasAskedFor } from "../errors.ts";
import type { ResolvedOptions } from "../options.ts";
import type { LeaderEvents } from "./events.ts";

export function logEvents(
  events: Emitter<LeaderEvents>,
  clock: Clock,
  { logger, name: election, id }: ResolvedOptions,
): void {
  if (logger === undefined) return;
  const own = { election, id };
  events.on("elected", ({ term }) => logger.info({ ...own, term }, "elected leader"));
  events.on("ended", (facts) => {
    const level = wasAskedFor(facts.reason) ? "info" : "warn";
    logger[level]({ ...own, ...facts }, "leadership ended");
  });
  events.on("renewFailed", ({ term, remainingMs, error }) =>
    logger.warn({ ...own, term, remainingMs, err: error }, "renewal failed"),
  );
  events.on("nodeFailed", ({ node, error }) => logger.warn({ ...own, node, err: error }, "lock node is down"));
  events.on("quarantined", (facts) => logger.info({ ...own, ...facts }, mayVoteAgain(facts.quarantineLeftMs)));
  events.on("drainTimedOut", (facts) => logger.warn({ ...own, ...facts }, "task did not end in time"));
  events.on("taskFailed", ({ term, error }) => logger.error({ ...own, term, err: error }, "task failed"));
  events.on("error", (error) => logger.warn({ ...own, err: error }, "failed, will be tried again"));
  let begun: { readonly term: number; readonly cancel: () => void } | undefined;
  events.on("overrun", ({ term, overrunMs }) => {
    begun?.cancel();
    if (begun?.term === term) {
      begun = undefined;
      if (overrunMs >= 1) logger.error({ ...own, term, overrunMs }, "task ran on without its lease");
      return;
    }
    const cancel = clock.schedule(LONG_MS, () =>
      logger.error({ ...own, term, overrunMs: LONG_MS }, "task still runs without its lease"),
    );
    begun = { term, cancel };
  });
}

/** A longer overrun is also logged while it lasts. A shorter overrun is logged only after its end. */
const LONG_MS = 1_000;

export function mayVoteAgain(afterMs: number): string {
  return `nodes may vote again in ${afterMs} ms: a leader is possible then`;
}
