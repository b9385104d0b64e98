import { execFileSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

const names = ["redis-server", "valkey-server"];

/**
 * Returns the server to test with: the server that `REDIS_SERVER` names (a path, or a name on the PATH), or else the
 * first `redis-server` or `valkey-server` on the PATH.
 *
 * @throws Error that says what to install, or what `REDIS_SERVER` names instead of a server.
 */
export function redisBinary(
  path: string = process.env["PATH"] ?? "",
  chosen: string | undefined = process.env["REDIS_SERVER"],
): string {
  if (chosen !== undefined && chosen !== "") {
    const file = onPath(chosen, path);
    if (file === undefined) throw new Error(`REDIS_SERVER names no executable file: "${chosen}"`);
    return file;
  }
  for (const name of names) {
    const file = onPath(name, path);
    if (file !== undefined) return file;
  }
  throw new Error(
    `no ${names.join(" or ")} on the PATH: install Redis 6.2 or newer, or Valkey (apt-get install redis-server, brew install redis)`,
  );
}

let serverMajor: number | undefined;

/**
 * Returns the arguments, or an empty list if the server is older than Redis 7, and therefore refuses to start with
 * them.
 */
export function sinceRedis7(...args: string[]): string[] {
  serverMajor ??= Number(/ v=(\d+)/.exec(execFileSync(redisBinary(), ["--version"], { encoding: "utf8" }))?.[1]);
  return serverMajor < 7 ? [] : args;
}

/** Returns the executable file of a name or a path. */
export function onPath(name: string, path: string): string | undefined {
  if (name.includes("/")) return executable(name);
  for (const folder of path.split(delimiter)) {
    const file = folder === "" ? undefined : executable(join(folder, name));
    if (file !== undefined) return file;
  }
  return undefined;
}

function executable(file: string): string | undefined {
  try {
    accessSync(file, constants.X_OK);
    return file;
  } catch {
    return undefined;
  }
}
