/**
 * This entry uses Valkey GLIDE as the client of a node: `new Redlock([glideNode(GlideClient, { addresses }), …])`.
 *
 * The package `@valkey/valkey-glide` is not imported here; pass its class.
 */
import { DAY_MS, systemClock } from "../kit/clock.ts";
import { integer, objectWith, shaped } from "../kit/schema/check.ts";
import { Schema, type ShapeOf } from "../kit/schema/schema.ts";
import { type GlideAddresses, type GlideClientClass, GlideNode } from "./glide.ts";
import type { LockNode } from "./node.ts";

export type { GlideAddresses, GlideClientClass } from "./glide.ts";
export type { GlideConnection } from "./glide-requests.ts";

export interface GlideNodeOptions {
  /**
   * How long a request may wait for a connection, or for its answer, in ms. Default: 500, like the option of the same
   * name of `Redlock`. Use the same value for both.
   */
  readonly nodeTimeout?: number | undefined;
}

const OPTIONS = new Schema({
  nodeTimeout: integer({ min: 1, max: DAY_MS }).default(500),
} satisfies ShapeOf<GlideNodeOptions>);

const GLIDE = objectWith<GlideClientClass<never>>(["createClient"]);
const CONFIGURATION = shaped<GlideAddresses>(
  "a configuration of GLIDE with addresses: [{ host, port }]",
  ({ addresses }) => Array.isArray(addresses) && addresses.every(isAddress),
);

function isAddress(address: unknown): boolean {
  const { host, port = 6379 } = (address ?? {}) as { readonly host?: unknown; readonly port?: unknown };
  return typeof host === "string" && typeof port === "number";
}

/**
 * Creates a node for one server. The node creates its own clients of Valkey GLIDE 2.5 or later. They keep the process
 * alive until the `Redlock` is closed, which also closes the clients.
 *
 * `configuration` is the argument of `GlideClient.createClient`: one address, credentials, TLS. Settings that would
 * break a lock, such as `requestTimeout` and `lazyConnect`, are replaced.
 *
 * Throws `TypeError` if `glide` is not a class of GLIDE or `configuration` is invalid, and `RangeError` unless the
 * configuration has exactly one address.
 */
export function glideNode<Configuration extends GlideAddresses>(
  glide: GlideClientClass<Configuration>,
  configuration: Configuration,
  options: GlideNodeOptions = {},
): LockNode {
  GLIDE.of("glide", glide);
  CONFIGURATION.of("configuration", configuration);
  const { nodeTimeout: nodeTimeoutMs } = OPTIONS.resolve(options);
  return GlideNode.of(glide, configuration, { nodeTimeoutMs, clock: systemClock });
}
