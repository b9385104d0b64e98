import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "@x/test-support";
import { beforeEach, expect, it } from "vitest";

const bootstrap = new URL("../../scripts/bootstrap.mjs", import.meta.url).href;
let folder = "";

beforeEach(() => {
  folder = mkdtempSync(join(temporaryFolder(), "path-"));
});

// Creates a stub, which writes its command line to `calls`. `sudo` runs its command, like the real one.
function stub(name: string, script = ""): void {
  writeFileSync(join(folder, name), `#!/bin/sh\necho "${name} $*" >> "${folder}/calls"\n${script}\n`, { mode: 0o755 });
}

const sudo = 'while [ "$1" = -n ]; do shift; done; exec "$@"';
const installsRedis = () =>
  `case "$*" in *install*redis*) printf '' > "${folder}/redis-server"; /bin/chmod +x "${folder}/redis-server";; esac`;

function ensureRedis(options: { readonly user: number; readonly server?: string }): {
  status: number | null;
  lines: string[];
  calls: string[];
} {
  const script = `process.getuid = () => ${options.user}; (await import(${JSON.stringify(bootstrap)})).ensureRedis();`;
  const { status, stderr } = spawnSync(process.execPath, ["--input-type=module", "--eval", script], {
    env: { PATH: folder, ...(options.server === undefined ? {} : { REDIS_SERVER: options.server }) },
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  });
  return { status, lines: stderr.split("\n").filter((line) => line !== ""), calls: calls() };
}

function calls(): string[] {
  try {
    return readFileSync(join(folder, "calls"), "utf8").trim().split("\n");
  } catch {
    return [];
  }
}

it.each(["18.20.0", "20.18.3"])("refuses Node %s, on which the packages do not run", (version) => {
  const older = `Object.defineProperty(process, "versions", { value: { ...process.versions, node: "${version}" } });`;
  const script = `${older} (await import(${JSON.stringify(bootstrap)})).ensureInstalled();`;
  const { status, stderr } = spawnSync(process.execPath, ["--input-type=module", "--eval", script], {
    env: { PATH: folder },
    encoding: "utf8",
  });
  expect([status, stderr.trim()]).toEqual([1, `Node.js 20.19 or newer is needed, this is ${version}`]);
});

it("prints the help of `npm start` with nothing installed, and starts no program for it", () => {
  const start = new URL("../../scripts/start.mjs", import.meta.url).pathname;
  const { status, stdout, stderr } = spawnSync(process.execPath, [start, "--naive", "--help"], {
    env: { PATH: folder },
    encoding: "utf8",
  });
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  expect(stdout).toMatch(/^npm start -- \[options\]/);
});

it("installs nothing if a server exists", () => {
  stub("valkey-server");
  stub("apt-get");
  expect(ensureRedis({ user: 0 })).toEqual({ status: 0, lines: [], calls: [] });
});

it("installs with apt-get as root, and reports this", () => {
  stub("apt-get", installsRedis());
  const { status, lines, calls } = ensureRedis({ user: 0 });
  expect(status).toBe(0);
  expect(calls).toEqual(["apt-get update", "apt-get install -y --no-install-recommends redis-server"]);
  expect(lines).toEqual([
    "no redis-server on the PATH: apt-get update ...",
    "no redis-server on the PATH: apt-get install -y --no-install-recommends redis-server ...",
  ]);
});

it("uses sudo only if it is needed, and without a question if there is no terminal", () => {
  stub("apt-get", installsRedis());
  stub("sudo", sudo);
  const { status, lines, calls } = ensureRedis({ user: 1000 });
  expect(status).toBe(0);
  expect(calls[0]).toBe("sudo -n apt-get update");
  expect(lines[1]).toContain("sudo -n apt-get install");
});

it("never uses sudo for brew", () => {
  stub("brew", installsRedis());
  stub("sudo", sudo);
  expect(ensureRedis({ user: 1000 })).toMatchObject({ status: 0, calls: ["brew install redis"] });
});

it("tries valkey if there is no redis package", () => {
  stub(
    "dnf",
    `case "$*" in *valkey*) printf '' > "${folder}/valkey-server"; /bin/chmod +x "${folder}/valkey-server";; *) exit 1;; esac`,
  );
  expect(ensureRedis({ user: 0 })).toMatchObject({
    status: 0,
    calls: ["dnf install -y redis", "dnf install -y valkey"],
  });
});

it("installs valkey with its Lua if Lua is a separate package", () => {
  stub(
    "apk",
    `case "$*" in *valkey*) printf '' > "${folder}/valkey-server"; /bin/chmod +x "${folder}/valkey-server";; *) exit 1;; esac`,
  );
  expect(ensureRedis({ user: 0 })).toMatchObject({ status: 0, calls: ["apk add redis", "apk add valkey valkey-lua"] });
});

it("ends with one line of advice if the package manager fails", () => {
  stub("apt-get", "echo 'no network' >&2; exit 100");
  const { status, lines } = ensureRedis({ user: 0 });
  expect(status).toBe(1);
  expect(lines).toContain("no network");
  expect(lines.at(-1)).toMatch(
    /^apt-get could not install a Redis server: install Redis 6.2 or newer or Valkey \(for example: /,
  );
});

it("ends with one line if root is needed without sudo, or if no package manager is known", () => {
  expect(ensureRedis({ user: 0 })).toMatchObject({
    status: 1,
    lines: [expect.stringMatching(/^no redis-server on the PATH: install/)],
  });
  stub("apt-get", installsRedis());
  expect(ensureRedis({ user: 1000 })).toMatchObject({
    status: 1,
    lines: [expect.stringMatching(/^no redis-server on the PATH, and apt-get needs root: install/)],
    calls: [],
  });
});

it("neither replaces the server that REDIS_SERVER names nor installs another if that server is missing", () => {
  stub("apt-get", installsRedis());
  const missing = ensureRedis({ user: 0, server: "valkey-server" });
  expect(missing).toEqual({
    status: 1,
    lines: ['REDIS_SERVER names no executable file: "valkey-server"'],
    calls: [],
  });
  stub("valkey-server");
  expect(ensureRedis({ user: 0, server: "valkey-server" })).toEqual({ status: 0, lines: [], calls: [] });
  expect(ensureRedis({ user: 0, server: join(folder, "valkey-server") })).toEqual({ status: 0, lines: [], calls: [] });
});
