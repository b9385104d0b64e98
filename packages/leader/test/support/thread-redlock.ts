/** The module that the renewal thread loads: the same nodes, connections of its own. */
import type { Redlock } from "@x/redlock-core";
import { connect } from "./redis.ts";

export default function redlock(): Redlock {
  return connect((process.env["LOCK_PATHS"] ?? "").split(","));
}
