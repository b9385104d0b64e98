/** The contract with the installed BullMQ over node-redis, which BullMQ wraps by itself. */
import { createClient } from "redis";
import { connectBy, type LabConnection } from "../support/connections.ts";
import { testOtherClient } from "./other-client.ts";

connectBy((path) => {
  const client = createClient({ socket: { path, reconnectStrategy: 50 } });
  client.on("error", () => undefined);
  return {
    connection: client as unknown as LabConnection,
    close: async () => {
      if (client.isOpen) client.destroy();
    },
  };
});

testOtherClient();
