import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

const names = ["redis-server", "valkey-server"];

/**
 * The first `redis-server` or `valkey-server` on the PATH.
 * @throws Error that says what to install, when there is none.
 */
export function redisBinary(path: string = process.env["PATH"] ?? ""): string {
  for (const name of names) {
    for (const folder of path.split(delimiter)) {
      const file = join(folder, name);
      if (folder !== "" && isExecutable(file)) return file;
    }
  }
  throw new Error(
    `no ${names.join(" or ")} on the PATH: install Redis 6.2 or newer, or Valkey (apt-get install redis-server, brew install redis)`,
  );
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
