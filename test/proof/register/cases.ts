/** The explored cases of the scheduler's register, and the protections that the exploration needs. */
import { explore } from "../explore.ts";
import { type Explored, exploredOf, type RemovedRule } from "../explored.ts";
import { type Bounds, loadRegister, RegisterWorld } from "./world.ts";

interface Case {
  readonly name: string;
  readonly bounds: Bounds;
  /** Actions that have happened at the start. */
  readonly after: readonly string[];
}

const reach = (script: string, nodes: readonly string[]): readonly string[] =>
  nodes.map((node) => `term 1 reaches ${node} (${script}-register)`);

const fromTheStart: Case = {
  name: "two terms, every order of their messages",
  bounds: { terms: 2, losses: 0 },
  after: [],
};

/** The messages of term 1 to the third node are still on their way. */
const confirmedByTwo: Case = {
  name: "term 1 was confirmed by two nodes, then one node may lose its data",
  bounds: { terms: 2, losses: 1 },
  after: [...reach("read", ["a", "b", "c"]), ...reach("write", ["a", "b"]), ...reach("write", ["a", "b"])],
};

/** The rules of register.ts. */
const RULES: readonly RemovedRule<Case>[] = [
  {
    rule: "a node keeps its promise",
    patches: [
      {
        file: "leader/src/scheduler/scripts/write-register.lua.ts",
        find: "if promised > term then return {'stale', seen[1]} end",
        replace: "",
      },
    ],
    in: fromTheStart,
  },
  {
    rule: "a node that is read promises",
    patches: [
      {
        file: "leader/src/scheduler/scripts/read-register.lua.ts",
        find: "if ARGV[2] == '1' then",
        replace: "if ARGV[2] == 'never' then",
      },
    ],
    in: fromTheStart,
  },
  {
    rule: "a leader adopts the newest version",
    patches: [
      {
        file: "leader/src/scheduler/register-store.ts",
        find: "isNewer(each.version, best.version) ? each : best",
        replace: "isNewer(each.version, best.version) ? best : each",
      },
    ],
    in: confirmedByTwo,
  },
  {
    rule: "only a quorum of whole nodes is enough to read",
    patches: [
      {
        file: "leader/src/scheduler/register.ts",
        find: "all.filter(({ isWhole }) => isWhole).length >= quorum;",
        replace: "all.length >= quorum;",
      },
    ],
    in: confirmedByTwo,
  },
];

/** More states than any case has. */
const LIMIT = 50_000;

export const REGISTER: Explored = exploredOf({
  name: "register",
  cases: [fromTheStart, confirmedByTwo],
  rules: RULES,
  explore: async ({ bounds, after }, { patches = [], limit = LIMIT }) => {
    const code = await loadRegister(patches);
    return await explore(() => new RegisterWorld(code, bounds), { after, limit });
  },
});
