/** Pure: a Lua script as nodes are asked to run it. */
import { createHash } from "node:crypto";
import { text } from "../kit/schema/check.ts";

/** A Lua script with its SHA-1, by which EVALSHA calls it. Make one with `defineScript`. */
export interface NodeScript {
  readonly name: string;
  readonly source: string;
  readonly sha1: string;
}

const NAME = text({ min: 1 });
const SOURCE = text();

export function defineScript(name: string, source: string): NodeScript {
  NAME.of("name", name);
  SOURCE.of("source", source);
  return Object.freeze({ name, source, sha1: createHash("sha1").update(source).digest("hex") });
}
