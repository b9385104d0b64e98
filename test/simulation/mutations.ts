/**
 * The protections of the protocol, each with a patch that removes it: a piece of the real source is replaced when the
 * source is loaded (sources.ts). Without the protection an invariant must break, in a random or a directed schedule.
 * Otherwise the protection is untested, or not needed.
 */

import type { Subject } from "./search.ts";
import type { SourcePatch } from "./sources.ts";

export interface Mutation {
  readonly protection: string;
  /** The behavior without the protection. */
  readonly without: string;
  readonly patches: readonly SourcePatch[];
  /** Name of the schedule in directed.ts that breaks, if random schedules rarely break. */
  readonly directed?: string;
  /** The kind of random schedules. Default: locks. */
  readonly subject?: Subject;
  /** Number of nodes of every schedule. Default: drawn. */
  readonly nodeCount?: number;
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

const semaphore = (file: string, find: string, replace: string): SourcePatch => ({
  file: `semaphore/src/${file}`,
  find,
  replace,
});

const ALL_CLOCKS = "return Math.max(ranMs, now.wallMs - from.wallMs);";

const GAP = "fits = string.find(ARGV[5], here .. ':' .. asText(hereTerm) .. '.' .. asText(hereStep) .. ';', 1, true)";

export const MUTATIONS: readonly Mutation[] = [
  {
    protection: "drift margin",
    without: "the whole ttl is trusted",
    patches: [
      core(
        "rules/validity.ts",
        "return Math.ceil(ttlMs * driftFactor) + EXPIRY_RESOLUTION_MS;",
        "return 0 * driftFactor * EXPIRY_RESOLUTION_MS;",
      ),
    ],
    directed: "slow clock",
  },
  {
    protection: "elapsed subtraction",
    without: "the lease counts from the last answer",
    patches: [core("lock/attempt.ts", "leaseEnd(asked, ttlMs, driftFactor)", "leaseEnd(now, ttlMs, driftFactor)")],
    directed: "slow answer",
  },
  {
    protection: "validity check",
    without: "a quorum is enough, even after the lease",
    patches: [core("lock/attempt.ts", "tookMs >= this.timeoutMs", "tookMs < 0")],
    directed: "grants after the end",
  },
  {
    protection: "late votes do not count",
    without: "a vote counts until the end of the validity",
    patches: [
      core("lock/attempt.ts", "tookMs >= this.timeoutMs", "tookMs >= validityMs(ttlMs, engine.options.driftFactor)"),
    ],
    directed: "late vote over a loss",
  },
  {
    protection: "all clocks",
    without: "only the monotonic clock ends a lease",
    patches: [core("rules/validity.ts", ALL_CLOCKS, "return now.monotonicMs - from.monotonicMs;")],
  },
  {
    protection: "suspends are counted",
    without: "only the wall clock sees a suspend, and it may be set back",
    patches: [core("rules/validity.ts", " + (now.suspendedMs - from.suspendedMs)", "")],
    directed: "suspended and set back",
  },
  {
    protection: "forced release",
    without: "the holder may set its key again",
    patches: [
      core(
        "scripts/force-release.lua.ts",
        "if register == '' then call('SET', numbers, raised) else call('HSET', numbers, register, raised) end",
        "",
      ),
      core("scripts/force-release.lua.ts", "call('SET', fence, raised, 'PX', fenceTtl)", ""),
    ],
    directed: "taken away",
  },
  {
    protection: "forced release: tokens of other nodes are exceeded",
    without: "only the token that this node stores is exceeded",
    patches: [
      core(
        "scripts/force-release.lua.ts",
        "math.max(tonumber(largest or nil) or 0, largestUs) + 1",
        "(tonumber(largest or nil) or largestUs) + 1",
      ),
    ],
    directed: "taken away from two",
  },
  {
    protection: "maxHold",
    without: "an extension prolongs the lock beyond maxHold",
    patches: [
      core(
        "lock/lease.ts",
        "cappedEnd(laterEnd(this.#end, end), this.#granted, this.#maxHoldMs)",
        "laterEnd(this.#end, end)",
      ),
    ],
  },
  {
    protection: "a nested call is recognized",
    without: "it waits for its own caller",
    patches: [core("lock/section.ts", "call.#engine === engine &&", "call.#engine !== engine &&")],
    directed: "nested calls",
  },
  {
    protection: "joined calls take turns",
    without: "all of them run at once",
    patches: [core("lock/section.ts", "if (!turn.isFirst) await", "if (turn.previous === null) await")],
    directed: "nested calls",
  },
  {
    protection: "a lock is kept for the calls that joined it",
    without: "it is released when the routine ends",
    patches: [core("lock/section.ts", "if (this.#calls !== undefined) {", "if (this.#calls === null) {")],
    directed: "nested calls",
  },
  {
    protection: "a joined call is notified of a release outside",
    without: "its signal is not aborted",
    patches: [
      core("lock/joined-lease.ts", "this.#stopListening = this.#lease.onEnd(lose)", "this.#stopListening = undefined"),
    ],
    directed: "nested calls",
  },
  {
    protection: "quarantine",
    without: "a node that lost its data votes immediately",
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
    without: "only a missing hash is detected",
    patches: [core("scripts/quarantine.lua.ts", "if not isSame or not since", "if not since")],
  },
  {
    protection: "token compare",
    without: "a release deletes any value",
    patches: [
      core("scripts/release.lua.ts", "if valueOf(KEYS[i]) == token then", "if call('EXISTS', KEYS[i]) == 1 then"),
    ],
  },
  {
    protection: "lock check",
    without: "a held key is overwritten",
    patches: [core("scripts/acquire.lua.ts", "if not mayTake(KEYS[first + i], waiter) then", "if false then")],
  },
  {
    protection: "ballot check",
    without: "any fencing token is granted",
    patches: [core("scripts/acquire.lua.ts", "if largest >= ballot then return {${REFUSED.stale}, largest} end", "")],
  },
  {
    protection: "lock check on the short way",
    without: "a held key is overwritten",
    patches: [core("scripts/batch.lua.ts", ", 'PX', ${ACQUIRE_TTL}, 'NX')", ", 'PX', ${ACQUIRE_TTL})")],
  },
  {
    protection: "ballot check on the short way",
    without: "any fencing token is granted",
    patches: [
      core("scripts/batch.lua.ts", "not several or ballot <= limit and (not stored or stored < ballot)", "true"),
    ],
  },
  {
    protection: "ballots are stored on the short way",
    without: "the slots are unchanged",
    patches: [core("scripts/batch.lua.ts", "if writes then\n", "if false then\n")],
  },
  {
    protection: "a single node counts on from its last token",
    without: "the token is the node's time",
    patches: [core("scripts/number.lua.ts", "if stored and stored > floor then floor = stored end", "")],
    directed: "node clock set back",
  },
  {
    protection: "token compare on the short way",
    without: "a release deletes any value",
    patches: [
      core(
        "scripts/batch.lua.ts",
        "if try('GET', key) == ${field(FIELDS.releasedToken)} and not (isWaiting",
        "if call('EXISTS', key) == 1 and not (isWaiting",
      ),
    ],
  },
  {
    protection: "token compare of a release with waiters",
    without: "a release of a lost lock hands another client's lock to the waiter",
    patches: [core("scripts/waiters.lua.ts", "value == sub(ARGV[2], 2)", "(not token or value == sub(ARGV[2], 2))")],
  },
  {
    protection: "token compare of a hand-over",
    without: "a release of a lost lock hands over another client's lock",
    patches: [core("scripts/waiters.lua.ts", "value == sub(ARGV[2], 2)", "(token or value == sub(ARGV[2], 2))")],
  },
  {
    protection: "the reservation of a single waiter",
    without: "a waiter takes the lock from any holder",
    patches: [core("scripts/waiters.lua.ts", "isTurn = value == 'reserved:' .. member", "isTurn = true")],
  },
  {
    protection: "fresh token per attempt",
    without: "one token per client and resource",
    patches: [
      core(
        "lock/attempt.ts",
        "this.#token = engine.newToken();",
        `const tokens = ((engine as { tokens?: Map<string, string> }).tokens ??= new Map<string, string>());
    this.#token = tokens.get(String(target.keys)) ?? engine.newToken();
    tokens.set(String(target.keys), this.#token);`,
      ),
    ],
    directed: "late release",
  },
  {
    protection: "release to all",
    without: "only nodes that answered receive a release",
    patches: [core("lock/attempt.ts", "return this.#round.sentTo & ~", "return this.#round.answeredBy & ~")],
  },
  {
    protection: "release after a late answer to a waiter",
    without: "a node that answers after the refusal receives no release",
    patches: [core("lock/attempt.ts", 'if (vote !== "granted" && isKeyless', 'if (vote !== "stale" || isKeyless')],
  },
  {
    protection: "per-node timeout",
    without: "an answer is awaited for an hour",
    patches: [
      core(
        "lock/engine.ts",
        "new Deadlines(clock, options.nodeTimeout)",
        "new Deadlines(clock, options.nodeTimeout + 3_600_000)",
      ),
      core("rounds/round.ts", "clock.schedule(timeoutMs,", "clock.schedule(timeoutMs + 3_600_000,"),
    ],
  },
  {
    protection: "never shorten an expiry",
    without: "an extension sets any requested ttl",
    patches: [
      core("scripts/extend.lua.ts", "elseif call('PTTL', key) < ttl then call", "else call"),
      core(
        "scripts/batch.lua.ts",
        "if call('PTTL', key) < tonumber(${EXTEND_TTL}) then call('PEXPIRE', key, ${EXTEND_TTL}) end",
        "call('PEXPIRE', key, ${EXTEND_TTL})",
      ),
    ],
  },
  {
    protection: "extension inside validity",
    without: "an extension may end after the lease",
    patches: [core("lock/extend.ts", 'decided === "won" && isInTime', 'decided === "won"')],
    directed: "late extension",
  },
  {
    protection: "elapsed subtraction of an extension",
    without: "the lease counts from the last answer",
    patches: [
      core(
        "lock/extend.ts",
        "end: leaseEnd(asked, ttlMs, driftFactor)",
        "end: leaseEnd(readClock(clock), ttlMs, driftFactor)",
      ),
    ],
    directed: "slow extension",
  },
  {
    protection: "a repaired node does not count",
    without: "a node that lost the key counts when the key is set again",
    patches: [core("scripts/extend.lua.ts", "return missing and 2 or 1", "return 1")],
    directed: "hidden gap",
  },
  {
    protection: "quarantined nodes do not count in an extension",
    without: "quarantined nodes count",
    patches: [core("lock/extend.ts", "quarantineLeftMs > 0", "quarantineLeftMs < 0")],
    directed: "quarantined extension",
  },
  {
    protection: "expiry",
    without: "a lock key lives forever",
    patches: [core("scripts/acquire.lua.ts", "token, 'PX', ttl)", "token)")],
  },
  {
    protection: "a term ends by every clock",
    without: "it ends by the monotonic clock only",
    subject: "elections",
    patches: [core("rules/validity.ts", ALL_CLOCKS, "return now.monotonicMs - from.monotonicMs;")],
  },
  {
    protection: "register: the time up to which a schedule is processed",
    without: "a new leader does not know which ticks have run",
    subject: "elections",
    patches: [
      leader(
        "scheduler/claims.ts",
        "if (plan.accountedMs > track.accountedMs) changes.set",
        "if (plan.accountedMs < track.accountedMs) changes.set",
      ),
    ],
  },
  {
    protection: "register: notes of started ticks",
    without: "at-least-once forgets the ticks that it started",
    directed: "dead at work",
    subject: "elections",
    patches: [leader("scheduler/claims.ts", "changes.set(noteOf(claimed), String(claimed.attempt));", "void noteOf;")],
  },
  {
    protection: "register: the next attempt is written before it starts",
    without: "a later leader repeats the attempt",
    directed: "dead at work",
    subject: "elections",
    patches: [leader("scheduler/claims.ts", "changes.set(noteOf(tick), String(attempt));", "void attempt;")],
  },
  {
    protection: "register: a quorum has a step before its ticks start",
    without: "the ticks start when the step is sent",
    subject: "elections",
    patches: [
      leader(
        "scheduler/scheduler-term.ts",
        "    if (!(await this.#register.confirm())) return false;\n",
        "    for (const each of this.#step.confirmed.splice(0)) each();\n    if (!(await this.#register.confirm())) return false;\n",
      ),
    ],
  },
  {
    protection: "register: nodes that restarted do not count",
    without: "any quorum is read",
    directed: "forgotten claim",
    subject: "elections",
    patches: [
      leader("scheduler/register.ts", "all.filter(({ isWhole }) => isWhole).length >= quorum", "all.length >= quorum"),
    ],
  },
  {
    protection: "register: the newest version is adopted",
    without: "an older version is adopted",
    subject: "elections",
    patches: [
      leader(
        "scheduler/register-store.ts",
        "(isNewer(each.version, best.version) ? each : best)",
        "(isNewer(each.version, best.version) ? best : each)",
      ),
    ],
  },
  {
    protection: "register: no step without the previous step",
    without: "a node that missed a step accepts the next one",
    directed: "missed step",
    subject: "elections",
    patches: [
      leader(
        "scheduler/scripts/write-register.lua.ts",
        "fits = seen[4] == here and hereTerm == tonumber(ARGV[3]) and hereStep == tonumber(ARGV[4])",
        "fits = true",
      ),
    ],
  },
  {
    protection: "register: triggers are remembered",
    without: "a mailbox that returns a trigger makes it run again",
    subject: "elections",
    patches: [
      leader("scheduler/triggers.ts", "changes.set(field, triggerLine(trigger, true));", `changes.set(field, "");`),
    ],
  },
  {
    protection: "register: orders are applied",
    without: "they are removed from the mailboxes and forgotten",
    directed: "paused for the next",
    subject: "elections",
    patches: [
      leader(
        "scheduler/scheduler-term.ts",
        "} else if (trigger === undefined) step.changes.set(field, line);",
        "} else if (trigger === undefined) step.expired.push(field);",
      ),
    ],
  },
  {
    protection: "register: a read by a leader makes the node promise to accept no older term",
    without: "an older term's step is accepted before the first step of the new term",
    directed: "late step",
    subject: "elections",
    patches: [leader("scheduler/scripts/read-register.lua.ts", "call('HSET', KEYS[1], ':promised', ARGV[1])", "")],
  },
  {
    protection: "register: a step of an older term is refused",
    without: "any step is accepted",
    directed: "late step",
    subject: "elections",
    patches: [leader("scheduler/scripts/write-register.lua.ts", "if promised > term then", "if false then")],
  },
  {
    protection: "register: a full write is for the process and the version that answered",
    without: "any node with less data accepts it",
    directed: "late copy",
    subject: "elections",
    patches: [leader("scheduler/scripts/write-register.lua.ts", GAP, "fits = true")],
  },
  {
    protection: "register: a full write is for the version that answered",
    without: "it is for the process, which may have lost its data meanwhile",
    directed: "late copy",
    subject: "elections",
    patches: [leader("scheduler/scripts/write-register.lua.ts", GAP, "fits = string.find(ARGV[5], here, 1, true)")],
  },
  {
    protection: "register: a term that has ended sends no full write",
    without: "it sends a full write to a node that has forgotten the next term",
    directed: "copy after the end",
    subject: "elections",
    patches: [leader("scheduler/register.ts", "gaps.length === 0 || !term.isCurrent()", "gaps.length === 0")],
  },
  {
    protection: "register: orders are read before ticks start",
    without: "orders are read with the next step",
    directed: "pause in the answer",
    subject: "elections",
    patches: [
      leader(
        "scheduler/scheduler-term.ts",
        "    this.#pauses.applyOrders();\n    for (const each of confirmed) each();",
        "    for (const each of confirmed) each();",
      ),
    ],
  },
  {
    protection: "register: an order is removed from the mailboxes when a quorum has it",
    without: "it is removed when the adopted register contains it",
    directed: "order on its way",
    subject: "elections",
    patches: [leader("scheduler/register.ts", "(!this.#isOurs || isLater(line", "(isLater(line")],
  },
  {
    protection: "schedules as data: the register contains them",
    without: "the leader follows an order, and only removes it from the mailboxes",
    directed: "defined for the next",
    subject: "elections",
    patches: [
      leader(
        "scheduler/data-changes.ts",
        "for (const [field, line] of change.lines) changes.set(field, line);",
        "expired.push(...change.lines.keys());",
      ),
    ],
  },
  {
    protection: "schedules as data: ticks count from the time at which a schedule was added",
    without: "they count from the time at which a leader learns of it",
    directed: "defined without a leader",
    subject: "elections",
    patches: [
      leader("scheduler/loading.ts", "stored?.accountedMs ?? sinceMs ?? nowMs", "stored?.accountedMs ?? nowMs"),
    ],
  },
  {
    protection: "schedules as data: ticks that were due before a change run first",
    without: "a change is applied at once",
    directed: "changed without a leader",
    subject: "elections",
    patches: [leader("scheduler/data-changes.ts", "!timetable.isSettledAt(change.heardMs)", "false")],
  },
  {
    protection: "schedules as data: after a change, the old times have no ticks",
    without: "they have ticks until a leader learns of the change",
    directed: "changed without a leader",
    subject: "elections",
    patches: [
      leader("scheduler/data-changes.ts", "    timetable.limit(change.untilMs);\n", ""),
      leader("scheduler/loading.ts", "track.untilMs = untilMsOf(name) ?? Number.POSITIVE_INFINITY;", ""),
    ],
  },
  {
    protection: "schedules as data: a change of times has no ticks before it",
    without: "the new times count from the last tick of the old ones",
    directed: "changed without a leader",
    subject: "elections",
    patches: [
      leader(
        "scheduler/data-changes.ts",
        "timetable.advance(track, definition.sinceMs);",
        "timetable.advance(track, 0);",
      ),
    ],
  },
  {
    protection: "schedules as data: the register remembers what was removed",
    without: "a late copy of the order that added a schedule brings it back",
    directed: "late definition",
    subject: "elections",
    patches: [
      leader(
        "scheduler/data-schedules.ts",
        "if ((orderOf(line)?.version ?? 0) > setVersion) lines.set(field, line);\n      else outdated.push(field);",
        `if (orderOf(line)?.text === undefined) outdated.push(lines.set(field, "") && field); else lines.set(field, line);`,
      ),
    ],
  },
  {
    protection: "schedules as data: an order that is older than the set has no effect",
    without: "it adds a schedule that the set does not contain",
    directed: "late definition after a set",
    subject: "elections",
    patches: [
      leader("scheduler/data-schedules.ts", "if ((orderOf(line)?.version ?? 0) > setVersion)", "if (setVersion >= 0)"),
      leader("scheduler/known.ts", "order === undefined || order.version <= set.version", "order === undefined"),
    ],
  },
  {
    protection: "a grant names its holder",
    without: "the leader is named later, in a separate step",
    subject: "elections",
    patches: [core("scripts/acquire.lua.ts", "if note then", "if false then")],
  },
  {
    protection: "a leader has a quorum of grants",
    without: "the holder of a grant by one node is shown as the leader",
    subject: "elections",
    patches: [
      leader("rules/record.ts", "isHeldBy(views, view.lockValue, quorum))", "isHeldBy(views, view.lockValue, 1))"),
    ],
  },
  {
    protection: "permits: leases end by the node's time",
    without: "leases end 100 ms early",
    subject: "permits",
    patches: [
      semaphore(
        "permits/permits.lua.ts",
        "if endMs >= nowMs then return end",
        "if endMs >= nowMs + 100 then return end",
      ),
    ],
  },
  {
    protection: "permits: all requested permits must be free",
    without: "one free permit is enough",
    subject: "permits",
    patches: [
      semaphore(
        "permits/permits.lua.ts",
        "if isNext and used + permitsOf(holder) <= capacity",
        "if isNext and used < capacity",
      ),
    ],
  },
  {
    protection: "permits: the first in line is not overtaken",
    without: "a call that finds free permits gets them",
    subject: "permits",
    patches: [semaphore("permits/permits.lua.ts", "if isNext and used", "if used")],
  },
  {
    protection: "permits: fencing tokens are above the node's time",
    without: "they are counted from 1 after a loss of data",
    subject: "permits",
    patches: [semaphore("permits/permits.lua.ts", "or math.max(nowUs, last + 1)", "or last + 1")],
  },
  {
    protection: "permits: a lost lease is restored only if no permit was granted since",
    without: "it is restored whenever there is room",
    subject: "permits",
    patches: [
      semaphore(
        "permits/permits.lua.ts",
        "local isForgotten = several or call('HEXISTS', state, 'first') == 0",
        "local isForgotten = true",
      ),
    ],
  },
  {
    protection: "permits: quarantine",
    without: "a node without its data grants immediately",
    subject: "permits",
    patches: [semaphore("permits/permits.lua.ts", "if leftMs > 0 then return {2, leftMs} end\n  expire()", "expire()")],
  },
  {
    protection: "permits: a release notifies the first in line",
    without: "waiters find out by polling",
    subject: "permits",
    patches: [
      semaphore(
        "permits/permits.lua.ts",
        "if waiter ~= '' then leaveLine(waiter) end\n  callFirst()",
        "if waiter ~= '' then leaveLine(waiter) end",
      ),
    ],
  },
  {
    protection: "permits: a grant notifies the next in line",
    without: "readers that waited together are granted one by one",
    subject: "permits",
    patches: [
      semaphore(
        "permits/permits.lua.ts",
        "if waiter ~= '' then leaveLine(waiter) end\n      callFirst()",
        "if waiter ~= '' then leaveLine(waiter) end",
      ),
    ],
  },
  {
    protection: "permits: a waiter without a listener on its channel is skipped",
    without: "its turn is waited for",
    subject: "permits",
    patches: [semaphore("permits/permits.lua.ts", "receivers > 0) or", "receivers >= 0) or")],
  },
  {
    protection: "permits: a waiter that asks again keeps its place",
    without: "it goes to the end of the line",
    subject: "permits",
    patches: [
      semaphore(
        "permits/acquisition.ts",
        "this.#holder, String(this.#request.ttl), waiter, ticket, ballot",
        "this.#holder, String(this.#request.ttl), waiter, ticket && String(pool.protocol.placeAt(asked.wallMs)), ballot",
      ),
    ],
  },
  {
    protection: "permits: a call that gave up leaves the line",
    without: "it is left in the line",
    subject: "permits",
    patches: [
      semaphore("permits/acquisition.ts", 'this.#takeBack(this.#isAsking ? this.#holder : "", this.#place);', ""),
    ],
  },
  {
    protection: "permits: a notified waiter has its turn for a second",
    without: "it has its turn for ten seconds",
    subject: "permits",
    patches: [semaphore("permits/permits.lua.ts", "export const TURN_MS = 1_000;", "export const TURN_MS = 10_000;")],
  },
  {
    protection: "permits: the lease counts from before the request",
    without: "it counts from the answer",
    subject: "permits",
    patches: [
      semaphore(
        "permits/acquisition.ts",
        "this.#read(this.#answersOf(replies), asked, ",
        "this.#read(this.#answersOf(replies), readClock(pool.protocol.clock), ",
      ),
    ],
    directed: "slow grant of a writer",
  },
  {
    protection: "permits: an extension counts from before the request",
    without: "it counts from the answer",
    subject: "permits",
    patches: [core("lock/extend.ts", "end: leaseEnd(asked, ttlMs", "end: leaseEnd(readClock(clock), ttlMs")],
    directed: "slow extension of a writer",
  },
  {
    protection: "permits: an unanswered request is taken back",
    without: "its lease is left to expire",
    subject: "permits",
    patches: [semaphore("permits/acquisition.ts", "this.#takeBack(this.#holder, undefined);", "")],
  },
  {
    protection: "permits of several nodes: a quorum must grant",
    without: "one node is enough",
    subject: "permits",
    nodeCount: 3,
    patches: [
      semaphore(
        "permits/rules/answer.ts",
        "return acquisitionOutcome(tallyOf(answers), nodeCount);",
        'return answers.some(({ vote }) => vote.vote === "granted") ? "won" : acquisitionOutcome(tallyOf(answers), nodeCount);',
      ),
    ],
  },
  {
    protection: "permits of several nodes: a reader's token is greater than earlier writers' tokens",
    without: "the token is used unchanged",
    subject: "permits",
    nodeCount: 3,
    patches: [
      semaphore(
        "permits/permits.lua.ts",
        "local least = isWriter() and last or lastOf('written')",
        "local least = isWriter() and last or 0",
      ),
    ],
  },
  {
    protection: "permits of several nodes: tokens are near the nodes' time",
    without: "a fast clock raises all tokens",
    subject: "permits",
    nodeCount: 3,
    patches: [
      semaphore("permits/permits.lua.ts", " and token <= math.max(nowUs, last) + ${CLAMP_US}, least", ", least"),
    ],
  },
  {
    protection: "permits of several nodes: a node in quarantine does not count in an extension",
    without: "it counts",
    subject: "permits",
    nodeCount: 3,
    patches: [semaphore("permits/permits.lua.ts", "local leftMs = several and votesInMs() or 0", "local leftMs = 0")],
    directed: "quarantined extension of a writer",
  },
  {
    protection: "permits of several nodes: a restored lease does not count",
    without: "it counts",
    subject: "permits",
    nodeCount: 3,
    patches: [semaphore("permits/permits.lua.ts", "return several and isMissing and 3 or 1", "return 1")],
    directed: "hidden gap of a writer",
  },
  {
    protection: "permits of several nodes: a waiter with grants of a minority stays in line",
    without: "it goes to the end of the line",
    subject: "permits",
    nodeCount: 3,
    patches: [
      semaphore(
        "permits/permits.lua.ts",
        "if waiter ~= '' then enrol() end\n    else",
        "if waiter ~= '' then leaveLine(waiter) end\n    else",
      ),
    ],
    directed: "a part of the nodes",
  },
  {
    protection: "permits of several nodes: a refusal reports the node's time and token",
    without: "the report is ignored",
    subject: "permits",
    nodeCount: 3,
    patches: [semaphore("permits/acquisition.ts", "pool.learn(answers, asked);", "")],
  },
  {
    protection: "permits of several nodes: a holder leaves the lines",
    without: "it stays in the lines",
    subject: "permits",
    nodeCount: 3,
    patches: [
      semaphore("permits/acquisition.ts", 'if (!pool.isAlone) this.#takeBack("", place);', "if (false) return lock;"),
    ],
  },
  {
    protection: "permits of several nodes: grants of a minority are taken back",
    without: "they are left to expire",
    subject: "permits",
    nodeCount: 3,
    patches: [
      semaphore(
        "permits/rules/answer.ts",
        'vote.vote !== "granted" && vote.vote !== "failed"',
        'vote.vote !== "failed"',
      ),
    ],
  },
  {
    protection: "latches: an ID counts once",
    without: "it counts as often as it arrives",
    subject: "latches",
    patches: [semaphore("latch.lua.ts", "'id:' .. ARGV[2]", "'id:' .. call('HLEN', key)")],
  },
  {
    protection: "latches: a repeated count-down has the same ID",
    without: "it has a new ID",
    subject: "latches",
    patches: [
      semaphore(
        "count-down-latch.ts",
        "await this.#run(operation, argument ?? call, call);",
        'await this.#run(operation, operation === "down" ? `${argument ?? call}${attempts}` : argument ?? call, call);',
      ),
    ],
  },
  {
    protection: "latches: a latch that does not exist is closed",
    without: "it is open",
    subject: "latches",
    patches: [semaphore("latch.lua.ts", "+ 2) or -1", "+ 2) or 0")],
  },
  {
    protection: "latches: the opening call notifies the waiters",
    without: "they find out by polling",
    subject: "latches",
    patches: [semaphore("latch.lua.ts", "if left() == 0 then redis.pcall", "if false then redis.pcall")],
  },
  {
    protection: "latches: waiters read the state again",
    without: "they trust the message",
    subject: "latches",
    patches: [semaphore("latch-watch.ts", "const LOOK_AGAIN_MS = 2_000;", "const LOOK_AGAIN_MS = 2_000_000;")],
  },
  {
    protection: "latches: a repeated set is not refused",
    without: "it is refused like the set of another client",
    subject: "latches",
    patches: [semaphore("latch.lua.ts", "call('HGET', key, 'by') == ARGV[5]", "false")],
  },
  {
    protection: "latches: a repeated set changes nothing",
    without: "it closes an open latch",
    subject: "latches",
    patches: [semaphore("latch.lua.ts", "if call('HGET', key, 'by')", "if left() > 0 and call('HGET', key, 'by')")],
  },
  {
    protection: "latches: a set of the previous round changes nothing",
    without: "it closes a latch that has opened since",
    subject: "latches",
    patches: [semaphore("latch.lua.ts", "call('HGET', before, 'by') == ARGV[5]", "false")],
  },
  {
    protection: "latches: a count-down of the previous round changes nothing",
    without: "it counts again",
    subject: "latches",
    patches: [semaphore("latch.lua.ts", "and not string.find(call('HGET', before, id) or '', ARGV[5], 1, true)", "")],
  },
  {
    protection: "latches: a count-down prolongs the latch",
    without: "the latch expires a fixed time after it was set",
    subject: "latches",
    patches: [
      semaphore(
        "latch.lua.ts",
        "call('PEXPIRE', key, ARGV[3])",
        "if op == 'set' then call('PEXPIRE', key, ARGV[3]) end",
      ),
    ],
  },
  {
    protection: "latches: a latch expires",
    without: "it is kept forever",
    subject: "latches",
    patches: [semaphore("latch.lua.ts", "call('PEXPIRE', key, ARGV[3])", "")],
  },
];
