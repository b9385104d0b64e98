/**
 * The self-test of unknown scripts, with a BullMQ whose texts are really changed: bundles contain the changed texts. The whole
 * command, and the changes that are noticed late, run where X_SELF_TEST=whole.
 */
import { mkdirSync, mkdtempSync, realpathSync, symlinkSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type RedisServer, spawnChild, startRedis, temporaryFolder } from "@x/test-support";
import { build, type Plugin } from "esbuild";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { changedLines } from "../src/self-test/changes.ts";
import { installedElsewhere } from "../src/self-test/installed.ts";
import { faultsOf, type RunEvent } from "../src/self-test/rules/judge.ts";

const root = fileURLToPath(new URL("../../../", import.meta.url));

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(async () => await server.stop());

interface Change {
  readonly script: string;
  readonly find: string | RegExp;
  readonly replace: string;
}

/** Bundles the programs with a BullMQ whose scripts are changed. Returns the program that runs the self-test. */
async function bundle(changes: readonly Change[]): Promise<string> {
  const folder = mkdtempSync(join(temporaryFolder(), "self-test-"));
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  writeFileSync(join(folder, "package.json"), '{ "type": "module", "version": "0.0.0" }');
  const applied = new Set<Change>();
  const changed: Plugin = {
    name: "changed-scripts",
    setup(builder) {
      builder.onLoad({ filter: /\/bullmq\/dist\/\w+\/scripts\/\w+-\d+\.js$/ }, async ({ path }) => {
        let contents = await readFile(path, "utf8");
        for (const change of changes) {
          if (!path.includes(`/${change.script}-`)) continue;
          const before = contents;
          contents = contents.replace(change.find, change.replace);
          if (contents !== before) applied.add(change);
        }
        return { contents, loader: "js" };
      });
      builder.onResolve({ filter: /^(msgpackr-extract|@valkey\/valkey-glide)$/ }, ({ path }) => ({
        path,
        external: true,
      }));
    },
  };
  const sources = join(root, "packages/console");
  await build({
    entryPoints: {
      "self-test": join(sources, "test/children/self-test.ts"),
      member: join(sources, "src/self-test/member.ts"),
    },
    outdir: join(folder, "dist"),
    bundle: true,
    format: "esm",
    platform: "node",
    target: "node20",
    keepNames: true,
    tsconfig: join(root, "tsconfig.check.json"),
    banner: {
      js: 'import { createRequire as requireOf } from "node:module"; const require = requireOf(import.meta.url);',
    },
    plugins: [changed],
    logLevel: "error",
  });
  expect(applied.size).toBe(changes.length);
  return join(folder, "dist/self-test.js");
}

async function run<Answer>(program: string, task: object): Promise<Answer> {
  const child = spawnChild(program, { args: [JSON.stringify({ url: server.url, ...task })] });
  onTestFinished(async () => void (await child.kill()));
  const isAnswer = (message: unknown): message is Answer => typeof message === "object";
  return await child.message<Answer>(isAnswer, { timeout: 300_000 });
}

interface Results {
  readonly results: readonly { readonly phase: string; readonly fault: string | null }[];
}

interface CommandResult {
  readonly code: number;
  readonly text: string;
}

interface Started {
  readonly error?: string;
  readonly fingerprint?: string;
  readonly warnings: readonly string[];
  readonly findings: readonly { readonly code: string; readonly subjects: readonly string[] }[];
}

const HARMLESS: Change = { script: "moveToFinished", find: "local rcall = redis.call", replace: "$& -- changed" };
const QUICK = ["exclusion and order", "priorities"];
const keysLeft = async (): Promise<readonly string[]> => {
  const redis = new Redis(server.url);
  onTestFinished(() => redis.disconnect());
  return await redis.keys("*x-self-test*");
};

describe("a BullMQ with a changed text", () => {
  it("is refused, and accepted with the fingerprint of its texts after the self-test", async () => {
    const program = await bundle([HARMLESS]);
    const refused = await run<Started>(program, {});
    expect(refused.error).toMatch(/script moveToFinished has the unknown text .*npx @x\/console bullmq/);
    const { fingerprint: acceptScripts = "" } = refused;
    const other = await run<Started>(program, { acceptScripts: "0123456789abcdef" });
    expect(other.error).toContain(`acceptScripts is 0123456789abcdef and not ${acceptScripts}`);
    const accepted = await run<Started>(program, { acceptScripts });
    expect(accepted.findings).toMatchObject([{ code: "UNTESTED_BULLMQ" }]);
    expect(accepted.warnings).toEqual([expect.stringMatching(/^X_WORKERS_UNTESTED_BULLMQ: .*moveToFinished/)]);
    const { results } = await run<Results>(program, { acceptScripts, phases: QUICK });
    expect(results).toMatchObject(QUICK.map((phase) => ({ phase, fault: null })));
    expect(await keysLeft()).toEqual([]);
    const unasked = await run<CommandResult>(program, { command: ["bullmq"] });
    expect(unasked.text).toContain("unknown: moveToFinished.\n--diff shows what differs from 6.");
    expect(unasked).toMatchObject({ code: 2, text: expect.stringContaining("Pass --yes") as string });
  });

  const isWhole = process.env["X_SELF_TEST"] === "whole";

  it.each<[string, Change, string]>(
    [
      [
        "lets another worker take a running job",
        { script: "moveToActive", find: /"PX", opts\['lockDuration'\]/, replace: '"PX", 1' },
        "removal of waiting jobs",
      ],
      [
        "loses the jobs that are delayed",
        { script: "moveToDelayed", find: /rcall\("ZADD", delayedKey, score, jobId\)/, replace: "local _ = score" },
        "delays",
      ],
      [
        "takes the newest job first",
        {
          script: "moveToActive",
          find: /rcall\("RPOPLPUSH", waitKey, activeKey\)/,
          replace: 'rcall("LMOVE", waitKey, activeKey, "LEFT", "LEFT")',
        },
        "exclusion and order",
      ],
    ].filter((_, index) => isWhole || index === 2) as [string, Change, string][],
  )("fails the self-test if it %s", async (_title, change, phase) => {
    const program = await bundle([change]);
    const { fingerprint: acceptScripts } = await run<Started>(program, {});
    const { results } = await run<Results>(program, { acceptScripts, phases: [phase] });
    expect(results).toMatchObject([{ phase, fault: expect.any(String) as string }]);
    expect(await keysLeft()).toEqual([]);
  });

  it.runIf(isWhole)("passes the whole command, which prints the option", async () => {
    const program = await bundle([HARMLESS]);
    const { fingerprint } = await run<Started>(program, {});
    const { code, text } = await run<CommandResult>(program, { command: ["bullmq", "--yes"] });
    expect(text).toContain(`acceptScripts: "${fingerprint}"`);
    expect(text).not.toContain("FAILED");
    expect(code).toBe(0);
    expect(await keysLeft()).toEqual([]);
  });
});

it("shows the lines that only one of two texts contains", () => {
  expect(changedLines("a\nb\n\nc\nd", "a\nc\nx\n b")).toEqual(["- b", "- d", "+ x", "+  b"]);
  expect(changedLines("a\nb", "b\na\n")).toEqual([]);
});

it("finds that a project uses another BullMQ than the console", () => {
  const project = mkdtempSync(join(temporaryFolder(), "project-"));
  expect(installedElsewhere(root)).toBeUndefined();
  expect(installedElsewhere(project)).toBeUndefined();
  const own = join(project, "node_modules/bullmq");
  mkdirSync(own, { recursive: true });
  writeFileSync(join(own, "package.json"), '{ "name": "bullmq", "version": "6.9.0" }');
  expect(installedElsewhere(project)).toBe(realpathSync(own));
});

describe("the judge of a history", () => {
  const event = (what: "start" | "end", ns: number, facts: Partial<RunEvent> = {}): RunEvent => {
    const plain = { jobId: "1", key: "a", i: 0, pid: 1, run: 1, fencingToken: 1, atMs: 0 };
    return { ...plain, ...facts, what, ns: BigInt(ns) };
  };
  const second = { jobId: "2", i: 1, run: 2, fencingToken: 2 };
  const dead = new Map([[1, 15n]]);

  it.each<[string, readonly RunEvent[], ReadonlyMap<number, bigint>, string | undefined]>([
    [
      "accepts runs one after the other",
      [event("start", 1), event("end", 2), event("start", 3, second), event("end", 4, second)],
      new Map(),
      undefined,
    ],
    [
      "finds an overlap",
      [event("start", 1), event("start", 2, second), event("end", 3), event("end", 4, second)],
      new Map(),
      "job 2 started while job 1",
    ],
    [
      "lets a run of a killed worker end with the worker",
      [
        event("start", 1),
        event("start", 20, { ...second, jobId: "1", i: 0, pid: 2 }),
        event("end", 21, { ...second, jobId: "1", i: 0, pid: 2 }),
      ],
      dead,
      undefined,
    ],
    [
      "finds a job that was started before its worker was dead",
      [
        event("start", 1),
        event("start", 14, { ...second, jobId: "1", i: 0, pid: 2 }),
        event("end", 21, { ...second, jobId: "1", i: 0, pid: 2 }),
      ],
      dead,
      "job 1 started while job 1",
    ],
    [
      "finds a job that ran twice",
      [
        event("start", 1),
        event("end", 2),
        event("start", 3, { run: 2, fencingToken: 2 }),
        event("end", 4, { run: 2, fencingToken: 2 }),
      ],
      new Map(),
      "job 1 ran 2 times",
    ],
    [
      "finds a wrong order",
      [event("start", 1, second), event("end", 2, second), event("start", 3, { fencingToken: 3 }), event("end", 4)],
      new Map(),
      "started after a job that was added later",
    ],
    [
      "finds a token that does not rise",
      [event("start", 1), event("end", 2), event("start", 3, { ...second, fencingToken: 1 }), event("end", 4, second)],
      new Map(),
      "fencing token",
    ],
  ])("%s", (_title, events, deaths, fault) => {
    const faults = faultsOf(events, deaths, { isOrdered: true });
    if (fault === undefined) expect(faults).toEqual([]);
    else expect(faults.join("; ")).toContain(fault);
  });
});
