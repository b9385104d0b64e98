/**
 * Every protection of the protocol, and how to take it away: a piece of the real source is replaced while it is loaded (sources.ts). Without it
 * some invariant must break, by random search or in a directed schedule; otherwise it is untested, or not needed.
 */

import type { Subject } from "./search.ts";
import type { SourcePatch } from "./sources.ts";

export interface Mutation {
  readonly protection: string;
  /** What is done instead. */
  readonly without: string;
  readonly patches: readonly SourcePatch[];
  /** Name of the schedule in directed.ts that shows it, where random search rarely gets there. */
  readonly directed?: string;
  /** Which random schedules look for it. Default: locks. */
  readonly subject?: Subject;
}

const core = (file: string, find: string, replace: string): SourcePatch => ({
  file: `redlock-core/src/${file}`,
  find,
  replace,
});

const leader = (file: string, find: string, replace: string): SourcePatch => ({
  file: `leader/src/${file}`,
  find,
  replace,
});

export const MUTATIONS: readonly Mutation[] = [
  {
    protection: "drift margin",
    without: "the whole ttl is trusted",
    patches: [
      core(
        "validity.ts",
        "return Math.ceil(ttlMs * driftFactor) + EXPIRY_RESOLUTION_MS;",
        "return 0 * driftFactor * EXPIRY_RESOLUTION_MS;",
      ),
    ],
    directed: "slow clock",
  },
  {
    protection: "elapsed subtraction",
    without: "the lease counts from the last answer",
    patches: [
      core(
        "attempt.ts",
        "fencingToken: ballot, end, grantedMs }",
        "fencingToken: ballot, end: leaseEnd(readClock(this.#engine.clock), ttlMs, this.#engine.options.driftFactor), grantedMs }",
      ),
    ],
    directed: "slow answer",
  },
  {
    protection: "validity check",
    without: "a quorum is enough, however late",
    patches: [
      core(
        "attempt.ts",
        'outcome === "won" && remainingMs(end, now) > 0',
        'outcome === "won" && remainingMs(end, now) > -Infinity',
      ),
    ],
    directed: "grants after the end",
  },
  {
    protection: "both clocks",
    without: "only the monotonic clock ends a lease",
    patches: [
      core(
        "validity.ts",
        "return Math.min(end.monotonicMs - now.monotonicMs, end.wallMs - now.wallMs);",
        "return end.monotonicMs - now.monotonicMs;",
      ),
    ],
  },
  {
    protection: "forced release",
    without: "the holder may set its key again",
    patches: [core("scripts/force-release.lua.ts", "call('SET', KEYS[2], raised, 'PX', fenceTtl)", "")],
    directed: "taken away",
  },
  {
    protection: "forced release: tokens of other nodes",
    without: "only the token that this node stores is surpassed",
    patches: [
      core(
        "scripts/force-release.lua.ts",
        "math.max(tonumber(call('GET', KEYS[2])) or 0, largestUs) + 1",
        "(tonumber(call('GET', KEYS[2])) or largestUs) + 1",
      ),
    ],
    directed: "taken away from two",
  },
  {
    protection: "maxHold",
    without: "an extension prolongs it",
    patches: [
      core(
        "holding.ts",
        "Math.min(remainingMs(this.#state.end, now), this.#maxHoldEndMs - now.monotonicMs)",
        "remainingMs(this.#state.end, now)",
      ),
    ],
  },
  {
    protection: "quarantine",
    without: "a node that lost its data votes at once",
    patches: [
      core(
        "scripts/quarantine.lua.ts",
        "quarantineLeftMs = math.max(0, math.ceil(tonumber(quarantineMs) - (nowUs - since) / 1000))",
        "quarantineLeftMs = 0",
      ),
    ],
  },
  {
    protection: "quarantine: run_id",
    without: "only a missing hash is noticed",
    patches: [core("scripts/quarantine.lua.ts", "if not isSame or not since", "if not since")],
  },
  {
    protection: "token compare",
    without: "a release deletes whatever is there",
    patches: [
      core(
        "scripts/release.lua.ts",
        "if valueOf(KEYS[first + 3 * i]) == token then",
        "if call('EXISTS', KEYS[first + 3 * i]) == 1 then",
      ),
    ],
  },
  {
    protection: "lock check",
    without: "a held key is overwritten",
    patches: [core("scripts/acquire.lua.ts", "if not allowed then return deny", "if false then return deny")],
  },
  {
    protection: "ballot check",
    without: "any fencing token is granted",
    patches: [core("scripts/acquire.lua.ts", "if before[i] and tonumber(before[i]) >= ballot then", "if false then")],
  },
  {
    protection: "lock check on the short way",
    without: "a held key is overwritten",
    patches: [core("scripts/short-way.lua.ts", "if call('EXISTS', key, waiters) ~= 0 then break end", "")],
  },
  {
    protection: "ballot check on the short way",
    without: "any fencing token is granted",
    patches: [core("scripts/short-way.lua.ts", "if before and not isAbove(ballot, before) then", "if false then")],
  },
  {
    protection: "token compare on the short way",
    without: "a release deletes whatever is there",
    patches: [core("scripts/short-way.lua.ts", "or try('GET', key) ~= token or", "or")],
  },
  {
    protection: "fresh token per attempt",
    without: "one token per call",
    patches: [
      core(
        "attempt.ts",
        "this.#token = engine.random.token();",
        "this.#token = (request.target.resources as { token?: string }).token ??= engine.random.token();",
      ),
    ],
    directed: "late release",
  },
  {
    protection: "release to all",
    without: "only nodes that answered are released",
    patches: [core("attempt.ts", "this.#round?.sent(node) === true", 'this.#ballots[node]?.answer.kind === "reply"')],
  },
  {
    protection: "per-node timeout",
    without: "an answer is awaited for an hour",
    patches: [
      core(
        "engine.ts",
        "new Deadlines(clock, options.nodeTimeout)",
        "new Deadlines(clock, options.nodeTimeout + 3_600_000)",
      ),
      core("round.ts", "schedule(handlers.timeoutMs,", "schedule(handlers.timeoutMs + 3_600_000,"),
    ],
  },
  {
    protection: "never shorten an expiry",
    without: "an extension sets whatever ttl it asks for",
    patches: [core("scripts/extend.lua.ts", "elseif call('PTTL', key) < ttl then", "else")],
  },
  {
    protection: "extension inside validity",
    without: "an extension may end after the lease",
    patches: [
      core("extend.ts", 'decided === "won" && remainingMs(request.end, readClock(clock)) > 0', 'decided === "won"'),
    ],
    directed: "late extension",
  },
  {
    protection: "repair does not count",
    without: "a node that lost the key counts when it gets it back",
    patches: [core("scripts/extend.lua.ts", "return missing and 2 or 1", "return 1")],
    directed: "hidden gap",
  },
  {
    protection: "quarantined nodes do not count in an extension",
    without: "they count",
    patches: [core("extend.ts", "answer.quarantineLeftMs > 0", "answer.quarantineLeftMs < 0")],
    directed: "quarantined extension",
  },
  {
    protection: "expiry",
    without: "a lock key lives for ever",
    patches: [core("scripts/acquire.lua.ts", "token, 'PX', ttl)", "token)")],
  },
  {
    protection: "a term ends by every clock",
    without: "it ends by the monotonic clock only",
    subject: "elections",
    patches: [
      leader(
        "deadline.ts",
        "Math.max(0, now.monotonicMs - from.monotonicMs, now.wallMs - from.wallMs, now.uptimeMs - from.uptimeMs)",
        "Math.max(0, now.monotonicMs - from.monotonicMs)",
      ),
      core(
        "validity.ts",
        "return Math.min(end.monotonicMs - now.monotonicMs, end.wallMs - now.wallMs);",
        "return end.monotonicMs - now.monotonicMs;",
      ),
    ],
  },
  {
    protection: "the last tick is stored",
    without: "a new leader does not know what has run",
    subject: "elections",
    patches: [leader("scheduler/scripts/claim-ticks.lua.ts", "if mode ~= 'hold' and not later then", "if false then")],
  },
  {
    protection: "running ticks are recorded",
    without: "at-least-once forgets what it started",
    subject: "elections",
    patches: [
      leader(
        "scheduler/scripts/claim-ticks.lua.ts",
        "(mode == 'least' and not paused) or mode == 'hold'",
        "mode == 'hold'",
      ),
    ],
  },
];
