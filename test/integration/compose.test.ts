/** docker-compose.yml: its servers accept their options, and its Cluster is the Cluster of the guide. */
import { execFile, execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { type RedisServer, redisBinary, startRedis, temporaryFolder } from "@x/test-support";
import { expect, it } from "vitest";
import { parse } from "yaml";

interface Service {
  readonly image?: string;
  readonly command?: string;
  readonly profiles?: readonly string[];
  readonly ports?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly depends_on?: readonly string[] | Readonly<Record<string, { readonly condition: string }>>;
  readonly healthcheck?: { readonly test: readonly string[] };
}

const read = (file: string): string => readFileSync(fileURLToPath(new URL(`../../${file}`, import.meta.url)), "utf8");
const { services } = parse(read("docker-compose.yml"), { merge: true }) as {
  readonly services: Readonly<Record<string, Service>>;
};
const MEMBERS = ["cluster-1", "cluster-2", "cluster-3", "cluster-4", "cluster-5", "cluster-6"];
const LOCK_NODES = ["lock-1", "lock-2", "lock-3", "lock-4", "lock-5"];

/** Returns the words of a service's command, as Docker Compose passes them. */
function wordsOf(service: string): readonly string[] {
  const command = (services[service]?.command ?? "").replaceAll("$$", "$");
  const words = execFileSync("sh", ["-c", `printf '%s\\0' ${command}`], { encoding: "utf8" });
  return words.split("\0").slice(0, -1);
}

async function startService(service: string): Promise<RedisServer> {
  const [program, ...args] = wordsOf(service);
  expect(program).toBe("redis-server");
  // The servers listen on the port of all clients and examples.
  expect(args).not.toContain("--port");
  return await startRedis({ args });
}

/** Runs `work` with the servers of these services, which run at the same time. */
async function withServers(
  names: readonly string[],
  work: (servers: readonly RedisServer[]) => Promise<void>,
): Promise<void> {
  const started = await Promise.allSettled(names.map(startService));
  const servers = started.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  try {
    for (const each of started) if (each.status === "rejected") throw each.reason;
    await work(servers);
  } finally {
    await Promise.all(servers.map(async (server) => await server.stop()));
  }
}

it("starts only Redis servers that accept their options, and that refuse writes rather than evict keys", async () => {
  const names = Object.keys(services).filter((name) => services[name]?.command?.startsWith("redis-server") === true);
  expect(names.toSorted()).toEqual([...MEMBERS, ...LOCK_NODES, "queue"].toSorted());
  await withServers(names, async (servers) => {
    for (const server of servers) {
      expect(await server.call("PING")).toBe("PONG");
      expect(await server.call("CONFIG", "GET", "maxmemory-policy")).toContain("noeviction");
      expect(await server.call("CONFIG", "GET", "appendonly")).toContain("yes");
    }
  });
  for (const name of LOCK_NODES) expect(wordsOf(name).join(" ")).toContain("--appendfsync always");
});

it("waits for existing servers, and opens ports only to this machine", () => {
  for (const { depends_on = {}, ports = [], command = "", healthcheck } of Object.values(services)) {
    const needed = Array.isArray(depends_on) ? (depends_on as readonly string[]) : Object.keys(depends_on);
    expect(needed.filter((name) => !(name in services))).toEqual([]);
    expect(ports.filter((port) => !port.startsWith("127.0.0.1:"))).toEqual([]);
    if (command.startsWith("redis-server")) expect(healthcheck?.test).toEqual(["CMD", "redis-cli", "ping"]);
  }
});

it("passes all lock nodes and the queue to a service on this machine, and the pages to a browser", () => {
  const portsOf = (name: string): readonly string[] => services[name]?.ports ?? [];
  expect(LOCK_NODES.map(portsOf)).toEqual(LOCK_NODES.map((_, at) => [`127.0.0.1:${6381 + at}:6379`]));
  expect(portsOf("queue")).toEqual(["127.0.0.1:6380:6379"]);
  expect(portsOf("prometheus")).toEqual(["127.0.0.1:9090:9090"]);
  const { PAGE_PORT = "" } = services["boards"]?.environment ?? {};
  expect(portsOf("boards")).toEqual([`127.0.0.1:${PAGE_PORT}:${PAGE_PORT}`]);
  const published = Object.values(services).flatMap(({ ports = [] }) => ports.map((port) => port.split(":")[1]));
  expect(new Set(published).size).toBe(published.length);
  const settings = Object.values(services).map(({ environment }) => environment?.["DEPARTURE_BOARDS_SETTINGS"]);
  expect(new Set(settings.filter((each) => each !== undefined)).size).toBe(1);
});

it("builds an image with the Node of development, which installs again only if a manifest changed", () => {
  const lines = read("examples/departure-boards/Dockerfile").split("\n");
  const from = lines.filter((line) => line.startsWith("FROM ") && line.includes("node:"));
  expect(from).toEqual([`FROM node:${read(".nvmrc").trim()}-slim AS base`]);
  const stages = lines
    .join("\n")
    .split(/^FROM /m)
    .slice(1);
  const installing = stages.filter((stage) => stage.includes("npm ci"));
  expect(installing).toHaveLength(2);
  // The lines before the installation decide whether Docker repeats it.
  for (const stage of installing) {
    const copied = stage.slice(0, stage.indexOf("npm ci")).match(/^COPY .*$/gm);
    expect(copied).toEqual(["COPY --from=manifests /manifests ."]);
  }
  const last = stages.at(-1) ?? "";
  expect(last.match(/^COPY --from=\S+/gm)).toEqual(["COPY --from=dependencies", "COPY --from=build"]);
  expect(stages.find((stage) => /^\S+ AS dependencies/.test(stage))).toContain("npm ci --omit=dev");
  expect(last).toContain("USER node");
});

it("joins six servers to the Cluster of the guide once, as three masters with a replica each", async () => {
  const [, profile = "", service = ""] =
    /docker compose --profile (\S+) up (\S+?)`/.exec(read("docs/workers/partitions.md")) ?? [];
  const ofProfile = Object.keys(services).filter((name) => services[name]?.profiles?.includes(profile));
  expect(ofProfile.toSorted()).toEqual([...MEMBERS, service].toSorted());
  const healthy = { condition: "service_healthy" };
  expect(services[service]?.depends_on).toEqual(Object.fromEntries(MEMBERS.map((name) => [name, healthy])));
  for (const name of ofProfile) expect(services[name]?.ports).toBeUndefined();

  await withServers(MEMBERS, async (servers) => {
    const [program = "", ...args] = wordsOf(service);
    const env = { ...process.env, PATH: `${folderOfNames(servers)}:${process.env["PATH"] ?? ""}` };
    const join = async (): Promise<string> => (await promisify(execFile)(program, args, { env })).stdout;
    expect(await join()).toContain("All 16384 slots covered");
    for (const server of servers) {
      const options = { timeout: 60_000 };
      await expect.poll(async () => await server.call("CLUSTER", "INFO"), options).toContain("cluster_state:ok");
      const roles = async (): Promise<readonly string[]> =>
        [...String(await server.call("CLUSTER", "NODES")).matchAll(/\b(?:master|slave)\b/g)].map(([role]) => role);
      await expect
        .poll(async () => (await roles()).toSorted(), options)
        .toEqual(["master", "master", "master", "slave", "slave", "slave"]);
    }
    expect(await join()).toBe("");
  });
});

/** Returns a folder of programs for which these servers have the names, addresses and ports of Docker's network. */
function folderOfNames(servers: readonly RedisServer[]): string {
  const folder = join(temporaryFolder(), "compose");
  mkdirSync(folder);
  const program = (name: string, lines: readonly string[]): void =>
    writeFileSync(join(folder, name), ["#!/bin/sh", ...lines, ""].join("\n"), { mode: 0o755 });
  program("getent", [`[ "$1" = hosts ] && echo "10.0.0.\${2#cluster-} $2"`]);
  program("redis-cli", [
    'for word; do shift; case "$word" in',
    ...servers.flatMap(({ host, port }, index) => [
      `cluster-${index + 1}) set -- "$@" ${host} -p ${port};;`,
      `10.0.0.${index + 1}:6379) set -- "$@" ${host}:${port};;`,
    ]),
    '*) set -- "$@" "$word";; esac; done',
    `exec ${redisBinary().replace(/-server$/, "-cli")} "$@"`,
  ]);
  return folder;
}
