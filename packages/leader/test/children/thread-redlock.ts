/** The module that the renewal thread loads: the same nodes, with separate connections. */
import { BroadcastChannel } from "node:worker_threads";
import type { Redlock } from "@x/redlock-core";
import { connect, MAX_TTL } from "../support/redis.ts";

const hang = new BroadcastChannel("hang");
hang.addEventListener("message", () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0));
hang.unref();

export default function redlock(): Redlock {
  const { LOCK_PATHS = "", LOCK_QUARANTINE } = process.env;
  // `maxHold` limits the user's locks, not the election's lock.
  return connect(LOCK_PATHS.split(","), { quarantine: LOCK_QUARANTINE === "true", maxHold: MAX_TTL });
}
