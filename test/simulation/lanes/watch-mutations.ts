/** The protections of watched queues, each with a patch that removes it. A part of mutations.ts. */
import type { SourcePatch } from "../sources.ts";
import type { LaneMutation } from "./mutations.ts";
import type { Focus } from "./setting.ts";

const WATCHING = { watch: 1.5, exclude: 1.5 } as const;

const patch =
  (file: string) =>
  (find: string, replace: string): SourcePatch => ({ file: `workers/src/${file}`, find, replace });

const slots = patch("scripts/lane/slots.lua.ts");
const limits = patch("scripts/lane/limits.lua.ts");
const line = patch("scripts/lane/line.lua.ts");
const watch = patch("scripts/lane/watch.lua.ts");
const fullLine = patch("scripts/lane/full-line.lua.ts");
const operators = patch("scripts/operators.lua.ts");
const commands = patch("scripts/commands.lua.ts");
const compose = patch("bullmq/rules/compose.ts");

const watched: Focus = {
  name: "watched queue",
  onFailure: "skip",
  steps: { ...WATCHING, kill: 1, yield: 1, wake: 1 },
  keys: ["a"],
  severalChance: 0,
  hasLocks: true,
};

const watchedBlock: Focus = {
  name: "watched queue, block",
  onFailure: "block",
  steps: { ...WATCHING, kill: 1, "fail more": 2, stall: 1, "late end": 1 },
  keys: ["a", "b"],
  severalChance: 0,
};

const watchedHalt: Focus = {
  name: "watched queue, halt",
  onFailure: "halt",
  steps: { ...WATCHING, "fail more": 2, retry: 2, "resume key": 2 },
  keys: ["a"],
  severalChance: 0,
};

const watchedPauses: Focus = {
  name: "watched queue, pauses",
  onFailure: "skip",
  steps: { ...WATCHING, "pause key": 1.5, "resume key": 2, "pause for": 2, "back off": 1 },
  keys: ["a", "b"],
  severalChance: 0,
};

const watchedPolicies: Focus = {
  name: "watched queue, policies",
  onFailure: "block",
  steps: { ...WATCHING, "set policy": 2, "remove policy": 1.5, "window passes": 1, kill: 1 },
  keys: ["a"],
  severalChance: 0,
};

const watchedSlots: Focus = {
  name: "watched queue, several slots",
  onFailure: "skip",
  steps: { ...WATCHING, kill: 1, yield: 1, wake: 1, "send back": 1 },
  keys: ["a"],
  severalChance: 0,
  slots: 2,
  hasLocks: true,
};

const watchedTurns: Focus = {
  name: "watched queue, rotation",
  steps: { add: 9, fetch: 7, finish: 8, ...WATCHING, "fail more": 1 },
  keys: ["a", "b", "c"],
  severalChance: 0,
  rotate: { weights: { a: 3 } },
};

const watchedInterrupts: Focus = {
  name: "watched queue, interrupts",
  onFailure: "block",
  steps: { ...WATCHING, "fail more": 1, kill: 1 },
  keys: ["a", "b"],
  severalChance: 0,
  line: { max: 1, drop: "oldest", as: "superseded", interrupts: true },
};

const watchedCalls: Focus = {
  name: "watched queue, merged calls",
  steps: { ...WATCHING, kill: 1 },
  keys: ["a", "b"],
  severalChance: 0,
  merge: 5,
};

const watchedLosses: Focus = {
  name: "watched queue, losses",
  steps: { ...WATCHING, "lose holders": 0.6, "lose line": 0.6, "remove holder": 1, "finish elsewhere": 1, kill: 1 },
  keys: ["a", "b", "c"],
  severalChance: 0.4,
};

export const WATCH_MUTATIONS: readonly LaneMutation[] = [
  {
    protection: "while the queue is watched, a busy key delays no job",
    without: "the job waits",
    patches: [limits("return isWatched() and MOST_WATCHED or slotCount(key)", "return slotCount(key)")],
    focus: watched,
  },
  {
    protection: "jobs that overlap are counted when the queue is no longer watched",
    without: "the next job starts while jobs in further slots run",
    patches: [slots("if isWatched() then markOverlaps(key) end", "")],
    focus: watched,
  },
  {
    protection: "the note that jobs overlap stays until no further slot is taken",
    without: "it is removed at the next look",
    patches: [slots("    if next(taken) ~= nil then return end\n    policy.overlaps", "    policy.overlaps")],
    focus: watchedBlock,
  },
  {
    protection: "the note that jobs overlap is removed with the last further slot",
    without: "it is kept forever",
    patches: [slots("if not policy or not policy.overlaps or isWatched() then return end", "if true then return end")],
    focus: watchedSlots,
  },
  {
    protection: "a job that was chosen while the queue was watched is forgotten later",
    without: "it is kept forever",
    patches: [line("      if isWatched() then markOverlaps(keys[i]) end\n", "")],
    focus: watchedPauses,
  },
  {
    protection: "a policy keeps the note that jobs overlap",
    without: "the jobs in further slots are forgotten",
    patches: [operators("    POLICIES[key].overlaps = overlaps or nil\n", "")],
    focus: watchedPolicies,
  },
  {
    protection: "the note that jobs overlap is not a policy",
    without: "a key without a policy has one",
    patches: [operators("hadPolicy = name == 'overlaps' and hadPolicy or 1", "hadPolicy = 1")],
    focus: watchedPolicies,
  },
  {
    protection: "a lane with merged calls is always exclusive",
    without: "two calls receive the same jobs",
    patches: [compose("MAY_WATCH, ROTATE = ${rules.merge === undefined}", "MAY_WATCH, ROTATE = true")],
    focus: watchedCalls,
  },
  {
    protection: "while the queue is watched, a failure halts no key",
    without: "the key is stopped",
    patches: [commands(" and ARGV[6] ~= 'unstarted' and not isWatched()", " and ARGV[6] ~= 'unstarted'")],
    focus: watchedHalt,
  },
  {
    protection: "a job in a further slot halts its key",
    without: "only the job in the first slot halts the key",
    patches: [
      limits(
        "if slotOf(id, key) then\n        call('ZADD'",
        "if call('HGET', HOLDERS, key) == id then\n        call('ZADD'",
      ),
    ],
    focus: watchedHalt,
  },
  {
    protection: "a newer job supersedes all jobs that overlap",
    without: "only the job in the first slot is interrupted",
    patches: [fullLine("ipairs(holdersOf(keys[1]))", "ipairs({call('HGET', HOLDERS, keys[1]) or ''})")],
    focus: watchedInterrupts,
  },
  {
    protection: "a start that exclusion would have delayed is counted",
    without: "it is not counted",
    patches: [limits("    if isWatched() then quietly(countEarly, id, keysOf(pin)) end\n", "")],
    focus: watchedTurns,
  },
  {
    protection: "a job that was chosen and has not been taken delays no job",
    without: "the start is counted",
    patches: [watch("if other ~= id and other ~= chosen then", "if other ~= id then")],
    focus: watchedLosses,
  },
];
