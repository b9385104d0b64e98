/**
 * The protections of the lane, each with a patch that removes it, like ../mutations.ts for locks. The patches change
 * scripts of `@x/workers`. BullMQ's own scripts remain unchanged.
 */
import type { SourcePatch } from "../sources.ts";
import type { Focus } from "./setting.ts";
import { WATCH_MUTATIONS } from "./watch-mutations.ts";

export interface LaneMutation {
  readonly protection: string;
  /** The behavior without the protection. */
  readonly without: string;
  readonly patches: readonly SourcePatch[];
  /** A focus with which schedules break soon, if random schedules rarely break. */
  readonly focus?: Focus;
}

/** A waiting job that has a key is removed, and its ID is used again. */
const holderAgain: Focus = {
  name: "holder again",
  steps: { "remove holder": 4, fail: 3, "pause key": 1, "resume key": 1.5 },
  keys: ["a", "b", "c"],
  severalChance: 0.7,
  sameIdChance: 0.9,
};

const holderAgainWithSlots: Focus = {
  ...holderAgain,
  name: "holder again, several at a time",
  onFailure: "skip",
  steps: { "remove holder": 6, stall: 3, kill: 1 },
  slots: 2,
};

const holderAgainInTurn: Focus = { ...holderAgain, name: "holder again, rotation", rotate: { weights: {} } };

const parkedAgain: Focus = {
  name: "parked job again",
  steps: { remove: 3, "add delayed": 3 },
  keys: ["a", "b"],
  severalChance: 0,
  sameIdChance: 0.9,
};

const againAfterLoss: Focus = {
  name: "lost holders, ids again",
  steps: { remove: 4, "lose holders": 1.5 },
  keys: ["a"],
  severalChance: 0,
  sameIdChance: 0.9,
};

/** Jobs are cancelled in every state, and their workers die or try to leave them. */
const cancelling: Focus = {
  name: "cancelled jobs",
  steps: {
    cancel: 4,
    delay: 1,
    "back off": 1,
    yield: 1,
    "spawn child": 1,
    kill: 1,
    stall: 1,
    "late end": 1,
    "add delayed": 1,
    "fail more": 1,
    retry: 2,
  },
  keys: ["a", "b"],
  severalChance: 0.3,
};

const cancellingKilled: Focus = {
  name: "cancelled jobs of killed workers",
  steps: { cancel: 4, kill: 4 },
  keys: ["a", "b"],
  severalChance: 0,
};

const cancellingHalt: Focus = {
  name: "cancelled jobs, halt",
  onFailure: "halt",
  steps: { cancel: 4, kill: 1, retry: 1, "resume key": 1 },
  keys: ["a"],
  severalChance: 0,
};

const severalKeys: Focus = { name: "several keys", steps: {}, keys: ["a", "b", "c"], severalChance: 0.6 };

const twoLines: Focus = { name: "two lines", steps: {}, keys: ["a", "b"], severalChance: 0 };

const retriedKeys: Focus = {
  name: "retried keys",
  onFailure: "skip",
  steps: { "fail more": 4 },
  keys: ["a"],
  severalChance: 0,
};

const delayedRuns: Focus = {
  name: "delayed runs",
  onFailure: "block",
  steps: { delay: 4 },
  keys: ["a", "b"],
  severalChance: 0,
};

const limited: Focus = { name: "limited starts", steps: { "next period": 1, yield: 1, wake: 1 }, starts: 4 };

const pausedKeys: Focus = {
  name: "paused keys",
  onFailure: "block",
  steps: { "pause key": 2, "resume key": 2, "fail more": 3, stall: 1 },
  keys: ["a"],
  severalChance: 0,
};

/** No other job needs the timers of a key here, so a job that is late is late because of a pause. */
const timedPauses: Focus = {
  name: "pauses with an end",
  steps: { "pause for": 2, "back off": 2, "pause key": 0.5, "resume key": 1, "fail more": 1, kill: 1, add: 3 },
  keys: ["a"],
  severalChance: 0,
};

const fullLines: Focus = {
  name: "full lines",
  steps: {},
  keys: ["a", "b"],
  severalChance: 0,
  line: { max: 2, drop: "newest", as: "backlog" },
};

const latestOnly: Focus = {
  name: "latest only",
  steps: { "pause for": 1, "back off": 1, "resume key": 0.5 },
  keys: ["a"],
  severalChance: 0,
  line: { max: 1, drop: "oldest", as: "superseded" },
};

const latestRetries: Focus = {
  name: "latest only, retries",
  onFailure: "skip",
  steps: { "fail more": 4, promote: 2 },
  keys: ["a"],
  severalChance: 0,
  line: { max: 1, drop: "oldest", as: "superseded" },
};

const interrupting: Focus = {
  name: "interrupts",
  onFailure: "block",
  steps: { "fail more": 2, kill: 2, yield: 1, wake: 0.5, "back off": 2, "pause for": 0.5 },
  keys: ["a", "b"],
  severalChance: 0,
  line: { max: 1, drop: "oldest", as: "superseded", interrupts: true },
};

const limitedKeys: Focus = {
  name: "limited keys",
  steps: { "window passes": 3, yield: 1, wake: 1, kill: 1, "send back": 0.5 },
  keys: ["a", "b"],
  severalChance: 0,
  rate: 2,
};

/**
 * A job that finds the line full and then loses its worker is failed by BullMQ, and may wait in line until its turn.
 */
const limitedFull: Focus = {
  name: "limited keys, full lines",
  steps: { add: 12, fetch: 12, "window passes": 5 },
  keys: ["a"],
  severalChance: 0,
  rate: 2,
  line: { max: 1, drop: "newest", as: "backlog" },
};

/** Operators set and remove the policy of a key. */
const policies: Focus = {
  name: "policies of keys",
  onFailure: "skip",
  steps: { "set policy": 3, "remove policy": 1.5, "window passes": 2, kill: 1, yield: 1, wake: 1 },
  keys: ["a"],
  severalChance: 0,
  hasLocks: true,
};

/** A key with several slots, whose jobs stall, vanish and go back. */
const severalSlots: Focus = {
  name: "several slots",
  steps: { kill: 2, "remove holder": 1.5, yield: 1, wake: 1, "send back": 1 },
  keys: ["a"],
  severalChance: 0,
  slots: 3,
  hasLocks: true,
};

/** When a key is paused, the jobs that have a slot and do not run go back, even the job that was just given a slot. */
const yieldedSlots: Focus = {
  name: "several slots, locks, pauses",
  steps: { yield: 3, wake: 2, "pause key": 2, "resume key": 3, remove: 1 },
  keys: ["a"],
  severalChance: 0,
  sameIdChance: 0.9,
  slots: 3,
  hasLocks: true,
};

const pausedSlots: Focus = {
  name: "several slots, pauses",
  steps: { "pause key": 1.5, "resume key": 2, "pause for": 2 },
  keys: ["a"],
  severalChance: 0,
  slots: 2,
};

const slotsOfSeveral: Focus = {
  name: "several slots of several keys",
  steps: {},
  keys: ["a", "b", "c"],
  severalChance: 0.6,
  slots: 2,
};

const limitedSlots: Focus = {
  name: "several slots, limited keys",
  steps: { "window passes": 3, yield: 3, wake: 2, kill: 1 },
  keys: ["a", "b"],
  severalChance: 0,
  rate: 3,
  slots: 2,
};

/** Few keys with many jobs each, and with more jobs than run at a time. */
const rotating: Focus = {
  name: "rotation",
  steps: { add: 9, fetch: 7, finish: 8, "fail more": 1 },
  keys: ["a", "b", "c", "d"],
  severalChance: 0,
  rotate: { weights: { a: 3 } },
};

const rotatingSlots: Focus = { ...rotating, name: "rotation of several slots", slots: 2 };

const rotatingFronts: Focus = {
  ...rotating,
  name: "rotation, LIFO jobs",
  steps: { ...rotating.steps, "add to front": 4 },
};

/** The job whose turn it was is gone, together with the rest of its key. */
const rotatingLoss: Focus = {
  ...rotating,
  name: "rotation, removed jobs",
  steps: { ...rotating.steps, "remove holder": 2, remove: 2, kill: 1 },
};

/** Operators set how many jobs may wait for a key. */
const SAYING = { "set policy": 3, "remove policy": 1 } as const;

const saidLines: Focus = {
  name: "lines that operators limit",
  steps: { ...SAYING, "pause for": 0.5, "fail more": 1 },
  keys: ["a"],
  severalChance: 0,
  says: ["maxWaiting"],
};

const saidLinesOfLatest: Focus = {
  ...latestOnly,
  name: "latest only, lines that operators limit",
  steps: { ...latestOnly.steps, ...SAYING },
  says: ["maxWaiting"],
};

/** A job that leaves a full line because of one key's policy also leaves the lines of its other keys. */
const rotatingFull: Focus = {
  ...rotating,
  name: "rotation, several keys, full lines",
  steps: { ...rotating.steps, ...SAYING },
  severalChance: 0.5,
  keys: ["a", "b", "c"],
  line: { max: 2, drop: "newest", as: "backlog" },
  says: ["maxWaiting"],
};

/** A job that a call has settled takes no turn: its key continues before other keys. */
const rotatingCalls: Focus = { ...rotating, name: "rotation, merged calls", keys: ["a", "b", "c"], merge: 5 };

const saidWeights: Focus = {
  ...rotating,
  name: "rotation, weights that operators say",
  steps: { ...rotating.steps, "set policy": 1, "remove policy": 0.5 },
  says: ["weight"],
};

const shortPauses: Focus = { ...timedPauses, name: "short pauses", steps: { "pause for": 4, wait: 6 } };

const haltedKeys: Focus = {
  name: "halted keys",
  onFailure: "halt",
  steps: { "fail more": 3, retry: 4, "resume key": 2 },
  keys: ["a"],
  severalChance: 0,
};

const limitedStalls: Focus = {
  name: "limited starts, stalled jobs",
  steps: { stall: 8, "lose holders": 2, "add to front": 4 },
  keys: ["a"],
  severalChance: 0,
  starts: 40,
};

const removedHolder: Focus = { name: "removed holder", steps: { "remove holder": 4 }, keys: ["a"], severalChance: 0 };

const lateRetry: Focus = {
  name: "late retry",
  onFailure: "skip",
  steps: { stall: 3, "late end": 5 },
  keys: ["a", "b"],
};

const contendedLocks: Focus = {
  name: "contended locks",
  steps: { "plain lock": 3, "plain unlock": 2, "lock lapses": 2, yield: 1, wake: 2 },
  keys: ["a", "b"],
  hasLocks: true,
};

const lateLocks: Focus = {
  name: "late ends with locks",
  steps: { stall: 3, "late end": 5 },
  keys: ["a", "b"],
  hasLocks: true,
};

const dueWhileYielding: Focus = {
  name: "due while yielding",
  steps: { yield: 4, wake: 4, promote: 8, "add to front": 1 },
  keys: ["a", "b", "c"],
  severalChance: 0,
};

const lostWhileYielding: Focus = { name: "lost while yielding", steps: { yield: 4, wake: 3, "lose holders": 1 } };

const finishedElsewhere: Focus = {
  name: "finished elsewhere",
  steps: { "finish elsewhere": 2 },
  keys: ["a"],
  severalChance: 0,
};

const finishedElsewhereOfTwo: Focus = {
  ...finishedElsewhere,
  name: "finished elsewhere, of two keys",
  steps: { "finish elsewhere": 4, "lose holders": 0.5 },
  keys: ["a", "b", "c"],
};

const lostWhileRunning: Focus = {
  name: "lost while running",
  steps: { "lose holders": 2, stall: 2, "late end": 3 },
  keys: ["a"],
  severalChance: 0,
};

const lostWhileFailing: Focus = {
  name: "lost while failing",
  onFailure: "halt",
  steps: { "fail more": 4, "lose holders": 1 },
  keys: ["a", "b"],
};

/** One call for all waiting jobs. */
const MERGED = { keys: ["a"], severalChance: 0, merge: 5 } as const;

const merged: Focus = {
  ...MERGED,
  name: "merged calls",
  steps: { kill: 1.5, stall: 1, "fail more": 1.5, retry: 1, remove: 1.5 },
  sameIdChance: 0.9,
};

/** More jobs than the lane looks at in one round. */
const mergedMany: Focus = { ...MERGED, name: "merged calls, many", merge: 100, burst: 60, steps: {} };

const mergedAgain: Focus = {
  ...MERGED,
  name: "merged calls, ids again",
  steps: { remove: 5 },
  sameIdChance: 1,
};

/** Each job is brought back until BullMQ fails it. */
const mergedStalls: Focus = {
  ...MERGED,
  name: "merged calls, stalled jobs",
  steps: { kill: 8, "lose holders": 2 },
};

const mergedRetries: Focus = { ...MERGED, name: "merged calls, retries", onFailure: "skip", steps: { retry: 2 } };

const mergedSeveral: Focus = {
  ...MERGED,
  name: "merged calls, several keys",
  steps: {},
  severalChance: 0.5,
  keys: ["a", "b"],
};

const mergedLimited: Focus = { ...MERGED, name: "merged calls, limited keys", steps: { "window passes": 2 }, rate: 2 };

const mergedSaid: Focus = {
  ...MERGED,
  name: "merged calls, lines that operators limit",
  steps: SAYING,
  says: ["maxWaiting"],
};

const mergedLost: Focus = {
  ...MERGED,
  name: "merged calls, lost holders",
  steps: { kill: 3, yield: 1.5, wake: 0.5, "lose holders": 1.5 },
};

const interruptsLost: Focus = {
  ...interrupting,
  name: "interrupts, lost holders",
  steps: { "back off": 3, "resume key": 2, "lose holders": 2 },
  keys: ["a"],
};

const lane = (find: string, replace: string): SourcePatch => ({
  file: "workers/src/scripts/lane.lua.ts",
  find,
  replace,
});

const limits = (find: string, replace: string): SourcePatch => ({
  file: "workers/src/scripts/lane/limits.lua.ts",
  find,
  replace,
});

const slots = (find: string, replace: string): SourcePatch => ({
  file: "workers/src/scripts/lane/slots.lua.ts",
  find,
  replace,
});

const line = (find: string, replace: string): SourcePatch => ({
  file: "workers/src/scripts/lane/line.lua.ts",
  find,
  replace,
});

const take = (find: string, replace: string): SourcePatch => ({
  file: "workers/src/scripts/lane/take.lua.ts",
  find,
  replace,
});

const fullLine = (find: string, replace: string): SourcePatch => ({
  file: "workers/src/scripts/lane/full-line.lua.ts",
  find,
  replace,
});

const parking = (find: string, replace: string): SourcePatch => ({
  file: "workers/src/scripts/lane/parking.lua.ts",
  find,
  replace,
});

const judge = (find: string, replace: string): SourcePatch => ({
  file: "workers/src/scripts/lane/judge.lua.ts",
  find,
  replace,
});

const rotation = (find: string, replace: string): SourcePatch => ({
  file: "workers/src/scripts/rotation.lua.ts",
  find,
  replace,
});

const commands = (find: string, replace: string): SourcePatch => ({
  file: "workers/src/scripts/commands.lua.ts",
  find,
  replace,
});

const keyLock = (find: string, replace: string): SourcePatch => ({
  file: "workers/src/scripts/key-lock.lua.ts",
  find,
  replace,
});

const locks = (find: string, replace: string): SourcePatch => ({
  file: "redlock-core/src/scripts/embedded.lua.ts",
  find,
  replace,
});

const batch = (find: string, replace: string): SourcePatch => ({
  file: "workers/src/job-run/rules/batch.ts",
  find,
  replace,
});

const operators = (find: string, replace: string): SourcePatch => ({
  file: "workers/src/scripts/operators.lua.ts",
  find,
  replace,
});

export const LANE_MUTATIONS: readonly LaneMutation[] = [
  {
    protection: "claim of a free key",
    without: "the key is taken from any job that holds it",
    patches: [
      lane(
        "if hasKeys(pin) and isSingle(pin) and try('HSETNX', HOLDERS, pin, id) == 1 and",
        "if hasKeys(pin) and isSingle(pin) and call('HSET', HOLDERS, pin, id) >= 0 and",
      ),
    ],
  },
  {
    protection: "a job waits for a busy key",
    without: "a job that is judged again ignores the holder",
    patches: [take("elseif isBusy(key, holder, isNew) or isAwaited(key) then", "elseif holder == PAUSED then")],
  },
  {
    protection: "a key is kept for its job",
    without: "only a job that a worker has locked keeps its key",
    patches: [
      lane(
        "return pinned(pin, key) and not finishedOn and not place",
        "return pinned(pin, key) and not finishedOn and not place and call('EXISTS', P .. id .. ':lock') == 1",
      ),
    ],
  },
  {
    protection: "the keys are stored with the job",
    without: "the keys of a job are unknown later",
    patches: [
      lane(
        "try('HSETNX', HOLDERS, pin, id) == 1 and type(try('HSET', P .. id, '${JOB.keys}', pin)) == 'number' then",
        "try('HSETNX', HOLDERS, pin, id) == 1 then",
      ),
    ],
  },
  {
    protection: "keys of removed holders are free",
    without: "a removed holder keeps its key forever",
    patches: [lane("return pinned(pin, key) and not finishedOn and not place", "return not finishedOn and not place")],
  },
  {
    protection: "keys of finished holders are free",
    without: "a job that was finished by a plain worker keeps its key",
    patches: [lane("and not finishedOn and not place", "and not place")],
    focus: finishedElsewhere,
  },
  {
    protection: "a new job inherits no key: when it is taken",
    without: "it has the keys of the removed job with the same ID",
    patches: [judge("      if not isKnown and hasKeys(pin) then disown(id, pin) end\n", "")],
    focus: holderAgain,
  },
  {
    protection: "a new job inherits no key: when its turn comes",
    without: "it has the keys of the removed job with the same ID",
    patches: [rotation("    if not stored then disown(id, pin) end\n", "")],
    focus: holderAgainInTurn,
  },
  {
    protection: "a new job inherits no key: with keys from a function",
    without: "it has the keys of the removed job with the same ID",
    patches: [operators(" == 1 and hasKeys(keys) then contended().disown", " == 1 and false then contended().disown")],
    focus: holderAgain,
  },
  {
    protection: "a new job inherits no further slot",
    without: "it has the slot of the removed job with the same ID",
    patches: [take("(holder == id or isShared(key)) and leaveSlot", "holder == id and leaveSlot")],
    focus: holderAgainWithSlots,
  },
  {
    protection: "the first in line goes first",
    without: "any job that is judged on a free key takes it",
    patches: [take("if head and head ~= id then", "if false then")],
  },
  {
    protection: "order within a line",
    without: "the last in line is next",
    patches: [
      line(
        "local head = call('ZRANGE', line(key), index, index, 'WITHSCORES')",
        "local head = call(call('ZSCORE', line(key), PAUSED) and 'ZRANGE' or 'ZREVRANGE', line(key), index, index, 'WITHSCORES')",
      ),
    ],
  },
  {
    protection: "place kept in line",
    without: "a job that is parked again goes to the end",
    patches: [parking("if not place then", "if true then")],
  },
  {
    protection: "removed jobs leave the line",
    without: "the key is given to a removed job",
    patches: [
      line(
        "if pinned(pin, key) and tonumber(place or 'x') == tonumber(head[2]) and not finishedOn then return id end",
        "if true then return id end",
      ),
    ],
  },
  {
    protection: "a place of a removed job with the same ID leaves the line",
    without: "the ID alone is compared",
    patches: [
      line(
        "if pinned(pin, key) and tonumber(place or 'x') == tonumber(head[2]) and not finishedOn then",
        "if pinned(pin, key) and not finishedOn then",
      ),
    ],
    focus: againAfterLoss,
  },
  {
    protection: "a released key is handed over",
    without: "a released key is free, and its line waits for timers",
    patches: [lane("if call('EXISTS', line(pin)) == 0 then", "if true then")],
  },
  {
    protection: "all keys of a job are handed over",
    without: "only one key is handed over",
    patches: [
      line(
        "for _, key in ipairs(keysOf(pin)) do\n      local holder = SLOTS == 1",
        "for _, key in ipairs({keysOf(pin)[1]}) do\n      local holder = SLOTS == 1",
      ),
    ],
    focus: severalKeys,
  },
  {
    protection: "only the holder hands a key over",
    without: "a job that lost its key hands it over again",
    patches: [lane("if holder ~= id then return end", ""), line("elseif holder == id then chosen", "else chosen")],
  },
  {
    protection: "unused keys of removed jobs are forgotten",
    without: "a removed job keeps its keys",
    patches: [operators("      contended().heal(key)\n      if firstSlot(key) then", "      if firstSlot(key) then")],
    focus: { name: "listed keys", steps: { "remove holder": 4, "list keys": 2 }, keys: ["a", "b"], severalChance: 0.3 },
  },
  {
    protection: "the next job of a key comes to the front",
    without: "it waits behind all other jobs",
    patches: [line("try('RPUSH', list, id)", "try('LPUSH', list, id)")],
    focus: twoLines,
  },
  {
    protection: "the next job comes to the front even if its timer has fired",
    without: "it stays at the end",
    patches: [line("    bullPromote(keys, {P, id})\n", "    if bullPromote(keys, {P, id}) ~= 0 then return end\n")],
    focus: dueWhileYielding,
  },
  {
    protection: "the next job is fetched with the end of a job",
    without: "it is fetched only if the queue had another job",
    patches: [lane("if chosen then return contended().fetch(nil, opts) end", "")],
  },
  {
    protection: "parked jobs have timers",
    without: "parked jobs wait for a hand-over only",
    patches: [parking("local delay = patience(rank)", "local delay = FAR")],
  },
  {
    protection: "the first in line has a short timer",
    without: "it keeps the timer of its old place",
    patches: [line("if following then", "if false then")],
    focus: removedHolder,
  },
  {
    protection: "only parked jobs get a timer",
    without: "a job that reuses the ID of a job in line loses its delay",
    patches: [line("local following = firstInLine(key)", "local following = call('ZRANGE', line(key), 0, 0)[1]")],
    focus: parkedAgain,
  },
  {
    protection: "a job leaves the line with its claim",
    without: "a running job is still in line",
    patches: [line("leaveLine(id, keys[i])", "")],
    focus: removedHolder,
  },
  {
    protection: "all keys of a job are judged",
    without: "only the first key is judged",
    patches: [
      take(
        "for i = 1, #keys do\n      local key = keys[i]\n      local holder",
        "for i = 1, 1 do\n      local key = keys[i]\n      local holder",
      ),
    ],
  },
  {
    protection: "all keys of a job are claimed",
    without: "only the first key is claimed",
    patches: [line("      takeSlot(id, keys[i])\n", "      if i == 1 then takeSlot(id, keys[i]) end\n")],
  },
  {
    protection: "all keys of the next job are free",
    without: "only the key that is handed over must be free",
    patches: [line("if keys[i] ~= key and not isNextOn(id, keys[i]) then", "if false then")],
  },
  {
    protection: "the next job is first on all of its keys",
    without: "its other keys need only be free",
    patches: [line("return not head or head == id", "return true")],
  },
  {
    protection: "a free key waits for the first in line",
    without: "a parked job with several keys leaves no mark on them",
    patches: [parking("if #keys > 1 or RATE or ROTATE then call('HSETNX', HOLDERS, keys[i], NEXT) end", "")],
  },
  {
    protection: "a handed-over key waits for the first in line",
    without: "the key is free if the first in line cannot run yet",
    patches: [line("mark(key, NEXT) return end", "call('HDEL', HOLDERS, key) return end")],
    focus: severalKeys,
  },
  {
    protection: "a parked job is not active",
    without: "a parked job still counts as active",
    patches: [parking("leave({'LREM', P .. 'active', 1, id}, back)", "")],
  },
  {
    protection: "a parked job has no lock",
    without: "a parked job stays locked",
    patches: [parking("call('DEL', P .. id .. ':lock')", "")],
  },
  {
    protection: "parking is no start",
    without: "parking counts as a start",
    patches: [parking("    uncount(id)\n    if isLimited", "    if isLimited")],
  },
  {
    protection: "parking returns the limiter's token",
    without: "parking costs a token of the limiter",
    patches: [parking("then call('DECR', P .. 'limiter') end", "then call('EXISTS', P .. 'limiter') end")],
    focus: limited,
  },
  {
    protection: "parking returns only a token that BullMQ has counted",
    without: "a job that stalled too often, which costs no token, returns one",
    patches: [
      parking(
        "    if not COUNTS_FAILED and call('HEXISTS', P .. id, '${BULL.deferredFailure}') == 1 then return false end\n",
        "",
      ),
    ],
    focus: limitedStalls,
  },
  {
    protection: "a process that lost its job passes no key on (finish)",
    without: "BullMQ's refusal is ignored",
    patches: [
      commands(
        "attempt(contended().takeBack, next, pin) end\nif type(reply) == 'number' and reply < 0 then return reply end",
        "attempt(contended().takeBack, next, pin) end",
      ),
    ],
    focus: lateRetry,
  },
  {
    protection: "a job put in front meanwhile is not parked",
    without: "the job that is now in front is parked instead of the judged one",
    patches: [judge("{'LREM', P .. 'wait', -1, id} or", "{'RPOP', P .. 'wait'} or")],
    focus: finishedElsewhereOfTwo,
  },
  {
    protection: "only the holder puts the next job in front",
    without: "a process that lost its job puts the next job of the key in front",
    patches: [
      lane(
        "if not isHolder then return false, false end",
        "if not isHolder then return false, hasKeys(pin) and isSingle(pin) and call('EXISTS', line(pin)) == 1 end",
      ),
    ],
    focus: lostWhileRunning,
  },
  {
    protection: "a paused key is not handed over",
    without: "the mark of the pause is skipped",
    patches: [
      parking(
        "local id, following = heads[1], heads[3]\n    if not id or id == PAUSED then return end",
        "if heads[1] == PAUSED then heads = call('ZRANGE', line(key), 1, 2, 'WITHSCORES') end\n    local id, following = heads[1], heads[3]\n    if not id then return end",
      ),
    ],
    focus: pausedKeys,
  },
  {
    protection: "a chosen job that BullMQ did not fetch goes back in line",
    without: "it waits in front of the queue, outside its line",
    patches: [commands("if next and not isNext then attempt(contended().takeBack, next, pin) end\n", "")],
    focus: limited,
  },
  {
    protection: "only the first in line is put in front",
    without: "any job that now has its ID is put in front",
    patches: [
      parking(
        "if pin ~= key or tonumber(place or 'x') ~= tonumber(heads[2]) or isOdd then return end",
        "if isOdd then return end",
      ),
    ],
    focus: parkedAgain,
  },
  {
    protection: "a halted key is not handed over",
    without: "the next job of the key is put in front although the failure stops the key",
    patches: [commands("local mayFetch = ARGV[6] == '1' and not stops", "local mayFetch = ARGV[6] == '1'")],
    focus: haltedKeys,
  },
  {
    protection: "a job parked before the fetch is noticed",
    without: "the key is free although a job was parked before the fetch",
    patches: [
      lane("if slow then slow.sift(ending) end", "contended().sift(ending)"),
      commands(
        "and not isWanted and not stops and not (slow and (SLOTS > 1 or parkedFor[pin])) then",
        "and not isWanted then",
      ),
    ],
    focus: severalKeys,
  },
  {
    protection: "the next job holds the key",
    without: "the key stays with the job that has ended",
    patches: [parking("call('HSET', HOLDERS, key, id)\n    local fields", "local fields")],
  },
  {
    protection: "the next job leaves the line",
    without: "it keeps its place in line",
    patches: [
      parking(
        "call('HDEL', P .. id, '${JOB.place}', '${JOB.parkedAt}', by and '${BULL.processedBy}' or '${JOB.place}')",
        "",
      ),
    ],
  },
  {
    protection: "a job whose timer has fired is not in the queue twice",
    without: "it is put in front although it is already waiting",
    patches: [parking("    if left ~= 1 then\n      -- The timer", "    if left == nil then\n      -- Its timer")],
    focus: dueWhileYielding,
  },
  {
    protection: "the job behind the next one is judged soon",
    without: "the timer of the next in line is unchanged",
    patches: [parking("if following and tonumber(", "if false and tonumber(")],
    focus: finishedElsewhere,
  },
  {
    protection: "only the holder passes a lock on",
    without: "the next job gets the lock from any holder",
    patches: [locks("if holderOfLock(key) ~= token or isWaitedFor(key)", "holderOfLock(key) if isWaitedFor(key)")],
    focus: contendedLocks,
  },
  {
    protection: "a waiter for a lock goes before the next job of the key",
    without: "the lock is passed on before the waiter",
    patches: [locks("if holderOfLock(key) ~= token or isWaitedFor(key)", "if holderOfLock(key) ~= token")],
    focus: contendedLocks,
  },
  {
    protection: "a process that lost its job passes no key on (delay)",
    without: "BullMQ's refusal is ignored",
    patches: [
      commands(
        "local reply = bullMoveToDelayed(KEYS, ARGV)\nif type(reply) == 'number' and reply < 0 then return reply end",
        "local reply = bullMoveToDelayed(KEYS, ARGV)",
      ),
    ],
    focus: lateRetry,
  },
  {
    protection: "a process that lost its job passes no key on (retry)",
    without: "BullMQ's refusal is ignored",
    patches: [commands("if reply == 0 and SKIP then", "if SKIP then")],
    focus: lateRetry,
  },
  {
    protection: "skip: the key moves on during a backoff",
    without: "the key waits",
    patches: [commands("elseif not refusal and (SKIP or ARGV[6] == '1') then", "elseif ARGV[6] == '1' then")],
    focus: retriedKeys,
  },
  {
    protection: "skip: the key moves on at a retry without backoff",
    without: "the key waits",
    patches: [commands("if reply == 0 and SKIP then", "if false then")],
    focus: retriedKeys,
  },
  {
    protection: "block: the key waits during a backoff",
    without: "the key moves on",
    patches: [commands("elseif not refusal and (SKIP or ARGV[6] == '1') then", "elseif not refusal then")],
  },
  {
    protection: "block: the key waits for a retry without backoff",
    without: "the key moves on",
    patches: [commands("if reply == 0 and SKIP then", "if reply == 0 then")],
    focus: pausedKeys,
  },
  {
    protection: "a final failure halts the key",
    without: "the key moves on after a final failure",
    patches: [commands("if stops and hasKeys(pin) then", "if false then")],
    focus: haltedKeys,
  },
  {
    protection: "only the holder halts a key",
    without: "a job that lost its key halts the key",
    patches: [limits("if slotOf(id, key) then\n        call('ZADD'", "do\n        call('ZADD'")],
    focus: lostWhileFailing,
  },
  {
    protection: "a delay by the processor frees the key",
    without: "the key waits for the job",
    patches: [commands("elseif not refusal and (SKIP or ARGV[6] == '1') then", "elseif SKIP then")],
    focus: delayedRuns,
  },
  {
    protection: "waiting for children frees the key",
    without: "the key waits for the job",
    patches: [
      lane("== 1 or not call('ZSCORE', P .. 'waiting-children', id)\n        and (", "== 1 or ("),
      commands("if reply == 0 then attempt(release, ARGV[4]) end", ""),
    ],
  },
  {
    protection: "a job keeps its keys while it waits for their lock",
    without: "the key moves on",
    patches: [
      commands(
        "  attempt(call, 'HSET', P .. id, '${JOB.lockPlace}', place, field, since ~= '' and since or place)\n",
        "  attempt(call, 'HSET', P .. id, '${JOB.lockPlace}', place, field, since ~= '' and since or place)\n  chosen = release(id)\n",
      ),
    ],
  },
  {
    protection: "a job keeps its place in line for the lock",
    without: "the place is forgotten",
    patches: [
      commands(
        "  attempt(call, 'HSET', P .. id, '${JOB.lockPlace}', place, field, since ~= '' and since or place)\n",
        "",
      ),
    ],
  },
  {
    protection: "waiting for a lock counts no start",
    without: "it counts as a start",
    patches: [commands("  attempt(contended().uncount, id)\n", "")],
  },
  {
    protection: "the holder of a paused key waits",
    without: "the job that holds the key starts again",
    patches: [
      take("known == id and not limitedFor(pin, id) and not pausedFor(pin)", "known == id and not limitedFor(pin, id)"),
    ],
    focus: pausedKeys,
  },
  {
    protection: "the holder of a paused key goes first afterwards",
    without: "it goes to the end of the line",
    patches: [parking("(isFirst and (placeOfChosen(id, keys) or frontPlace(keys)))", "false")],
    focus: pausedKeys,
  },
  {
    protection: "the job that halted a key goes first: in the queue",
    without: "retried manually, it keeps its place in the queue",
    patches: [operators("  if failed then", "  if false then")],
    focus: haltedKeys,
  },
  {
    protection: "the job that halted a key goes first: in line",
    without: "retried manually, it goes to the end of the line",
    patches: [take("isFirst = isFirst or (holder == PAUSED and haltedBy(key) == id)", "isFirst = isFirst")],
    focus: haltedKeys,
  },
  {
    protection: "a pause has a mark in the line",
    without: "the pause ends with the running job",
    patches: [limits("call('ZADD', line(key), ends and", "call('HSET', P .. 'lane:paused', key, ends and")],
  },
  {
    protection: "a free key can be paused",
    without: "the next job takes the key",
    patches: [operators("then\n    call('HSET', HOLDERS, key, PAUSED)", "then\n    call('EXISTS', key)")],
  },
  {
    protection: "a pause lasts until its end",
    without: "it ends at the first check",
    patches: [limits("    if left > 0 then return left end\n", "")],
    focus: timedPauses,
  },
  {
    protection: "a pause ends by itself",
    without: "it lasts until an operator ends it",
    patches: [limits("ends and string.format('%.0f', ends - PAUSE_BASE) or '-inf', PAUSED)", "'-inf', PAUSED)")],
    focus: timedPauses,
  },
  {
    protection: "the first in line is due when a pause ends",
    without: "it is judged when its timer fires",
    patches: [
      parking("if isTimed then delay = math.min(left, FAR) + 1 end", ""),
      parking("if isTimed then judgeIn(left, id) end", ""),
    ],
    focus: { ...timedPauses, steps: { ...timedPauses.steps, "back off": 0 } },
  },
  {
    protection: "a pause sets the timer of the job that already waits",
    without: "this job is judged when its old timer fires",
    patches: [
      line(
        "    local id = left and jobAt(key, 1)\n    if id then judgeIn(left, id) end",
        "    local id = left and jobAt(key, 1)\n    if id then call('EXISTS', id) end",
      ),
    ],
    focus: shortPauses,
  },
  {
    protection: "a key whose pause has ended belongs to the first in line",
    without: "it stays with the pause",
    patches: [limits("if call('HGET', HOLDERS, key) == PAUSED then call('HSET', HOLDERS, key, NEXT) end\n", "")],
    focus: timedPauses,
  },
  {
    protection: "a longer pause is kept",
    without: "the last pause counts",
    patches: [limits("if not left or ms > left then", "if true then")],
    focus: timedPauses,
  },
  {
    protection: "a full line takes no more jobs: when a job is taken",
    without: "the job joins the line",
    patches: [fullLine("if max and not isOldest and isFull(keys[i], max, 0) then return keys[i] end", "")],
    focus: fullLines,
  },
  {
    protection: "a full line takes no more jobs: when the queue is sifted",
    without: "the job joins the line",
    patches: [judge(" or (not place and not isFirst and turnedAway(pin, firstFailure)) then", " then")],
    focus: fullLines,
  },
  {
    protection: "a job in line keeps its place when the line is full",
    without: "the job fails",
    patches: [judge("if not wasParked and not isFirst then full, by =", "if true then full, by =")],
    focus: { ...fullLines, name: "full lines, paused keys", steps: { promote: 3, "pause for": 2 } },
  },
  {
    protection: "the first job in a full line leaves it",
    without: "the line grows",
    patches: [parking("dropOldest(id, pin, keys)\n      interrupt(", "interrupt(")],
    focus: latestOnly,
  },
  {
    protection: "a job that left a full line does not return",
    without: "it is sifted, and waits behind the newer job",
    patches: [judge("if refusal then return false end", "")],
    focus: latestOnly,
  },
  {
    protection: "a newer job interrupts the holder of its key",
    without: "it waits for the holder",
    patches: [parking("dropOldest(id, pin, keys)\n      interrupt(id, pin, keys)", "dropOldest(id, pin, keys)")],
    focus: interrupting,
  },
  {
    protection: "a superseded job stays superseded until it has ended",
    without: "it runs again when its worker dies",
    patches: [
      judge(
        "if not remains then call('HDEL', P .. id, '${JOB.refusal}', '${JOB.parkedAt}') end",
        "call('HDEL', P .. id, '${JOB.refusal}', '${JOB.parkedAt}')",
      ),
    ],
    focus: interrupting,
  },
  {
    protection: "a superseded job that waits for its retry is taken next",
    without: "its key waits for the retry",
    patches: [fullLine("\n        promoteToFront(holder)\n", "\n")],
    focus: interrupting,
  },
  {
    protection: "a job that gets its key while it joins the line is not interrupted by itself",
    without: "it is superseded, and no job runs instead",
    patches: [fullLine("holder == id or ", "")],
    focus: {
      ...interrupting,
      name: "interrupts, rotation, lost holders",
      steps: { add: 9, "lose holders": 1.5 },
      rotate: { weights: {} },
    },
  },
  {
    protection: "a job is interrupted only by a job with the same keys",
    without: "any shared key is enough",
    patches: [fullLine("if stored ~= pin then return end", "")],
    focus: { ...interrupting, name: "interrupts, several keys", severalChance: 0.5 },
  },
  {
    protection: "a job is superseded only by a job with the same keys",
    without: "any shared key is enough",
    patches: [fullLine("if oldest == id or (DROPPED == 'superseded' and own ~= pin) then", "if oldest == id then")],
    focus: { ...latestOnly, name: "latest, several keys", keys: ["a", "b"], severalChance: 0.5 },
  },
  {
    protection: "the mark of a pause that has ended is not a job in line",
    without: "the mark is counted",
    patches: [
      fullLine(
        "    local mark = pausedFor(key) and 1 or 0\n    return call('ZCARD', line(key)) - more - mark >= max",
        "    local waiting = call('ZCARD', line(key)) - more\n    return waiting > max or not pausedFor(key)",
      ),
    ],
    focus: { ...fullLines, name: "full lines, paused keys", steps: { "pause for": 3, "resume key": 1 } },
  },
  {
    protection: "the mark of a pause is not a job in line",
    without: "the mark is counted",
    patches: [fullLine("local mark = pausedFor(key) and 1 or 0", "local mark = 0")],
    focus: { ...fullLines, name: "full lines, paused keys", steps: { "pause for": 3, "resume key": 1 } },
  },
  {
    protection: "a key has no more jobs than slots",
    without: "one more job runs",
    patches: [slots(">= capacity(key) then", "> capacity(key) then")],
    focus: severalSlots,
  },
  {
    protection: "a job keeps its further slot until it ends",
    without: "only the first slot is kept",
    patches: [slots("if slots[i + 1] == id then return tonumber(slots[i]) end", "")],
    focus: severalSlots,
  },
  {
    protection: "a further slot of a missing job is free",
    without: "the slot is taken forever",
    patches: [slots("or holds(slots[i + 1], key) then taken", "or true then taken")],
    focus: severalSlots,
  },
  {
    protection: "a job that has a slot gets no other slot",
    without: "it gets another slot",
    patches: [slots("      if slotOf(id, key) then return end\n", "")],
    focus: pausedSlots,
  },
  {
    protection: "the first slot stays taken while others are free",
    without: "the next job takes the first slot",
    patches: [
      slots("      if isFirstTaken(key) then\n        local number", "      if false then\n        local number"),
    ],
    focus: severalSlots,
  },
  {
    protection: "a mark takes no slot",
    without: "a pause replaces the holder of the first slot",
    patches: [
      slots(
        "if not isShared(key) or not isFirstTaken(key) then call('HSET', HOLDERS, key, why) end",
        "call('HSET', HOLDERS, key, why)",
      ),
    ],
    focus: pausedSlots,
  },
  {
    protection: "a key whose line is empty is kept for its other slots",
    without: "the key is forgotten with the first job that ends",
    patches: [
      slots("    if isShared(key) and isFirstTaken(key) then return end\n", ""),
      slots("local isTaken = next(taken) ~= nil", "local isTaken = false"),
    ],
    focus: severalSlots,
  },
  {
    protection: "a key with taken slots is kept when the job in its first slot ends",
    without: "any job can take the key",
    patches: [lane("call('EXISTS', line(pin), furtherSlots(pin)) > 0", "call('EXISTS', line(pin)) > 0")],
    focus: severalSlots,
  },
  {
    protection: "one job of a key is chosen at a time",
    without: "all jobs that may run are chosen, and the last one is in front",
    patches: [line("    if isAwaited(key) then return mark(key, NEXT) end\n", "")],
    focus: { ...pausedSlots, name: "three slots, pauses", slots: 3 },
  },
  {
    protection: "no job behind passes a chosen job",
    without: "the end of another job chooses the job behind it",
    patches: [parking("or isAwaited(key) then return end\n    local heads", "then return end\n    local heads")],
    focus: { ...severalSlots, name: "several slots, priorities", steps: { fail: 2 } },
  },
  {
    protection: "no job is chosen until a fetched job is judged",
    without: "the next job is chosen although the fetched job goes back",
    patches: [slots("id ~= FETCHED and call('EXISTS'", "call('EXISTS'")],
    focus: {
      ...slotsOfSeveral,
      name: "several slots of several keys, pauses",
      steps: { "pause for": 4, wait: 4 },
      keys: ["a", "b"],
    },
  },
  {
    protection: "a new job does not pass a chosen job",
    without: "it takes a free slot",
    patches: [
      take("elseif isBusy(key, holder, isNew) or isAwaited(key) then", "elseif isBusy(key, holder, isNew) then"),
    ],
    focus: {
      ...latestOnly,
      name: "several slots, latest only",
      steps: { "back off": 2, "window passes": 3 },
      slots: 2,
    },
  },
  {
    protection: "the next job is chosen when the previous job is taken",
    without: "it waits for a released slot",
    patches: [take("if call('EXISTS', line(keys[i])) == 1 then heal(keys[i], id)", "if false then heal(keys[i], id)")],
    focus: pausedSlots,
  },
  {
    protection: "a resumed key fills its further slots",
    without: "the slots wait for timers",
    patches: [
      operators(
        "contended().heal(key)\n  return wasPaused",
        "if holder == PAUSED or holder == NEXT then contended().heal(key) end\n  return wasPaused",
      ),
    ],
    focus: pausedSlots,
  },
  {
    protection: "slots of several keys are released together",
    without: "they are released one by one, and a key is not passed on",
    patches: [
      line(
        "if isShared(key) then freed[#freed + 1] = leaveSlot(id, key)",
        "if isShared(key) then if leaveSlot(id, key) then chosen = heal(key) or chosen end",
      ),
    ],
    focus: slotsOfSeveral,
  },
  {
    protection: "each slot has its own lock",
    without: "all slots have the key's lock",
    patches: [keyLock("(slot and '\\\\31' .. slot or '')", "''")],
    focus: severalSlots,
  },
  {
    protection: "a start is recorded with its job",
    without: "a job that goes back removes the last start of the key",
    patches: [limits("if whose == id or not whose then", "if true then")],
    focus: limitedSlots,
  },
  {
    protection: "a start that is removed lets another job run",
    without: "that job waits for the end of the window",
    patches: [take("        if isShared(key) then heal(key) end\n", "")],
    focus: limitedSlots,
  },
  {
    protection: "a start counts against the rate",
    without: "any number of starts may follow",
    patches: [judge("if hasKeys(pin) and not isOver and not outcome then countStart(id, pin) end", "")],
    focus: limitedKeys,
  },
  {
    protection: "a start with the end of the previous job counts against the rate",
    without: "it does not count",
    patches: [parking("    if not outcome and not isOver then countStart(id, key) end\n", "")],
    focus: limitedKeys,
  },
  {
    protection: "a job that BullMQ ends without a run is no start, with the end of the previous job",
    without: "it counts as a start",
    patches: [parking("if not outcome and not isOver then countStart", "if not outcome then countStart")],
    focus: limitedFull,
  },
  {
    protection: "a limited key's next job is not fetched with the end of the previous job",
    without: "it is fetched",
    patches: [parking("if not freeSlot(key, false) or limitedFor(key) or isAwaited(key)", "if isAwaited(key)")],
    focus: limitedKeys,
  },
  {
    protection: "a free limited key is not taken",
    without: "the next job that arrives takes the key",
    patches: [take("        local left = limitedFor(pin, id)\n        if left then", "        if false then")],
    focus: limitedKeys,
  },
  {
    protection: "a limited key is not taken by the first in line",
    without: "any job that is judged again takes the key",
    patches: [take("free = free and not closed", "")],
    focus: limitedKeys,
  },
  {
    protection: "a holder that starts again is limited",
    without: "it may start at any time",
    patches: [take("closed = pausedFor(key) or limitedFor(key, id)", "closed = pausedFor(key)")],
    focus: limitedKeys,
  },
  {
    protection: "the next job of a limited key is due when it may run",
    without: "it is judged when its timer fires",
    patches: [
      line("      judgeIn(left, id)\n      return", "      return"),
      parking("if isTimed then delay = math.min(left, FAR) + 1 end", ""),
      parking("if isTimed then judgeIn(left, id) end", ""),
    ],
    focus: limitedKeys,
  },
  {
    protection: "a new job of a limited key joins the line",
    without: "a later job takes the key when the key is free",
    patches: [parking("if #keys > 1 or RATE or", "if #keys > 1 or")],
    focus: limitedKeys,
  },
  {
    protection: "a job that goes back before its start costs no start",
    without: "it costs a start",
    patches: [commands("  attempt(contended().uncountStart, id)\n", "")],
    focus: limitedKeys,
  },
  {
    protection: "a job that BullMQ ends without a run costs no start",
    without: "it costs a start",
    patches: [judge("if hasKeys(pin) and not isOver and not outcome then", "if hasKeys(pin) then")],
    focus: { ...limitedKeys, name: "limited keys, stalled jobs", steps: { ...limitedKeys.steps, kill: 6 } },
  },
  {
    protection: "old starts of a key expire",
    without: "they are kept forever",
    patches: [limits("        call('PEXPIRE', startsOf(key), ms)\n", "")],
    focus: limitedKeys,
  },
  {
    protection: "a job that backs off pauses its keys",
    without: "the key goes to the next job",
    patches: [parking("if slotOf(id, keys[i]) then pause(", "if false then pause(")],
    focus: timedPauses,
  },
  {
    protection: "a job that backs off goes first afterwards",
    without: "it goes to the end of the line",
    patches: [
      parking(
        "    local place = frontPlace(keys)\n    for i = 1, #keys do call('ZADD', line(keys[i]), place, id) end\n    call('HSET', P .. id, '${JOB.place}', place, '${BULL.processedBy}'",
        "    local place = call('INCR', P .. 'lane:seq')\n    for i = 1, #keys do call('ZADD', line(keys[i]), place, id) end\n    call('HSET', P .. id, '${JOB.place}', place, '${BULL.processedBy}'",
      ),
    ],
    focus: timedPauses,
  },
  {
    protection: "backing off counts no start",
    without: "it counts as a start",
    patches: [parking("    uncount(id)\n    local pin", "    local pin")],
    focus: timedPauses,
  },
  {
    protection: "a resumed key is passed on",
    without: "its line waits for timers",
    patches: [operators("contended().heal(key)\n  return wasPaused", "return wasPaused")],
    focus: pausedKeys,
  },
  {
    protection: "only a job that has its keys is woken",
    without: "any named job is put in front",
    patches: [operators("if not contended().slotOf(id, key) then return 0 end", "")],
    focus: lostWhileYielding,
  },
  {
    protection: "only a job that waits for its lock is woken",
    without: "a retry runs before its time",
    patches: [operators("or call('HEXISTS', P .. id, '${JOB.lockPlace}') == 0 then", "then")],
  },
  {
    protection: "a job's lock is acquired only if free",
    without: "the lock is taken from any holder",
    patches: [locks("'PX', ttl, 'NX')", "'PX', ttl)")],
    focus: contendedLocks,
  },
  {
    protection: "waiters for a lock go first",
    without: "a job acquires the lock before them",
    patches: [locks("  if isWaitedFor(key) then return end\n", "")],
    focus: contendedLocks,
  },
  {
    protection: "a fencing token is greater than the stored one",
    without: "the token is the node's time, whatever was granted",
    patches: [locks("if last and last >= number then", "if false then")],
    focus: contendedLocks,
  },
  {
    protection: "token compare at the end of a job",
    without: "the lock of the job's key is deleted, whatever its token",
    patches: [locks("return holderOfLock(key) == token and not", "holderOfLock(key) return not")],
    focus: contendedLocks,
  },
  {
    protection: "a lock with waiters is handed over",
    without: "it is deleted, and no waiter is notified",
    patches: [locks("not isWaitedFor(key) and ", "")],
    focus: contendedLocks,
  },
  {
    protection: "a worker is notified that its lock was not released",
    without: "the worker believes that the lock was released",
    patches: [lane("isKept and 1 or 0", "0")],
    focus: contendedLocks,
  },
  {
    protection: "a place in line for a lock is used",
    without: "the lock is acquired with the job",
    patches: [
      judge(
        "reply[${REPLY.fencingToken}] = not place and lockOf(pin, TOKEN, reply[${REPLY.slots}])",
        "reply[${REPLY.fencingToken}] = lockOf(pin, TOKEN)",
      ),
    ],
    focus: contendedLocks,
  },
  {
    protection: "several locks are acquired one by one",
    without: "a single lock is acquired, named like all of them",
    patches: [
      keyLock("or not hasKeys(pin) or not isSingle(pin) then return false", "or not hasKeys(pin) then return false"),
    ],
  },
  {
    protection: "the end of a lost job releases no lock",
    without: "a process that lost the job releases its lock",
    patches: [
      commands(
        "local reply = bullMoveToFinished(KEYS, ARGV)",
        "if ownToken ~= '' and pin then unlock(pin, ownToken) end\nlocal reply = bullMoveToFinished(KEYS, ARGV)",
      ),
    ],
    focus: lateLocks,
  },
  {
    protection: "a key with a policy keeps its mark when it is free",
    without: "the next job takes the key without a check",
    patches: [slots("if policy or isTaken then call('HSET'", "if isTaken then call('HSET'")],
    focus: policies,
  },
  {
    protection: "the end of a job keeps the mark of a policy",
    without: "the key is forgotten",
    patches: [
      lane("  if POLICIES[pin] then return true, true end\n", ""),
      lane("    if not POLICIES[pin] then\n      if holder ~= id", "    if true then\n      if holder ~= id"),
    ],
    focus: policies,
  },
  {
    protection: "no job starts while a key has more jobs than its limit",
    without: "any job that has a slot starts",
    patches: [
      take("if closed or isOver(id, key) then", "if closed then"),
      take("and not pausedFor(pin) and not isOver(id, pin) then", "and not pausedFor(pin) then"),
    ],
    focus: policies,
  },
  {
    protection: "if a key has more jobs than its limit, the last chosen job goes back",
    without: "the job that is taken first goes back",
    patches: [slots("if chosen and chosen ~= id and isAwaited(key) then count = count - 1 end", "")],
    focus: policies,
  },
  {
    protection: "the end of a job fetches no other job while the key has more jobs than its limit",
    without: "it fetches the next job",
    patches: [parking("if not freeSlot(key, false) or limitedFor", "if limitedFor")],
    focus: policies,
  },
  {
    protection: "further slots are checked after the policy is removed, until they are free",
    without: "they are forgotten",
    patches: [operators("call('EXISTS', furtherSlots(key)) == 1 then", "false then")],
    focus: policies,
  },
  {
    protection: "the rest of a removed policy is deleted with the last further slot",
    without: "it is kept forever",
    patches: [slots("if policy and not isTaken and next(policy) == nil then", "if false then")],
    focus: policies,
  },
  {
    protection: "slots that a policy adds are filled immediately",
    without: "they wait for the end of a job",
    patches: [operators("lane.heal(key)\n  return hadPolicy", "return hadPolicy")],
    focus: policies,
  },
  {
    protection: "a job that was chosen for the only slot is taken before the next job is chosen for another",
    without: "the next job is put in front of it",
    patches: [operators("    call('HSET', CHOSEN, key, holder)\n", "")],
    focus: {
      ...policies,
      name: "policies of keys, pauses",
      steps: { ...policies.steps, "pause key": 2, "resume key": 3 },
    },
  },
  {
    protection: "the chosen job is forgotten with the policy",
    without: "it is kept forever",
    patches: [operators("  if SLOTS == 1 then call('HDEL', CHOSEN, key) end\n", "")],
    focus: {
      ...policies,
      name: "policies of keys, pauses",
      steps: { ...policies.steps, "pause key": 2, "resume key": 3 },
    },
  },
  {
    protection: "the end of a job in a further slot releases that slot's lock",
    without: "if only a policy has given the key several slots, the lock of the first slot is released",
    patches: [commands("(SLOTS > 1 or POLICIES[pin]) and not isHolder", "SLOTS > 1 and not isHolder")],
    focus: policies,
  },
  {
    protection: "the rate of a policy applies",
    without: "the rate of the options applies",
    patches: [limits("if policy and policy.rate then", "if false then")],
    focus: policies,
  },
  {
    protection: "the limit of a line in a policy applies",
    without: "the limit of the options applies",
    patches: [limits("if policy and policy.maxWaiting then", "if false then")],
    focus: saidLines,
  },
  {
    protection: "a policy says which job leaves a full line",
    without: "the newest job leaves",
    patches: [limits("MAY_DROP_OLDEST and policy.maxWaiting.drop == 'oldest'", "false")],
    focus: saidLines,
  },
  {
    protection: "with merged calls, the first in line stays whatever a policy says",
    without: "it fails, and may be in a call",
    patches: [limits("MAY_DROP_OLDEST and policy.maxWaiting.drop", "policy.maxWaiting.drop")],
    focus: mergedSaid,
  },
  {
    protection: "with whenBusy latest, a policy lets no second job wait",
    without: "it lets a second job wait",
    patches: [limits("local policy = MAY_LIMIT and policyOf(key)", "local policy = policyOf(key)")],
    focus: saidLinesOfLatest,
  },
  {
    protection: "no job passes a job with several keys that finds a line full",
    without: "a job with another one of its keys does",
    patches: [rotation("(keys and #keys > 1 and MOST_PASSED or 1)", "1")],
    focus: rotatingFull,
  },
  {
    protection: "a job behind one that was skipped because of a full line is skipped",
    without: "it joins the line as soon as the line has room",
    patches: [rotation("if passedOf[keys[i]] then", "if false then")],
    focus: rotatingFull,
  },
  {
    protection: "the weight of a policy applies",
    without: "the weight of the options applies",
    patches: [rotation("policy and policy.weight or WEIGHTS[key] or 1", "WEIGHTS[key] or 1")],
    focus: saidWeights,
  },
  {
    protection: "operators see no missing job in a further slot",
    without: "they see it until the slot is needed",
    patches: [
      slots(
        "local found, taken = {}, takenSlots(key)",
        "local found, taken, all = {}, {}, call('HGETALL', furtherSlots(key))\n    for i = 1, #all, 2 do taken[tonumber(all[i])] = all[i + 1] end",
      ),
    ],
    focus: {
      ...pausedSlots,
      name: "several slots, pauses, removed jobs",
      steps: { "pause key": 2, "resume key": 2, "remove holder": 2, "list keys": 3, kill: 2 },
    },
  },
  {
    protection: "a chosen job that goes back stays behind jobs that were handed out",
    without: "the job that goes back last is first",
    patches: [parking("(placeOfChosen(id, keys) or frontPlace(keys))", "frontPlace(keys)")],
    focus: yieldedSlots,
  },
  {
    protection: "a job that was handed out, chosen again and goes back stays before a job that was only chosen",
    without: "their IDs decide the order",
    patches: [line("return call('ZCOUNT', line(keys[i]), 0, 0) == 0 and '0'", "return '0'")],
    focus: yieldedSlots,
  },
  {
    protection: "each job of a call has its own outcome",
    without: "all complete with the call's result",
    patches: [batch("this.#ends.get(String(job.id)) ?? { value: returned }", "{ value: returned }")],
    focus: merged,
  },
  {
    protection: "a job that its call has failed fails",
    without: "it completes",
    patches: [
      batch('if (!("error" in outcome)) return outcome.value;', "return (outcome as { value: unknown }).value;"),
    ],
    focus: merged,
  },
  {
    protection: "the job whose call has settled a job is reported",
    without: "no job is reported",
    patches: [batch("{ ...outcome, by }", "outcome")],
    focus: merged,
  },
  {
    protection: "the call of a lost job gets no other jobs",
    without: "jobs that wait for the next call are in two calls",
    patches: [operators(" and call('GET', P .. id .. ':lock') == token\n  if not isOurs or", "\n  if not isOurs or")],
    focus: merged,
  },
  {
    protection: "a call whose job has lost its key gets no other jobs",
    without: "jobs that wait for the next call are in two calls",
    patches: [operators("isSingle(pin) and call('HGET', HOLDERS, pin) == id and", "isSingle(pin) and")],
    focus: mergedLost,
  },
  {
    protection: "jobs that were never judged are in a call",
    without: "only jobs in line are in a call",
    patches: [operators("not quietly(contended().sift)", "true")],
    focus: merged,
  },
  {
    protection: "a call has more jobs than one page",
    without: "jobs behind the first page wait for the next call",
    patches: [operators("for _ = 1, most, 50 do", "for _ = 1, 1 do")],
    focus: mergedMany,
  },
  {
    protection: "a call has the jobs behind a missing job",
    without: "it ends at the missing job",
    patches: [operators("contended().jobAt(pin, index)", "call('ZRANGE', line(pin), index, index)[1]")],
    focus: merged,
  },
  {
    protection: "a call has only jobs with exactly the same key",
    without: "it has jobs with another key",
    patches: [operators("if facts.${JOB.keys} ~= pin or facts.${JOB.refusal}", "if facts.${JOB.refusal}")],
    focus: mergedSeveral,
  },
  {
    protection: "a job that waits for its lock is in no call",
    without: "it is in a call",
    patches: [operators(" or facts.${JOB.lockPlace} or", " or")],
    focus: mergedLost,
  },
  {
    protection: "a job that a call has settled is in no other call",
    without: "it is in two calls",
    patches: [operators(" or facts.${JOB.outcome} or", " or")],
    focus: merged,
  },
  {
    protection: "a job that BullMQ will fail is in no call",
    without: "it completes with the call, and fails",
    patches: [operators(" or facts.${BULL.deferredFailure} or", " or")],
    focus: mergedStalls,
  },
  {
    protection: "a call has at most batch.size jobs",
    without: "it has all waiting jobs",
    patches: [
      operators("or #reply == most then break end", "then break end"),
      operators("for index = 0, most do", "for index = 0, 1000 do"),
    ],
    focus: { ...merged, name: "merged calls, two at most", merge: 2 },
  },
  {
    protection: "the call of a lost job settles no job",
    without: "a job that runs again is ended by two calls",
    patches: [
      operators(" and call('GET', P .. id .. ':lock') == token\n  if not isOurs then", "\n  if not isOurs then"),
    ],
    focus: merged,
  },
  {
    protection: "a call whose job has lost its key settles no job",
    without: "other jobs are ended by two calls",
    patches: [
      operators("hasKeys(pin) and call('HGET', HOLDERS, pin) == id and call('GET'", "hasKeys(pin) and call('GET'"),
    ],
    focus: mergedLost,
  },
  {
    protection: "a call settles only jobs that it received",
    without: "it settles any job that now has the same ID",
    patches: [operators("keys == pin and place == expected and", "keys == pin and")],
    focus: mergedAgain,
  },
  {
    protection: "a job that a call has settled gets its outcome",
    without: "it runs",
    patches: [
      judge(
        "if outcome or since then reply[${REPLY.outcome}], reply[${REPLY.parkedAt}] = outcome or false, since end",
        "if since then reply[${REPLY.outcome}], reply[${REPLY.parkedAt}] = false, since end",
      ),
    ],
    focus: merged,
  },
  {
    protection: "a job that a call has settled gets its outcome with the end of the previous job",
    without: "it runs",
    patches: [parking("reply[${REPLY.outcome}] = outcome or false", "reply[${REPLY.outcome}] = false")],
    focus: merged,
  },
  {
    protection: "a job that a call has settled gets its outcome on a free key",
    without: "it runs",
    patches: [
      lane("field == '${JOB.lockPlace}' or field == '${JOB.outcome}' then", "field == '${JOB.lockPlace}' then"),
    ],
    focus: mergedLost,
  },
  {
    protection: "the outcome from a call applies to one end",
    without: "it applies again when the job is retried manually",
    patches: [commands("if outcome then attempt(call, 'HDEL', P .. ARGV[1], '${JOB.outcome}') end", "")],
    focus: mergedRetries,
  },
  {
    protection: "the outcome from a call applies to one attempt",
    without: "the retry fails as well",
    patches: [commands("attempt(call, 'HDEL', P .. id, '${JOB.outcome}')", "")],
    focus: mergedRetries,
  },
  {
    protection: "the outcome from a call applies to one attempt, even with an immediate retry",
    without: "the retry fails as well",
    patches: [commands("if reply == 0 then attempt(call, 'HDEL', P .. ARGV[4], '${JOB.outcome}') end", "")],
    focus: mergedRetries,
  },
  {
    protection: "a job that a call has settled is not limited",
    without: "it waits for the rate",
    patches: [limits("if not max or (id and isSettled(id)) then", "if not max then")],
    focus: mergedLimited,
  },
  {
    protection: "a job that a call has settled is no start",
    without: "its end counts as a start",
    patches: [judge("not isOver and not outcome then countStart", "not isOver then countStart")],
    focus: mergedLimited,
  },
  {
    protection: "a job that a call has settled is no start, with the end of the previous job",
    without: "its end counts as a start",
    patches: [parking("if not outcome and not isOver then countStart", "if not isOver then countStart")],
    focus: mergedLimited,
  },
  {
    protection: "known keys are kept",
    without: "they are lost if the key function of another worker fails",
    patches: [operators("      elseif call('HEXISTS', P .. id, '${JOB.keys}') == 0 then", "      else")],
    focus: { name: "keys that fail elsewhere", steps: { "key fails": 3 }, keys: ["a"], severalChance: 0 },
  },
  {
    protection: "a retry keeps its age",
    without: "it is the newest job when it is due",
    patches: [commands("if LATEST then attempt", "if false then attempt")],
    focus: latestRetries,
  },
  {
    protection: "of two retries, the one that failed first is older",
    without: "the retry in line is newer",
    patches: [fullLine("(not firstFailure or tonumber(firstFailure) > tonumber(age))", "true")],
    focus: latestRetries,
  },
  {
    protection: "a retry that is judged before its turn keeps its age",
    without: "it is the newest job",
    patches: [judge("and turnedAway(pin, firstFailure)", "and turnedAway(pin)")],
    focus: latestRetries,
  },
  {
    protection: "with rotation, a retry that is judged before its turn keeps its age",
    without: "it is the newest job",
    patches: [rotation("if LATEST and firstFailure and newerThan(pin, firstFailure)", "if false")],
    focus: { ...latestRetries, name: "latest only, retries, rotation", rotate: { weights: {} } },
  },
  {
    protection: "a job that has backed off is superseded",
    without: "it runs when the previous job ends",
    patches: [parking("finishedOn or refusal or moreKeys or lockPlace", "finishedOn or moreKeys or lockPlace")],
    focus: interruptsLost,
  },
  {
    protection: "a new job does not pass keys that wait for their turn",
    without: "it starts if its key is free",
    patches: [take("and not isSettled(id) and othersWait()", "and false")],
    focus: rotatingFronts,
  },
  {
    protection: "a key leaves its slot to others when its turn is over",
    without: "its next job follows immediately",
    patches: [
      {
        file: "workers/src/scripts/commands.lua.ts",
        find: "not quietly(contended().othersGoFirst)",
        replace: "true",
      },
    ],
    focus: rotating,
  },
  {
    protection: "a key leaves its slot to jobs in front of the queue that are in no line",
    without: "its next job follows immediately, and passes them",
    patches: [rotation("return not pin and not keys", "return false")],
    focus: rotatingCalls,
  },
  {
    protection: "a key that waits for its turn gets no slot before it",
    without: "a free slot goes to the first in line immediately",
    patches: [line("if ROTATE and not isTurn and not isSettled(id) then", "if false then")],
    focus: rotating,
  },
  {
    protection: "a turn has as many starts as the weight of its key",
    without: "a turn has one start more",
    patches: [rotation("if started < weightOf(key) then", "if started <= weightOf(key) then")],
    focus: rotating,
  },
  {
    protection: "the keys take turns in the order of their arrival",
    without: "the last key goes first",
    patches: [rotation("call('ZPOPMIN', RING)", "call('ZPOPMAX', RING)")],
    focus: rotating,
  },
  {
    protection: "with rotation, one job is chosen at a time",
    without: "another job goes before it",
    patches: [rotation("  function turn()\n    if isTurnOpen() then return end\n", "  function turn()\n")],
    focus: rotating,
  },
  {
    protection: "a key that is taken when its turn comes is skipped",
    without: "its first in line gets a slot that is not free",
    patches: [rotation("not isBusy(key, holderOf(key)) and advance", "advance")],
    focus: { ...rotating, name: "rotation of several keys", severalChance: 0.6 },
  },
  {
    protection: "a free slot of a key waits for its turn",
    without: "it is assigned when the previous slot is taken",
    patches: [
      line(
        "if ROTATE and not isTurn and not isSettled(id) then",
        "if ROTATE and not isShared(key) and not isTurn and not isSettled(id) then",
      ),
    ],
    focus: rotatingSlots,
  },
  {
    protection: "a fetch that finds no job starts the next turn",
    without: "the next job waits for a timer",
    patches: [lane("  return ROTATE and contended().fetch(reply, opts) or reply", "  return reply")],
    focus: rotatingLoss,
  },
  {
    protection: "a cancelled job cannot complete",
    without: "its result is recorded",
    patches: [
      commands("local refusal = ARGV[5] == 'completed' and quietly(cancellation, ARGV[1])", "local refusal = false"),
    ],
    focus: cancelling,
  },
  {
    protection: "a cancelled job cannot be delayed",
    without: "it waits in delayed, with its key or without",
    patches: [commands("if refusal and (how ~= '' or ARGV[6] == '1') then return refuse(refusal) end", "")],
    focus: cancelling,
  },
  {
    protection: "a cancelled job stays cancelled until it has ended",
    without: "it runs again when its worker dies",
    patches: [judge(" or string.find(fault, BAD .. '${CANCELLED}', 1, true)", "")],
    focus: cancellingKilled,
  },
  {
    protection: "the end of a cancelled job removes the cancellation",
    without: "the job fails again when it is retried by hand",
    patches: [commands("if ARGV[5] == 'failed' then attempt(call, 'HDEL', P .. ARGV[1], '${JOB.refusal}') end", "")],
    focus: cancelling,
  },
  {
    protection: "a cancelled job that has not started stops no key",
    without: "no job of its key starts",
    patches: [commands(" and ARGV[6] ~= 'unstarted'", "")],
    focus: cancellingHalt,
  },
  ...WATCH_MUTATIONS,
];

/** By the name of the focus. */
export const FOCUSES: ReadonlyMap<string, Focus> = new Map(
  LANE_MUTATIONS.flatMap(({ focus }) => (focus === undefined ? [] : [[focus.name, focus] as const])),
);
