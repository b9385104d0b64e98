/** Asks the nodes who the holders of locks are, as far as they have a `name`. */
import type { Engine } from "../rounds/engine.ts";
import { listsEverywhere } from "../rounds/run.ts";
import { clientKeyOf } from "../rules/keys.ts";
import { readNamesScript } from "../scripts/client-name.lua.ts";

/** Returns the names of clients by the digits that their tokens begin with. Never rejects because of a node. */
export async function clientNames(engine: Engine, clients: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const names = new Map<string, string>();
  if (clients.length === 0) return names;
  const keys = clients.map(clientKeyOf);
  const replies = await listsEverywhere(engine, readNamesScript, {
    keys,
    args: [],
    timeoutMs: engine.options.nodeTimeout,
  });
  for (const reply of replies) {
    if (!reply.ok) continue;
    for (const [at, client] of clients.entries()) if (reply.value[at]) names.set(client, reply.value[at]);
  }
  return names;
}
