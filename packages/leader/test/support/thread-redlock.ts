/** The module that the renewal thread loads: the same nodes, connections of its own. */
import type { Redlock } from "@x/redlock-core";
import { connect } from "./redis.ts";

export default function redlock(): Redlock {
  const { LOCK_PATHS = "", LOCK_QUARANTINE } = process.env;
  return connect(LOCK_PATHS.split(","), { quarantine: LOCK_QUARANTINE === "true" });
}
