/** The packages under simulation: their real sources, unchanged or mutated (sources.ts). */
import { CORE_ENTRIES, loadSources, type SourcePatch } from "./sources.ts";

export interface Engine {
  readonly core: typeof import("@x/redlock-core");
  readonly leader: typeof import("@x/leader");
  readonly scheduler: typeof import("@x/leader/scheduler");
  readonly semaphore: typeof import("@x/semaphore");
}

const names: Readonly<Record<string, string>> = {
  ...CORE_ENTRIES,
  "@x/leader": "leader/src/index.ts",
  "@x/leader/scheduler": "leader/src/scheduler/index.ts",
  "@x/semaphore": "semaphore/src/index.ts",
};

export async function loadEngine(patches: readonly SourcePatch[] = []): Promise<Engine> {
  const contents = Object.keys(names)
    .map((name) => `export * as ${name.split("/").at(-1)?.replace("redlock-", "") ?? ""} from "${name}";`)
    .join("\n");
  return await loadSources({ contents, names }, patches);
}
