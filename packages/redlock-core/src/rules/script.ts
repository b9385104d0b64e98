/** Pure: defines the Lua scripts that nodes run. */
import { createHash } from "node:crypto";
import { text } from "../kit/schema/check.ts";

/** A Lua script with its SHA-1 for EVALSHA. Created by `defineScript`. */
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

/** The elements of a reply in their order: a name for TypeScript, and the Lua expression of the value. */
type ReplyElements = Readonly<Record<string, string>>;

/** Returns the Lua of a reply. */
export function replyInLua(elements: ReplyElements): string {
  return `{${Object.values(elements).join(", ")}}`;
}

/** Returns the elements of a reply by name. An element that is missing is an empty text. */
export function readReply<Elements extends ReplyElements>(
  elements: Elements,
  reply: readonly string[],
): Readonly<Record<keyof Elements, string>> {
  const named = Object.keys(elements).map((name, at) => [name, reply[at] ?? ""]);
  return Object.fromEntries(named) as Readonly<Record<keyof Elements, string>>;
}
