/** The time of a process by V8's sampler: self time, by the folder or package whose code ran. */
import { readFileSync } from "node:fs";
import { type Profiler, Session } from "node:inspector";

/**
 * Milliseconds by part. The times are wall times: a process that is preempted while it writes to a socket seems to
 * write for longer.
 */
export type Profile = Readonly<Record<string, number>>;

const SAMPLE_US = 250;

export async function profiled<Result>(work: () => Promise<Result>): Promise<readonly [Result, Profile]> {
  const session = new Session();
  session.connect();
  try {
    const post = (method: string, params: object = {}): Promise<object> =>
      new Promise((resolve, reject) => {
        session.post(method, params, (error, result) => (error === null ? resolve(result ?? {}) : reject(error)));
      });
    await post("Profiler.enable");
    await post("Profiler.setSamplingInterval", { interval: SAMPLE_US });
    await post("Profiler.start");
    const result = await work();
    const { profile } = (await post("Profiler.stop")) as Profiler.StopReturnType;
    return [result, msByPart(profile)];
  } finally {
    session.disconnect();
  }
}

function msByPart({ nodes, samples = [], timeDeltas = [] }: Profiler.Profile): Profile {
  const sources = sourceByLine(readFileSync(process.argv[1] ?? "", "utf8"));
  const parts = new Map<number, string>();
  // Parents come before their children.
  for (const { id, callFrame, children = [] } of nodes) {
    const own = partOf(callFrame, sources) ?? parts.get(id) ?? "V8 and system";
    parts.set(id, own);
    for (const child of children) parts.set(child, own);
  }
  const ms: Record<string, number> = {};
  for (const [index, id] of samples.entries()) {
    const part = parts.get(id) ?? "V8 and system";
    ms[part] = (ms[part] ?? 0) + (timeDeltas[index] ?? 0) / 1_000;
  }
  return ms;
}

/** Returns the part of a frame. Undefined if the time belongs to the caller, for example in a built-in function. */
function partOf(
  {
    functionName,
    url,
    lineNumber,
  }: { readonly functionName: string; readonly url: string; readonly lineNumber: number },
  sources: readonly string[],
): string | undefined {
  if (functionName === "(idle)") return "idle";
  if (functionName === "(garbage collector)") return "garbage collection";
  if (url === "") return /^write(Utf8String|Latin1String|Buffer|v)$/.test(functionName) ? "socket writes" : undefined;
  if (url.startsWith("node:")) return "Node";
  return /node_modules\/(@[^/]+\/[^/]+|[^/]+)/.exec(url)?.[1] ?? sources[lineNumber];
}

/** Returns the source of each line of a bundle. esbuild writes the path of a source before its first line. */
function sourceByLine(bundle: string): readonly string[] {
  let part = "V8 and system";
  return bundle.split("\n").map((line) => {
    const path = /^\/\/ (?:\.\.\/)*(\S+\.ts)$/.exec(line)?.[1];
    if (path !== undefined) {
      const [, name, folder] = /packages\/([^/]+)\/src\/([^/]+)/.exec(path) ?? [];
      part = name === undefined ? "the benchmark itself" : `${name}: ${folder?.replace(/\.ts$/, "") ?? ""}`;
    }
    return part;
  });
}
