/** Starts the process of one driver. */
import type { RedisServer } from "@x/test-support";
import { compileChild } from "../support/compile.ts";
import { JobChild } from "../support/jobs.ts";
import type { ChildArguments } from "./child.ts";
import type { DriverName, DriverOptions, NodeAddress } from "./drivers.ts";

let compiled: Promise<URL> | undefined;

/** `nodes`: servers, or addresses of proxies in front of them. */
export async function startDriver(
  driver: DriverName,
  nodes: readonly (RedisServer | NodeAddress)[],
  options: DriverOptions,
): Promise<JobChild> {
  compiled ??= compileChild(new URL("./child.ts", import.meta.url), "locks");
  const args: ChildArguments = { driver, nodes: nodes.map(({ host, port }) => ({ host, port })), options };
  return new JobChild(await compiled, driver, [JSON.stringify(args)]);
}
