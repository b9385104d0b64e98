/** What is explored of the read-write lock, and which rules the exploration needs. */
import type { SourcePatch } from "../../simulation/sources.ts";
import { explore } from "../explore.ts";
import { type Explored, exploredOf, type RemovedRule } from "../explored.ts";
import { type Bounds, loadPermits, ReadWriteWorld } from "./world.ts";

interface ReadWriteCase {
  readonly name: string;
  readonly bounds: Bounds;
}

const twoWriters: ReadWriteCase = {
  name: "two writers, and a node that may lose its data",
  bounds: { callers: ["writer", "writer"], losses: 1 },
};
const readerFirst: ReadWriteCase = {
  name: "a reader and a writer, and a node that may lose its data",
  bounds: { callers: ["reader", "writer"], losses: 1 },
};
const writerFirst: ReadWriteCase = {
  name: "a writer and a reader with a greater token",
  bounds: { callers: ["writer", "reader"], losses: 1 },
};

const permits = (find: string, replace: string): SourcePatch => ({
  file: "semaphore/src/permits/permits.lua.ts",
  find,
  replace,
});

const RULES: readonly RemovedRule<ReadWriteCase>[] = [
  {
    rule: "a node grants no more permits than there are",
    patches: [permits("if isNext and used + permitsOf(holder) <= capacity then", "if isNext then")],
    in: twoWriters,
  },
  {
    rule: "a node that may have forgotten a holder does not vote",
    patches: [permits("if leftMs > 0 then return {2, leftMs} end\n  expire()", "expire()")],
    in: twoWriters,
  },
  {
    rule: "a writer's token is above all earlier tokens",
    patches: [permits("isWriter() and last or lastOf('written')", "lastOf('written')")],
    in: writerFirst,
  },
  {
    rule: "a reader's token is above the tokens of earlier writers",
    patches: [
      permits("if isWriter() then call('HSET', state, 'written'", "if false then call('HSET', state, 'written'"),
    ],
    in: readerFirst,
  },
];

/** More than any of the cases has. */
const LIMIT = 200_000;

export const READ_WRITE_LOCK: Explored = exploredOf({
  name: "read-write lock",
  cases: [twoWriters, readerFirst, writerFirst],
  rules: RULES,
  explore: async ({ bounds }, { patches = [], limit = LIMIT }) => {
    const code = await loadPermits(patches);
    return await explore(() => new ReadWriteWorld(code, bounds), { limit });
  },
});
