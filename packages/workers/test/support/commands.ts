import type { BullClient } from "../../src/bullmq/bullmq.ts";

type Run = NonNullable<BullClient["runCommand"]>;

/**
 * Returns the function that sends a client's commands now, before a test installs its own `runCommand`. BullMQ before
 * 5.77 has no such function.
 */
export function commandsOf(client: BullClient): Run {
  const named = client as unknown as Readonly<Record<string, (args: readonly unknown[]) => Promise<unknown>>>;
  return client.runCommand?.bind(client) ?? (async (name, args) => await named[name]?.(args));
}
