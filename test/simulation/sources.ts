/**
 * Loads the real sources of the packages. With a mutation, one exact piece of text in one file is replaced first.
 * Production code contains no hook for mutations. A mutation whose text does not occur exactly once fails with an
 * error. Each file is compiled once, and again if it is mutated, because a bundle for each mutation would cost ten
 * times as much.
 */
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { compileFunction } from "node:vm";
import { transform } from "esbuild";
import { chosenBullMQ } from "../support/bullmq-release.ts";

export interface SourcePatch {
  /** Path below `packages/`. */
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

interface Compiled {
  readonly code: string;
  /** The files that the file imports from the sources, by the name in the import. */
  readonly files: ReadonlyMap<string, string>;
}

const packages = fileURLToPath(new URL("../../packages/", import.meta.url));
const requireOf = createRequire(`${packages}redlock-core/src/index.ts`);

/** Compiled code by source text. */
const compiled = new Map<string, Promise<string>>();

/** The entries of the core that sibling packages import, by name. */
export const CORE_ENTRIES: Readonly<Record<string, string>> = {
  "@x/redlock-core": "redlock-core/src/index.ts",
  "@x/redlock-core/kit": "redlock-core/src/kit.ts",
  "@x/redlock-core/protocol": "redlock-core/src/protocol.ts",
};

/**
 * Loads a module with the text `contents`, next to the packages, and returns its exports. `names` maps each name `@x/…`
 * to a file below `packages/`.
 */
export async function loadSources<Exports>(
  source: { readonly contents: string; readonly names?: Readonly<Record<string, string>> },
  patches: readonly SourcePatch[],
): Promise<Exports> {
  const entry = `${packages}entry.ts`;
  const modules = new Map<string, Compiled>();
  const gather = async (path: string): Promise<void> => {
    const text = path === entry ? source.contents : await readFile(path, "utf8");
    const own = patches.filter(({ file }) => path === packages + file);
    const code = await compile(own.reduce(replaced, text));
    const files = new Map<string, string>();
    for (const [, name = ""] of code.matchAll(/\brequire\("([^"]+)"\)/g)) {
      const file = source.names?.[name];
      if (name.startsWith(".")) files.set(name, resolve(dirname(path), name));
      else if (file !== undefined) files.set(name, packages + file);
    }
    modules.set(path, { code, files });
    for (const file of files.values()) if (!modules.has(file)) await gather(file);
  };
  await gather(entry);
  const missing = patches.find(({ file }) => !modules.has(packages + file));
  if (missing !== undefined) throw new Error(`no source was loaded from packages/${missing.file}`);
  const loaded = new Map<string, { exports: unknown }>();
  const load = (path: string): unknown => {
    const known = loaded.get(path);
    if (known !== undefined) return known.exports;
    const { code, files } = modules.get(path) as Compiled;
    const module = { exports: {} as unknown };
    loaded.set(path, module);
    const requireFrom = (name: string): unknown => {
      const file = files.get(name);
      if (file === undefined) return requireOf(name === "bullmq" ? (chosenBullMQ ?? name) : name);
      return load(file);
    };
    compileFunction(code, ["module", "exports", "require"], { filename: path })(module, module.exports, requireFrom);
    return module.exports;
  };
  return load(entry) as Exports;
}

async function compile(text: string): Promise<string> {
  const known =
    compiled.get(text) ??
    transform(text, {
      loader: "ts",
      format: "cjs",
      target: "node20",
      platform: "node",
      define: { "import.meta.url": JSON.stringify(import.meta.url) },
      supported: { "dynamic-import": false },
    }).then(({ code }) => code);
  compiled.set(text, known);
  return await known;
}

function replaced(contents: string, patch: SourcePatch): string {
  const parts = contents.split(patch.find);
  if (parts.length !== 2) {
    throw new Error(`${patch.file} must contain ${JSON.stringify(patch.find)} once, not ${parts.length - 1} times`);
  }
  return parts.join(patch.replace);
}
