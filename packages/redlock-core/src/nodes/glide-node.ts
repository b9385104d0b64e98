/**
 * This entry makes Valkey GLIDE the client of a node: `new Redlock([glideNode(GlideClient, { addresses }), …])`.
 *
 * The package `@valkey/valkey-glide` is not imported here; pass its class.
 */
import { DAY_MS, systemClock } from "../kit/clock.ts";
import { integer, objectWith, shaped } from "../kit/schema/check.ts";
import { Schema, type ShapeOf } from "../kit/schema/schema.ts";
import { type GlideAddresses, type GlideClientClass, GlideNode } from "./glide.ts";
import type { LockNode } from "./node.ts";

export type { GlideAddresses, GlideClientClass, GlideConnection } from "./glide.ts";

export interface GlideNodeOptions {
  /**
   * The time for which a request may wait for a connection, or its answer, in ms. Default: 500, which is the default of
   * the same option of `Redlock`. Give both the same value.
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
 * Makes a node of one server, over clients of Valkey GLIDE 2.5 or later of its own. They are closed with the `Redlock`;
 * until then they keep the process alive.
 *
 * `configuration` is what `GlideClient.createClient` takes: one address, credentials, TLS. Settings that a lock cannot
 * live with are replaced, such as `requestTimeout` and `lazyConnect`.
 *
 * Throws `TypeError` for what is no class of GLIDE and no configuration, and `RangeError` for several addresses.
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
