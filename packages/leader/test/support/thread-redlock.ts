/** The module that the renewal thread loads: the same nodes, connections of its own. */
import type { Redlock } from "@x/redlock-core";
import { connect, MAX_TTL } from "./redis.ts";

export default function redlock(): Redlock {
  const { LOCK_PATHS = "", LOCK_QUARANTINE } = process.env;
  // maxHold: a limit for locks of the user's, not for the election's.
  return connect(LOCK_PATHS.split(","), { quarantine: LOCK_QUARANTINE === "true", maxHold: MAX_TTL });
}
