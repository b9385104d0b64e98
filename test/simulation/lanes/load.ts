/** The lane of `@x/workers` from its real sources, as they are or mutated (sources.ts). */
import { loadSources, type SourcePatch } from "../sources.ts";

export interface LaneCode {
  readonly lane: typeof import("../../../packages/workers/src/lane.ts");
  readonly bullmq: typeof import("../../../packages/workers/src/bullmq.ts");
  readonly compose: typeof import("../../../packages/workers/src/compose.ts");
}

export async function loadLanes(patches: readonly SourcePatch[] = []): Promise<LaneCode> {
  const modules = ["lane", "bullmq", "compose"];
  const contents = modules.map((name) => `export * as ${name} from "./workers/src/${name}.ts";`).join("\n");
  return await loadSources({ contents }, patches);
}
