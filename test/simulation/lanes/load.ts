/** Loads the lane of `@x/workers` from its real sources, unchanged or mutated (sources.ts). */
import { loadSources, type SourcePatch } from "../sources.ts";

export interface LaneCode {
  readonly lane: typeof import("../../../packages/workers/src/lane/lane.ts");
  readonly bullmq: typeof import("../../../packages/workers/src/bullmq/bullmq.ts");
  readonly batch: typeof import("../../../packages/workers/src/job-run/rules/batch.ts");
  readonly compose: typeof import("../../../packages/workers/src/bullmq/rules/compose.ts");
  readonly locks: typeof import("../../../packages/redlock-core/src/scripts/embedded.lua.ts");
}

export async function loadLanes(patches: readonly SourcePatch[] = []): Promise<LaneCode> {
  const modules = {
    lane: "workers/src/lane/lane.ts",
    bullmq: "workers/src/bullmq/bullmq.ts",
    batch: "workers/src/job-run/rules/batch.ts",
    compose: "workers/src/bullmq/rules/compose.ts",
    locks: "redlock-core/src/scripts/embedded.lua.ts",
  };
  const contents = Object.entries(modules).map(([name, file]) => `export * as ${name} from "./${file}";`);
  const names = {
    "@x/redlock-core/kit": "redlock-core/src/kit.ts",
    "@x/redlock-core/protocol": "redlock-core/src/protocol.ts",
  };
  return await loadSources({ contents: contents.join("\n"), names }, patches);
}
