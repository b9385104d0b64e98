/**
 * Loads the packages' real sources, bundled in memory; with a mutation, one exact piece of text is replaced in one file first. Production
 * code has no hook for this, and a mutation whose text is not there exactly once fails loudly.
 */
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { compileFunction } from "node:vm";
import { build } from "esbuild";

export interface SourcePatch {
  /** Below `packages/`. */
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

const packages = fileURLToPath(new URL("../../packages/", import.meta.url));

/** `names`: what `@x/…` stands for, files below `packages/`. `contents`: a module, beside them, whose exports are returned. */
export async function loadSources<Exports>(
  source: { readonly contents: string; readonly names?: Readonly<Record<string, string>> },
  patches: readonly SourcePatch[],
): Promise<Exports> {
  const applied = new Set<SourcePatch>();
  const bundle = await build({
    stdin: { contents: source.contents, resolveDir: packages },
    bundle: true,
    write: false,
    platform: "node",
    format: "cjs",
    target: "node20",
    external: ["bullmq", "ioredis", "redis", "pino"],
    define: { "import.meta.url": JSON.stringify(import.meta.url) },
    logLevel: "silent",
    plugins: [
      {
        name: "real-sources",
        setup(builder) {
          builder.onResolve({ filter: /^@x\// }, ({ path }) => {
            const file = source.names?.[path];
            return { path: file === undefined ? path : packages + file };
          });
          if (patches.length === 0) return;
          // Each file that passes through here costs esbuild a message there and back; it reads the others by itself.
          builder.onLoad(
            { filter: new RegExp(`/(${patches.map(({ file }) => file).join("|")})$`) },
            async ({ path }) => {
              let contents = await readFile(path, "utf8");
              for (const patch of patches) {
                if (path !== packages + patch.file) continue;
                contents = replaced(contents, patch);
                applied.add(patch);
              }
              return { contents, loader: "ts" };
            },
          );
        },
      },
    ],
  });
  const missing = patches.find((patch) => !applied.has(patch));
  if (missing !== undefined) throw new Error(`no source was loaded from packages/${missing.file}`);
  const module: { exports: Partial<Exports> } = { exports: {} };
  const run = compileFunction(bundle.outputFiles[0]?.text ?? "", ["module", "exports", "require"], {
    filename: "packages.cjs",
  });
  run(module, module.exports, createRequire(`${packages}redlock-core/src/index.ts`));
  return module.exports as Exports;
}

function replaced(contents: string, patch: SourcePatch): string {
  const parts = contents.split(patch.find);
  if (parts.length !== 2) {
    throw new Error(`${patch.file} must contain ${JSON.stringify(patch.find)} once, not ${parts.length - 1} times`);
  }
  return parts.join(patch.replace);
}
