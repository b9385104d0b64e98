/** The parts of a public project: addresses, workflows and the versions that they test. */
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { parse } from "yaml";

const read = (file: string): string => readFileSync(fileURLToPath(new URL(`../../${file}`, import.meta.url)), "utf8");

interface Manifest {
  readonly homepage: string;
  readonly bugs: { readonly url: string };
  readonly repository: { readonly type: string; readonly url: string; readonly directory?: string };
  readonly engines: { readonly node: string };
  readonly scripts: Readonly<Record<string, string>>;
}

interface Step {
  readonly run?: string;
  readonly with?: Readonly<Record<string, string>>;
}

interface Job {
  readonly env?: Readonly<Record<string, string>>;
  readonly strategy?: { readonly matrix: Readonly<Record<string, unknown>> };
  readonly steps: readonly Step[];
}

interface Workflow {
  readonly jobs: Readonly<Record<string, Job>>;
}

const manifest = JSON.parse(read("package.json")) as Manifest;
const packages = readdirSync(new URL("../../packages", import.meta.url));
const files = readdirSync(new URL("../../.github/workflows", import.meta.url));
const workflow = (file: string): Workflow => parse(read(`.github/workflows/${file}`)) as Workflow;

it.each(packages)("@x/%s has the repository's address and its own folder", (name) => {
  const url = manifest.repository.url.replace(/^git\+|\.git$/g, "");
  const { repository, homepage, bugs, engines } = JSON.parse(read(`packages/${name}/package.json`)) as Manifest;
  expect({ repository, homepage, bugs, engines }).toEqual({
    repository: { ...manifest.repository, directory: `packages/${name}` },
    homepage: `${url}/tree/main/packages/${name}#readme`,
    bugs: manifest.bugs,
    engines: manifest.engines,
  });
  expect(manifest.bugs.url).toBe(`${url}/issues`);
});

it.each(files)("%s runs only scripts that exist", (file) => {
  const commands = Object.values(workflow(file).jobs).flatMap(({ steps, strategy }) => [
    ...steps.flatMap(({ run = "" }) => run.split("\n")),
    ...Object.values(strategy?.matrix ?? {})
      .flat()
      .map(String),
  ]);
  const scripts = commands.flatMap((command) => [...command.matchAll(/\bnpm (?:run (\S+)|(test|start)\b)/g)]);
  const names = scripts.map(([, run, short]) => run ?? short ?? "");
  expect(names.length).toBeGreaterThan(0);
  expect(names.filter((name) => !(name in manifest.scripts))).toEqual([]);
});

interface Setting {
  readonly node: string;
  readonly image: string;
  readonly server: string;
}

const settings = workflow("ci.yml").jobs["test"]?.strategy?.matrix["include"] as readonly Setting[];

/** Returns `[20, 19]` for `>=20.19`, `20.19` and `20.19.1`. A missing number is `otherwise`. */
function versionOf(text: string, otherwise: number): readonly [number, number] {
  const [, major, minor] = /(\d+)(?:\.(\d+))?/.exec(text) ?? [];
  return [Number(major), minor === undefined ? otherwise : Number(minor)];
}

it("CI tests the oldest Node that `engines` allows, and none that is older", () => {
  const [major, minor] = versionOf(manifest.engines.node, 0);
  // "22" stands for the newest 22.
  const tested = settings.map(({ node }) => versionOf(node, Number.POSITIVE_INFINITY));
  expect(tested).toContainEqual([major, minor]);
  expect(tested.filter((each) => each[0] < major || (each[0] === major && each[1] < minor))).toEqual([]);
  expect(new Set(tested.map(([each]) => each))).toEqual(new Set([20, 22, 24, 26]));
});

it("development uses a Node that CI tests", () => {
  expect(settings.map(({ node }) => node)).toContain(read(".nvmrc").trim());
});

it("CI tests the oldest server that the READMEs require, the newest ones, and each by its own binary", () => {
  const images = new Set(settings.map(({ image }) => image));
  expect(images).toEqual(new Set(["redis:6.2", "redis:7.2", "redis:8", "valkey/valkey:8", "valkey/valkey:9"]));
  for (const { image, server } of settings) expect(server).toBe(`${image.split(/[/:]/)[0]}-server`);
  expect(read("README.md").replaceAll(/\s+/g, " ")).toContain("Redis 6.2 or newer");
});

it("CI runs everything that `npm test` runs, skips nothing because of a missing program, and tolerates no flaky test", () => {
  const { env, steps = [] } = workflow("ci.yml").jobs["test"] ?? {};
  expect(steps.map(({ run }) => run)).toContain("npm test -- --strict");
  expect(env).toMatchObject({ REQUIRE_TOOLS: "1" });
});

it("each workflow that starts servers names one, so that no other server is tested by accident", () => {
  for (const file of files) expect(read(`.github/workflows/${file}`)).toContain("REDIS_SERVER:");
});

it.each(packages)("@x/%s is published for everyone, with a proof of its origin", (name) => {
  const { publishConfig } = JSON.parse(read(`packages/${name}/package.json`)) as { publishConfig?: unknown };
  expect(publishConfig).toEqual({ access: "public", provenance: true });
});

it("publishing happens only in CI, after all tests, with the rights that a proof of origin needs", () => {
  const { permissions, steps, environment } = workflow("release.yml").jobs["publish"] as Job & Publishing;
  expect(permissions).toEqual({ contents: "write", "id-token": "write" });
  expect(environment).toBe("npm");
  const commands = steps.map(({ run = "" }) => run);
  const order = ["npm ci", "npm test -- --strict", "npm run build", "npx changeset publish", "git push --tags"];
  expect(commands.filter((command) => order.includes(command))).toEqual(order);
  const elsewhere = files.filter(
    (file) => file !== "release.yml" && read(`.github/workflows/${file}`).includes("publish"),
  );
  expect(elsewhere).toEqual([]);
});

interface Publishing {
  readonly permissions: unknown;
  readonly environment: unknown;
}

interface Locked {
  readonly link?: boolean;
  readonly optional?: boolean;
  readonly integrity?: string;
}

it("the lockfile locks each dependency by its hash, except those that another platform installs", () => {
  const { packages: locked } = JSON.parse(read("package-lock.json")) as { packages: Record<string, Locked> };
  const found = Object.entries(locked).filter(([path, { link }]) => path.includes("node_modules/") && link !== true);
  expect(found.length).toBeGreaterThan(500);
  const bare = found.filter(([, { integrity, optional }]) => integrity === undefined && optional !== true);
  expect(bare.map(([path]) => path)).toEqual([]);
});

it("the repository says how to report a vulnerability and how to release", () => {
  expect(read("SECURITY.md")).toContain("## How to report");
  expect(read("RELEASING.md")).toContain("npx changeset publish");
});

it.each(packages)("@x/%s has a changelog that begins with its current version", (name) => {
  const { version } = JSON.parse(read(`packages/${name}/package.json`)) as { version: string };
  expect(/^## (\S+)$/m.exec(read(`packages/${name}/CHANGELOG.md`))?.[1]).toBe(version);
});

it("workers report the version of their package", () => {
  const { version } = JSON.parse(read("packages/workers/package.json")) as { readonly version: string };
  expect(read("packages/workers/src/operators/worker-counts.ts")).toContain(`export const VERSION = "${version}";`);
});
