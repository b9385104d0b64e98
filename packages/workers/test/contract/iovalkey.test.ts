/** The contract with the installed BullMQ over iovalkey, a fork of ioredis 5. */
import { createRequire } from "node:module";
import type { Redis } from "ioredis";
import { connectBy, type LabConnection } from "../support/connections.ts";
import { testOtherClient } from "./other-client.ts";

const iovalkey = createRequire(import.meta.url)("iovalkey") as { readonly Redis: typeof Redis };

connectBy((path) => {
  const client = new iovalkey.Redis({ path, maxRetriesPerRequest: null, retryStrategy: () => 50 });
  client.on("error", () => undefined);
  return { connection: client as unknown as LabConnection, close: async () => client.disconnect() };
});

testOtherClient();
