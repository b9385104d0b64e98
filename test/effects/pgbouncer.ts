/** A PgBouncer in transaction mode in front of a PostgreSQL server, if `pgbouncer` is on the PATH. */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { follow, isMissing, type PostgresServer, reservePort, temporaryFolder, until } from "@x/test-support";

const BINARY = "pgbouncer";

export function isWithoutPgbouncer(): boolean {
  const isThere = spawnSync(BINARY, ["--version"]).status === 0;
  return isMissing("pgbouncer", isThere, "effects behind PgBouncer");
}

export interface Pgbouncer {
  readonly port: number;
  readonly stop: () => Promise<void>;
}

/** Starts a PgBouncer with `size` connections to the server. */
export async function startPgbouncer(server: PostgresServer, size: number): Promise<Pgbouncer> {
  const folder = mkdtempSync(join(temporaryFolder(), "pgbouncer-"));
  const reserved = await reservePort();
  const { port } = reserved;
  const { host, user, database } = server;
  const file = join(folder, "pgbouncer.ini");
  writeFileSync(
    file,
    `[databases]
${database} = host=${host} port=${server.port} user=${user}
[pgbouncer]
listen_addr = ${host}
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = ${size}
`,
  );
  // PgBouncer refuses to run as root, like the server.
  const isRoot = process.getuid?.() === 0;
  if (isRoot) {
    chmodSync(temporaryFolder(), 0o711);
    chmodSync(folder, 0o755);
  }
  const child = spawn(BINARY, [...(isRoot ? ["--user", "nobody"] : []), file], { stdio: "ignore" });
  const exited = follow(child, BINARY);
  const stop = async (): Promise<void> => {
    child.kill("SIGKILL");
    await exited;
    rmSync(folder, { recursive: true, force: true });
    reserved[Symbol.dispose]();
  };
  try {
    await until(async () => await accepts(host, port));
  } catch (error) {
    await stop();
    throw error;
  }
  return { port, stop };
}

async function accepts(host: string, port: number): Promise<boolean> {
  const socket = connect(port, host);
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
