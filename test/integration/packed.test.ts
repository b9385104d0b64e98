import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  isWithoutPostgres,
  type RedisServer,
  spawnChild,
  startPostgres,
  startRedis,
  temporaryFolder,
} from "@x/test-support";
import { transformSync } from "esbuild";
import { afterAll, beforeAll, expect, it } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));

interface Manifest {
  readonly bin?: Readonly<Record<string, string>>;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
}

/** Node.js 20 warns if `require()` loads an ES module. */
const quiet = process.versions.node.startsWith("20.") ? ["--disable-warning=ExperimentalWarning"] : [];

const packages = readdirSync(join(root, "packages"));

let server: RedisServer;
/** The folder with the archives that npm would publish. */
let archives: string;

beforeAll(async () => {
  server = await startRedis();
  for (const name of packages) {
    if (!existsSync(join(root, "packages", name, "dist", "index.js"))) {
      throw new Error(`${name} is not built: npm run build`);
    }
  }
  archives = mkdtempSync(join(temporaryFolder(), "archives-"));
  const sources = packages.map((name) => join(root, "packages", name));
  execFileSync("npm", ["pack", ...sources, "--pack-destination", archives, "--silent"]);
});

afterAll(async () => {
  await server.stop();
});

const manifestOf = (name: string): Manifest =>
  JSON.parse(readFileSync(join(root, "packages", name, "package.json"), "utf8")) as Manifest;

/**
 * Creates a folder whose node_modules contains exactly the packages that npm would install for these packed packages:
 * their dependencies, and the requested peers.
 */
function install(names: readonly string[], clients: readonly string[]): string {
  const folder = mkdtempSync(join(temporaryFolder(), "packed-"));
  const modules = join(folder, "node_modules");
  for (const name of names) {
    const target = join(modules, "@x", name);
    mkdirSync(target, { recursive: true });
    execFileSync("tar", ["-xzf", join(archives, `x-${name}-0.1.0.tgz`), "-C", target, "--strip-components", "1"]);
  }
  const dependencies = names
    .flatMap((name) => Object.keys(manifestOf(name).dependencies ?? {}))
    .filter((name) => !name.startsWith("@x/"));
  for (const name of new Set([...dependencies, ...clients])) {
    mkdirSync(dirname(join(modules, name)), { recursive: true });
    symlinkSync(join(root, "node_modules", name), join(modules, name));
  }
  return folder;
}

const guide = readFileSync(join(root, "docs/locks/commonjs-jest-typescript.md"), "utf8");

function run(folder: string, script: string): string {
  writeFileSync(join(folder, "script.mjs"), script);
  return execFileSync(process.execPath, ["script.mjs"], {
    cwd: folder,
    encoding: "utf8",
    env: { PATH: process.env["PATH"], REDIS_URL: server.url },
  });
}

it("@x/redlock-core can be imported without any Redis client", () => {
  const folder = install(["redlock-core"], []);
  expect(run(folder, `const { Redlock } = await import("@x/redlock-core"); console.log(typeof Redlock);`)).toBe(
    "function\n",
  );
});

it("@x/redlock-core locks with ioredis installed next to it", () => {
  const folder = install(["redlock-core"], ["ioredis"]);
  const script = `
    import { Redlock } from "@x/redlock-core";
    const redlock = new Redlock(process.env.REDIS_URL);
    const lock = await redlock.acquire("a");
    console.log(await redlock.tryAcquire("a"), lock.fencingToken > 0, await lock.release());
    await redlock.close();
  `;
  expect(run(folder, script)).toBe("null true true\n");
});

it.each(["redlock-core", "node-redlock", "leader", "workers", "effects"])(
  "@x/%s can be required from CommonJS",
  (name) => {
    const clients = ["ioredis", "bullmq", "@bull-board/api"];
    const folder = install(["redlock-core", ...(name === "redlock-core" ? [] : [name])], clients);
    const { exports } = JSON.parse(readFileSync(join(root, "packages", name, "package.json"), "utf8")) as {
      readonly exports: Readonly<Record<string, unknown>>;
    };
    const entries = Object.keys(exports).filter((entry) => !entry.endsWith(".json"));
    writeFileSync(
      join(folder, "script.cjs"),
      `for (const entry of ${JSON.stringify(entries)}) {
       const found = require(require("node:path").posix.join("@x/${name}", entry));
       console.log(entry, Object.values(found).some((value) => typeof value === "function"));
     }`,
    );
    const told = execFileSync(process.execPath, [...quiet, "script.cjs"], { cwd: folder, encoding: "utf8" });
    expect(told).toBe(entries.map((entry) => `${entry} true\n`).join(""));
  },
);

/** NestJS 11 is CommonJS, and NestJS 12 consists of ES modules. */
const nests = { 11: "fixtures/nest-11/node_modules/@nestjs", 12: "node_modules/@nestjs" } as const;

it.each([
  { nest: 11, format: "cjs" },
  { nest: 11, format: "esm" },
  { nest: 12, format: "cjs" },
  { nest: 12, format: "esm" },
] as const)("@x/nestjs works in a service with NestJS $nest, as $format", async (setting) => {
  await server.flush();
  const folder = install(["redlock-core", "leader", "workers", "nestjs"], ["ioredis", "bullmq", "reflect-metadata"]);
  const modules = join(folder, "node_modules/@nestjs");
  mkdirSync(modules);
  for (const name of ["bullmq", "common", "core", "platform-express"])
    symlinkSync(join(root, nests[setting.nest], name), join(modules, name));
  const { version } = JSON.parse(readFileSync(join(modules, "core/package.json"), "utf8")) as { version: string };
  expect(version.split(".")[0]).toBe(`${setting.nest}`);
  const file = join(folder, setting.format === "cjs" ? "service.cjs" : "service.mjs");
  const { code } = transformSync(readFileSync(join(root, "fixtures/nest-11/src/service.ts"), "utf8"), {
    loader: "ts",
    format: setting.format,
    tsconfigRaw: { compilerOptions: { experimentalDecorators: true } },
  });
  writeFileSync(file, code);

  await using service = spawnChild(file, { execArgv: quiet, env: { REDIS_URL: server.url } });
  const said = async (line: string): Promise<void> =>
    await expect.poll(() => service.output, { timeout: 20_000 }).toContain(line);
  await said("listening on http");
  const [url = ""] = /http:\S+/.exec(service.output) ?? [];
  const post = async (path: string): Promise<Response> => await fetch(`${url}/accounts/${path}`, { method: "POST" });
  await post("7/charges");
  await said("charging 7");
  const { fencingToken } = (await (await post("7/closings")).json()) as { fencingToken: number };
  expect(fencingToken).toBeGreaterThan(0);
  await said("mailed 7");
  await said("first tick of Reports.send");
  await post("8/charges");
  await said("charging 8");
  expect(await service.kill("SIGTERM")).toEqual({ code: null, signal: "SIGTERM" });
  const order = service.output.split("\n").filter((line) => /^(charg|clos|destroy)/.test(line));
  expect(order).toEqual(["charging 7", "charged 7", "closing 7", "charging 8", "charged 8", "destroyed"]);
});

it("the packages work in Jest's CommonJS mode with the guide's transformIgnorePatterns", {
  timeout: 300_000,
}, (context) => {
  const folder = install(["redlock-core", "node-redlock", "leader", "workers", "testing"], ["ioredis", "bullmq"]);
  const tools = mkdtempSync(join(temporaryFolder(), "jest-"));
  writeFileSync(join(tools, "package.json"), "{}");
  try {
    const packages = ["jest@30.5.2", "@babel/preset-env@7"];
    execFileSync("npm", ["install", "--prefer-offline", "--no-audit", "--no-fund", ...packages], {
      cwd: tools,
      stdio: "pipe",
    });
  } catch (error) {
    context.skip(`jest cannot be installed: ${String(error)}`);
  }
  const [, patterns] = /`transformIgnorePatterns: (\[[^`]+\])`/.exec(guide) ?? [];
  const preset = [join(tools, "node_modules/@babel/preset-env"), { targets: { node: "current" } }];
  writeFileSync(join(folder, "babel.config.cjs"), `module.exports = { presets: [${JSON.stringify(preset)}] };`);
  writeFileSync(
    join(folder, "jest.cjs"),
    `const { Redlock } = require("@x/redlock-core");
     const Compat = require("@x/node-redlock");
     const { LeaderElection } = require("@x/leader");
     const { LeaderScheduler } = require("@x/leader/scheduler");
     const { ExclusiveWorker } = require("@x/workers");
     test("leads", async () => {
       const redlock = new Redlock(process.env.REDIS_URL);
       const election = new LeaderElection(redlock, { name: "jest" });
       const scheduler = new LeaderScheduler({ election });
       const ran = new Promise((resolve) => scheduler.cron("each-second", "* * * * * *", resolve));
       scheduler.start();
       expect((await ran).term.isCurrent()).toBe(true);
       await scheduler.stop();
       await election.stop();
       await redlock.close();
     });
     test("locks", async () => {
       const redlock = new Redlock(process.env.REDIS_URL);
       expect(await (await redlock.acquire("jest")).release()).toBe(true);
       await redlock.close();
       for (const each of [Compat.default, ExclusiveWorker]) expect(typeof each).toBe("function");
     });`,
  );
  writeFileSync(join(folder, "testing.jest.js"), exampleOfTesting().replace(/^import .*"vitest";$/m, ""));
  const jest = (transformIgnorePatterns: unknown): { readonly status: number | null; readonly stderr: string } => {
    const config = JSON.stringify({
      rootDir: folder,
      testMatch: ["**/jest.cjs", "**/testing.jest.js"],
      transformIgnorePatterns,
    });
    return spawnSync(
      process.execPath,
      [join(tools, "node_modules/jest/bin/jest.js"), "--runInBand", "--forceExit", "--config", config],
      { cwd: folder, encoding: "utf8", env: { PATH: process.env["PATH"], REDIS_URL: server.url } },
    );
  };
  const told = jest(JSON.parse(patterns ?? ""));
  expect(told.stderr).toContain("Tests:       3 passed, 3 total");
  expect(told.status).toBe(0);
  expect(jest(["/node_modules/"]).stderr).toContain("Must use import to load ES Module");
});

it("@x/leader leads with only its own dependencies", () => {
  const folder = install(["redlock-core", "leader"], ["ioredis"]);
  const script = `
    import { LeaderElection } from "@x/leader";
    import "@x/leader/scheduler";
    import { Redlock } from "@x/redlock-core";
    const redlock = new Redlock(process.env.REDIS_URL);
    const election = new LeaderElection(redlock, { name: "packed" });
    const term = await election.campaign();
    console.log(term.isCurrent());
    await term.resign();
    await election.stop();
    await redlock.close();
  `;
  expect(run(folder, script)).toBe("true\n");
});

it("@x/workers works with only its own dependencies and BullMQ", () => {
  const folder = install(["redlock-core", "workers"], ["ioredis", "bullmq"]);
  const script = `
    import { ExclusiveWorker } from "@x/workers";
    import { Queue } from "bullmq";
    const connection = { url: process.env.REDIS_URL };
    const queue = new Queue("packed", { connection });
    await queue.add("job", { account: "a" });
    const worker = new ExclusiveWorker("packed", async (job, _token, _signal, lock) => lock.fencingToken > 0, { connection, key: "account" });
    const [, result] = await new Promise((resolve) => worker.once("completed", (...args) => resolve(args)));
    console.log(result);
    await worker.close();
    await queue.close();
  `;
  expect(run(folder, script)).toBe("true\n");
});

it("@x/console runs as a command with only its own dependencies", () => {
  const folder = install(["redlock-core", "leader", "workers", "console"], []);
  const bin = join(folder, "node_modules/@x/console", String(manifestOf("console").bin?.["x-console"]));
  const told = spawnSync(process.execPath, [bin, "locks", "inspect", "packed", "--json", "--redis", server.url], {
    encoding: "utf8",
  });
  expect(told.stderr).toBe("");
  expect(JSON.parse(told.stdout)).toMatchObject({ resource: "packed", verdict: "free" });
  expect(told.status).toBe(0);
});

it("@x/semaphore works with only @x/redlock-core and a client", () => {
  const folder = install(["redlock-core", "semaphore"], ["ioredis"]);
  const script = `
    import { Redlock } from "@x/redlock-core";
    import { CountDownLatch, ReadWriteLock, Semaphore } from "@x/semaphore";
    const redlock = new Redlock(process.env.REDIS_URL, { nodeTimeout: 30_000 });
    const semaphore = new Semaphore(redlock, "packed", { permits: 2 });
    const held = [await semaphore.acquire(), await semaphore.acquire()];
    const refused = await semaphore.tryAcquire();
    const latch = new CountDownLatch(redlock, "packed");
    await latch.set(1);
    await new ReadWriteLock(redlock, "packed").write.using(() => latch.countDown());
    await latch.wait();
    await redlock.close();
    console.log(held.map((permit) => permit.isHeld()), refused);`;
  writeFileSync(join(folder, "main.mjs"), script);
  const env = { ...process.env, REDIS_URL: server.url };
  const told = execFileSync(process.execPath, ["main.mjs"], { cwd: folder, encoding: "utf8", env });
  expect(told).toBe("[ false, false ] null\n");
});

it.skipIf(isWithoutPostgres())("@x/effects works with only @x/redlock-core, BullMQ and a client", async () => {
  await using postgres = await startPostgres();
  const folder = install(["redlock-core", "effects"], ["bullmq", "ioredis", "pg"]);
  const script = `
    import { Effects, OutboxRelay } from "@x/effects";
    import { Worker } from "bullmq";
    import pg from "pg";
    const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
    const effects = new Effects(pool);
    await effects.migrate();
    const { port } = new URL(process.env.REDIS_URL);
    const connection = { port: Number(port), maxRetriesPerRequest: null };
    const election = {
      name: "packed",
      run: (task, { signal }) => task({ election: "packed", signal, assertCurrent: () => undefined }),
    };
    const add = (tx) => tx.enqueue("packed", "send", { n: 1 });
    await effects.once({ key: "a" }, add);
    await effects.once({ key: "a" }, add);
    const relay = new OutboxRelay(effects, { election, connection });
    relay.start();
    let worker;
    const n = await new Promise((resolve) => {
      worker = new Worker("packed", async (job) => resolve(job.data.n), { connection });
    });
    await worker.close();
    await relay.stop();
    await pool.end();
    console.log(n);`;
  writeFileSync(join(folder, "main.mjs"), script);
  const env = { ...process.env, REDIS_URL: server.url, DATABASE_URL: postgres.url };
  expect(execFileSync(process.execPath, ["main.mjs"], { cwd: folder, encoding: "utf8", env })).toBe("1\n");
});

it("@x/node-redlock works with only @x/redlock-core and a client", () => {
  const folder = install(["redlock-core", "node-redlock"], ["ioredis"]);
  const script = `
    import Redlock, { ExecutionError } from "@x/node-redlock";
    import Redlock4 from "@x/node-redlock/v4";
    import { Redis } from "ioredis";
    const client = new Redis(process.env.REDIS_URL);
    const redlock = new Redlock([client], { retryCount: 0, nodeTimeout: 30_000 });
    const lock = await redlock.acquire(["packed"], 60_000);
    const refused = await redlock.acquire(["packed"], 60_000).catch((error) => error instanceof ExecutionError);
    await lock.release();
    await (await new Redlock4([client], { nodeTimeout: 30_000 }).lock("packed", 60_000)).unlock();
    console.log(refused, await client.exists("packed"));
    await redlock.quit();`;
  writeFileSync(join(folder, "main.mjs"), script);
  const env = { ...process.env, REDIS_URL: server.url };
  expect(execFileSync(process.execPath, ["main.mjs"], { cwd: folder, encoding: "utf8", env })).toBe("true 0\n");
});

/** Returns the example of the guide as JavaScript. The repository's own tests run it in vitest. */
function exampleOfTesting(): string {
  const [, code = ""] = /^```ts\n([^]*?)^```/m.exec(readFileSync(join(root, "docs/testing.md"), "utf8")) ?? [];
  expect(code).toBe(readFileSync(join(root, "packages/testing/test/losing-a-lock.test.ts"), "utf8"));
  return transformSync(code, { loader: "ts" }).code;
}

it("@x/testing works in node:test with only its own dependencies", () => {
  const folder = install(["redlock-core", "testing"], []);
  writeFileSync(join(folder, "example.test.mjs"), exampleOfTesting().replace('"vitest"', '"node:test"'));
  const told = spawnSync(process.execPath, ["--test", "--test-reporter=tap", "example.test.mjs"], {
    cwd: folder,
    encoding: "utf8",
    env: { PATH: process.env["PATH"] },
  });
  expect(told.stdout).toContain("# pass 1");
  expect(told.status).toBe(0);
});

it("@x/otel works with only OpenTelemetry's API and the core", () => {
  const folder = install(["redlock-core", "otel"], ["@opentelemetry/api"]);
  const script = 'import { instrument } from "@x/otel"; instrument()(); console.log("instrumented");';
  writeFileSync(join(folder, "main.mjs"), script);
  expect(execFileSync(process.execPath, ["main.mjs"], { cwd: folder, encoding: "utf8" })).toBe("instrumented\n");
});

it.each(packages)(
  "@x/%s declares everything that it imports, and packs only its build and its documents",
  { timeout: 60_000 },
  (name) => {
    const folder = join(install([name], []), "node_modules", "@x", name);
    const files = readdirSync(folder, { recursive: true, encoding: "utf8" });
    const isExpected = (file: string): boolean =>
      /^(README\.md|SKILL\.md|CHANGELOG\.md|LICENSE|package\.json|grafana(\/(dashboard\.json|alerts\.yml))?|dist|dist\/[^.]+|dist\/.+\.(js|d\.ts)|dist\/assets\/page\.(css|html))$/.test(
        file,
      );
    const foreign = files.filter((file) => !isExpected(file));
    expect(foreign).toEqual([]);
    expect(files).toEqual(expect.arrayContaining(["LICENSE", "CHANGELOG.md"]));
    const code = files
      .filter((file) => file.endsWith(".js"))
      .map((file) => readFileSync(join(folder, file), "utf8"))
      .join("\n");
    const dependencies = Object.keys(manifestOf(name).dependencies ?? {});
    const siblings = dependencies.filter((dependency) => dependency.startsWith("@x/"));
    const peers = siblings.flatMap((sibling) => Object.keys(manifestOf(sibling.slice(3)).peerDependencies ?? {}));
    const unused = dependencies.filter(
      (dependency) =>
        !peers.includes(dependency) &&
        !code.includes(`from "${dependency}"`) &&
        !code.includes(`from "${dependency}/`) &&
        !code.includes(`import("${dependency}")`),
    );
    expect(unused).toEqual([]);
  },
);
