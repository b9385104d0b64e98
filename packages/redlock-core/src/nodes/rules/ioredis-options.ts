/** Pure: checks the options of ioredis for one node. */
import { Check, integer, type Option, text } from "../../kit/schema/check.ts";
import { Schema } from "../../kit/schema/schema.ts";
import { show } from "../../kit/schema/show.ts";
import type { IoredisConnectOptions } from "./url.ts";

/** Accepts null, because ioredis stores null in a client's options for an option that was left out. */
function orNull<Value>(check: Check<Value>): Option<Value | undefined> {
  const of = (name: string, given: unknown): Value | undefined =>
    given === undefined || given === null ? undefined : check.of(name, given);
  return { rule: check.rule, fallback: undefined, of };
}

/**
 * Rules for options that make ioredis throw when it connects. Some invalid options ioredis would not even notice: it
 * would use database 0.
 */
const CONNECT_OPTIONS = new Schema({
  host: orNull(text()),
  port: orNull(
    new Check<number>({
      rule: "an integer from 0 to 65535",
      faultOf: (port) => {
        if (/^\d{1,5}$/.test(`${port as number}`) && Number(port) <= 65_535) return undefined;
        return typeof port === "number" ? "range" : "type";
      },
    }),
  ),
  path: orNull(text()),
  username: orNull(text()),
  password: orNull(
    new Check<string>({
      rule: "a string",
      faultOf: (password) => (typeof password === "string" ? undefined : "type"),
      show: (password) => `a ${typeof password}`,
    }),
  ),
  db: orNull(integer({ min: 0, unit: "" })),
  sentinels: orNull(
    new Check<readonly object[]>({
      rule: "a non-empty array",
      faultOf: (sentinels) => {
        if (!Array.isArray(sentinels)) return "type";
        return sentinels.length > 0 ? undefined : "range";
      },
    }),
  ),
  name: orNull(text()),
  keyPrefix: orNull(text()),
});

export function checkOptions(options: IoredisConnectOptions): void {
  const read = (name: keyof typeof CONNECT_OPTIONS.shape): unknown => CONNECT_OPTIONS.get(options, name, "node");
  for (const name of CONNECT_OPTIONS.names) read(name);
  if (read("sentinels") !== undefined && (read("name") ?? "") === "")
    throw new TypeError(`node.name must be given with sentinels: the name of their master, got ${show(options.name)}`);
}

/** Returns the name of a node as shown to operators. */
export function nameOf(options: IoredisConnectOptions): string {
  if (options.path !== undefined && options.path !== null) return options.path;
  if (options.sentinels !== undefined && options.sentinels !== null) return `sentinel:${options.name ?? ""}`;
  return `${options.host ?? "localhost"}:${options.port ?? 6379}`;
}
