/** Pure: the table of known texts and the documents after a release has passed. */
import type { ScriptSet, ScriptTexts } from "../../packages/workers/src/bullmq/rules/script-sets.ts";

type Sets = readonly ScriptSet[];

/** The documents that contain `supportedReleases`, and are changed with it. */
export const documents: readonly string[] = [
  "docs/comparison.md",
  "docs/support.md",
  "docs/workers/rolling-out.md",
  "packages/workers/README.md",
];

/** Returns the table with this release: in a wider set, or in a new set. */
export function tableWith(sets: Sets, version: string, texts: ScriptTexts): Sets {
  const has = (set: Sets[number]): boolean => JSON.stringify(set.texts) === JSON.stringify(texts);
  const known = sets.find(has);
  const widened = (set: Sets[number]): Sets[number] => ({
    ...set,
    from: compare(version, set.from) < 0 ? version : set.from,
    to: compare(version, set.to) > 0 ? version : set.to,
  });
  const all =
    known === undefined
      ? [...sets, { from: version, to: version, texts }]
      : sets.map((set) => (set === known ? widened(set) : set));
  return all.toSorted((one, other) => compare(one.from, other.from));
}

/** Returns the source of the table with other sets. */
export function withSets(source: string, sets: Sets): string {
  const entries = sets.map(({ from, to, texts }) => {
    const lines = Object.entries(texts).map(([name, text]) => `      ${name}: "${text}",`);
    return ["  {", `    from: "${from}",`, `    to: "${to}",`, "    texts: {", ...lines, "    },", "  },"].join("\n");
  });
  return source.replace(/(SCRIPT_SETS: readonly ScriptSet\[\] = \[\n)[^]*?(\n\];)/, (_, head: string, end: string) =>
    [head, entries.join("\n"), end].join(""),
  );
}

function compare(one: string, other: string): number {
  const [a, b] = [one.split(".").map(Number), other.split(".").map(Number)];
  const index = a.findIndex((part, i) => part !== b[i]);
  return index === -1 ? 0 : (a[index] ?? 0) - (b[index] ?? 0);
}
