/** Shows what differs between the installed scripts and a tested release of BullMQ, which npm downloads. */
import { execFile } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { UnknownTexts } from "@x/workers";
import { RedisConnection } from "bullmq";
import { ConsoleFailure } from "../failure.ts";

export interface ScriptChange {
  readonly script: string;
  /** Lines that only one of the texts contains, after "+ " (installed) or "- " (tested). */
  readonly lines: readonly string[];
}

const run = promisify(execFile);

/** Compares the unknown scripts with the nearest tested release. Throws `ConsoleFailure` if npm cannot download it. */
export async function changesSince({ scripts, nearest }: UnknownTexts): Promise<readonly ScriptChange[]> {
  const folder = await mkdtemp(join(tmpdir(), "x-console-"));
  try {
    const { stdout } = await run("npm", ["pack", `bullmq@${nearest}`, "--silent"], { cwd: folder });
    await run("tar", ["xzf", stdout.trim()], { cwd: folder });
    const tested = await textsIn(join(folder, "package/dist/cjs/scripts"));
    const installed = installedTexts();
    return scripts.map((script) => ({
      script,
      lines: changedLines(tested.get(script) ?? "", installed.get(script) ?? ""),
    }));
  } catch (error) {
    throw new ConsoleFailure(
      `BullMQ ${nearest} cannot be downloaded: ${(error as Error).message}`,
      "Leave out --diff.",
    );
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Returns the lines that only one of two texts contains. Lines that have only moved are left out. */
export function changedLines(before: string, after: string): readonly string[] {
  const [old, current] = [before, after].map((text) => text.split("\n").filter((line) => line.trim() !== ""));
  const [olds, currents] = [new Set(old), new Set(current)];
  return [
    ...(old ?? []).filter((line) => !currents.has(line)).map((line) => `- ${line}`),
    ...(current ?? []).filter((line) => !olds.has(line)).map((line) => `+ ${line}`),
  ];
}

/** Reads the texts of an unpacked release, whose files need no other packages. */
async function textsIn(folder: string): Promise<ReadonlyMap<string, string>> {
  const load = createRequire(join(folder, "index.js"));
  const files = (await readdir(folder)).filter((file) => /^\w+-\d+\.js$/.test(file));
  return new Map(
    files.map((file) => {
      const [script] = Object.values(
        load(join(folder, file)) as Readonly<Record<string, { readonly content?: string }>>,
      );
      return [file.replace(/-\d+\.js$/, ""), script?.content ?? ""];
    }),
  );
}

/** Returns the texts of the installed scripts: BullMQ "defines" them on a collector. */
function installedTexts(): ReadonlyMap<string, string> {
  const texts = new Map<string, string>();
  const collector = {
    defineCommand: (name: string, { lua }: { readonly lua: string }) => void texts.set(name.split(":")[0] ?? name, lua),
  };
  const { prototype } = RedisConnection as unknown as {
    readonly prototype: { loadCommands?: (this: { readonly _client: typeof collector }, version: string) => void };
  };
  prototype.loadCommands?.call({ _client: collector }, "x");
  return texts;
}
