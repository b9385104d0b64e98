import type { BullClient } from "../../src/bullmq/bullmq.ts";

type Run = NonNullable<BullClient["runCommand"]>;

/** What sends a client's commands now, before a test puts a `runCommand` of its own in front. BullMQ before 5.77 has none. */
export function commandsOf(client: BullClient): Run {
  const named = client as unknown as Readonly<Record<string, (args: readonly unknown[]) => Promise<unknown>>>;
  return client.runCommand?.bind(client) ?? (async (name, args) => await named[name]?.(args));
}
