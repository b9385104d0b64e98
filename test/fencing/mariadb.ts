/** An empty MariaDB server, if `mariadbd` is on the PATH. The npm registry has no MySQL. */
import { spawn, spawnSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { userInfo } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { follow, isMissing, temporaryFolder } from "@x/test-support";
import { type Connection, createConnection } from "mysql2/promise";

const BINARY = "mariadbd";
const START_TIMEOUT_MS = 60_000;

export interface Mariadb {
  readonly connection: Connection;
  readonly stop: () => Promise<void>;
}

export function isWithoutMariadb(): boolean {
  return isMissing("mariadb-server-core", spawnSync(BINARY, ["--version"]).status === 0, "the recipe for MySQL");
}

export async function startMariadb(): Promise<Mariadb> {
  const folder = await mkdtemp(join(temporaryFolder(), "mariadb-"));
  const socketPath = join(folder, "socket");
  // These tests do not need durability after a power failure.
  const quick = ["--innodb-flush-log-at-trx-commit=0", "--innodb-fast-shutdown=2"];
  const own = [...quick, `--datadir=${folder}`, `--socket=${socketPath}`, `--user=${userInfo().username}`];
  const child = spawn(BINARY, ["--no-defaults", "--skip-networking", "--skip-grant-tables", ...own], {
    stdio: "ignore",
  });
  const exited = follow(child, BINARY);
  const stop = async (): Promise<void> => {
    child.kill("SIGKILL");
    await exited;
    await rm(folder, { recursive: true, force: true });
  };
  try {
    const connection = await connect(socketPath);
    return {
      connection,
      stop: async () => {
        connection.destroy();
        await stop();
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function connect(socketPath: string): Promise<Connection> {
  const deadlineMs = performance.now() + START_TIMEOUT_MS;
  for (;;) {
    try {
      return await createConnection({ socketPath, user: "root" });
    } catch (error) {
      if (performance.now() > deadlineMs) throw error;
      await delay(50);
    }
  }
}
