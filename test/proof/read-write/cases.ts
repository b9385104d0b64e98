/** What is explored of the read-write lock, and which rules the exploration needs. */
import type { SourcePatch } from "../../simulation/sources.ts";
import { type Exploration, explore } from "../explore.ts";
import { type Bounds, loadPermits, ReadWriteWorld } from "./world.ts";

export interface ReadWriteCase {
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

export const READ_WRITE_CASES: readonly ReadWriteCase[] = [twoWriters, readerFirst, writerFirst];

const permits = (find: string, replace: string): SourcePatch => ({
  file: "semaphore/src/permits/permits.lua.ts",
  find,
  replace,
});

export const READ_WRITE_RULES: readonly {
  readonly rule: string;
  readonly patch: SourcePatch;
  readonly in: ReadWriteCase;
}[] = [
  {
    rule: "a node grants no more permits than there are",
    patch: permits("if isNext and used + permitsOf(holder) <= capacity then", "if isNext then"),
    in: twoWriters,
  },
  {
    rule: "a node that may have forgotten a holder does not vote",
    patch: permits("if leftMs > 0 then return {2, leftMs} end\n  expire()", "expire()"),
    in: twoWriters,
  },
  {
    rule: "a writer's token is above all earlier tokens",
    patch: permits("isWriter() and last or lastOf('written')", "lastOf('written')"),
    in: writerFirst,
  },
  {
    rule: "a reader's token is above the tokens of earlier writers",
    patch: permits("if isWriter() then call('HSET', state, 'written'", "if false then call('HSET', state, 'written'"),
    in: readerFirst,
  },
];

/** More than any of the cases has. */
const LIMIT = 200_000;

export async function exploreReadWrite(
  { bounds }: ReadWriteCase,
  { patches = [], limit = LIMIT }: { readonly patches?: readonly SourcePatch[]; readonly limit?: number } = {},
): Promise<Exploration> {
  const code = await loadPermits(patches);
  return await explore(() => new ReadWriteWorld(code, bounds), { limit });
}
