/**
 * The scheduler in one term: one timer for all schedules; what is due is claimed in one request per node, then run.
 *
 * Guaranteed: a handler is called only for a tick that this term has claimed on a quorum; the session ends when the term does, after its
 * handlers have. A tick that could not be claimed is claimed again, as long as it lies in the window. A node that was away and has missed
 * the end of a tick, a request that was taken, or an order to pause or resume is told with the next poll that it answers, or the one
 * after. Not guaranteed: that a handler which ignores its signal ends with the term.
 */
import type { Clock } from "@x/redlock-core";
import { type LinkedSignal, linkSignals, onAbort, sleep } from "@x/redlock-core/protocol";
import type { Emitter } from "../kit/emitter.ts";
import { eachInSlices, Slice } from "../kit/slice.ts";
import type { LeaderTerm } from "../term/term.ts";
import { advance, type Entry, isCatchingUp, type Job, type Track, trackOf } from "./entry.ts";
import type { SchedulerEvents } from "./events.ts";
import { Notes } from "./notes.ts";
import { decideOverlap, type OverlapDecision } from "./overlap.ts";
import { type Plan, planInSteps } from "./plan.ts";
import { tellMissed, tellSkipped } from "./report.ts";
import { Requests } from "./requests.ts";
import { Runner } from "./runner.ts";
import {
  CLAIMS_PER_REQUEST,
  type Claim,
  type Pause,
  type PendingTick,
  type StoredState,
  type TickStore,
} from "./store.ts";
import { tickId } from "./tick.ts";

export interface SessionParts {
  readonly term: LeaderTerm;
  readonly store: TickStore;
  readonly clock: Clock;
  readonly random: () => number;
  readonly entries: ReadonlyMap<string, Entry>;
  readonly concurrency: number;
  readonly events: Emitter<SchedulerEvents>;
  /** Aborts when this scheduler is to run no more ticks, also in a term that goes on. */
  readonly stop: AbortSignal;
}

/** How often pauses, requests and lost node states are looked for if no message tells of them. */
const POLL_MS = 5_000;
/** Before the next try after too few nodes answered. */
const RETRY_MS = 100;
/** What is claimed in one slice travels in one request. */
const CLAIM_SLICE_MS = 10;
/** A wall clock that was stepped is noticed this late. */
const LONGEST_SLEEP_MS = 30_000;

interface Intention {
  readonly track: Track;
  readonly plan: Plan;
  readonly claims: readonly Claim[];
  readonly decisions: readonly OverlapDecision[];
  readonly isBacklog: boolean;
}

export class Session {
  readonly #parts: SessionParts;
  readonly #tracks = new Map<string, Track>();
  readonly #runner: Runner;
  /** Aborts when no tick is to begin any more. */
  readonly #over: LinkedSignal;
  readonly #notes: Notes;
  readonly #requests: Requests;
  /** At-least-once ticks, and what was triggered, that do not begin in this term any more. */
  readonly #left: Job[] = [];
  #hasLoaded = false;
  /** Ticks of an earlier leader that are to run again, once a majority holds them under this term. */
  #unheld: PendingTick[] = [];
  readonly #pauses = new Map<string, Pause>();
  #nextPollMs = 0;
  #polling: Promise<void> | undefined;
  /** A node has lost its state: what all of them know is read with the next poll, then restored. */
  #mustRead = false;
  #toRestore: StoredState | undefined;
  #isNudged = false;
  /** Schedules may have been taken out since the tracks were compared with them. */
  #mayDiffer = false;
  #wake: () => void = () => undefined;

  constructor(parts: SessionParts) {
    this.#parts = parts;
    this.#notes = new Notes(parts);
    this.#requests = new Requests(parts);
    this.#runner = new Runner({
      ...parts,
      finished: (tick) => this.#notes.end(tick),
      left: (tick) => this.#left.push(tick),
    });
    this.#over = linkSignals(parts.term.signal, parts.stop);
    onAbort(this.#over.signal, () => this.#runner.end());
  }

  /** Looks at schedules, pauses and requests again, now. */
  nudge(isNews: boolean): void {
    if (isNews) this.#nextPollMs = 0;
    this.#isNudged = true;
    this.#mayDiffer = true;
    this.#wake();
  }

  runningOf(name: string): number {
    return this.#runner.runsOf(name).running.size;
  }

  /** Resolves when the term is over, or asked to end, and no handler runs any more. Never rejects. */
  async run(): Promise<void> {
    const { term } = this.#parts;
    while (!this.#over.signal.aborted && term.isCurrent()) {
      this.#isNudged = false;
      let waitMs = RETRY_MS;
      try {
        waitMs = await this.#step();
      } catch (error) {
        this.#parts.events.emit("error", error);
      }
      await this.#pause(waitMs);
    }
    await this.#runner.idle();
    await this.#polling;
    // Also when the term is over: until there is a newer one, the nodes take it.
    while (!(await this.#handOver()) && term.isCurrent()) await sleep(this.#parts.clock, RETRY_MS);
    this.#over.unlink();
  }

  /** The next leader is told what has ended; what has not begun here was no attempt. False if too few nodes have answered. */
  async #handOver(): Promise<boolean> {
    const { term, store, events } = this.#parts;
    const ticks = this.#left.filter(({ request }) => request === undefined);
    const requests = this.#left.flatMap(({ request }) => request ?? []);
    const left = [...ticks, ...this.#unheld];
    try {
      await store.claim(
        term.term,
        left.map((tick) => holdOf({ ...tick, attempt: tick.attempt - 1 })),
      );
      await store.repeatRequests(term.term, requests);
      await this.#notes.flush();
      return true;
    } catch (error) {
      events.emit("error", error);
      return false;
    }
  }

  /** Returns the milliseconds until the next one. */
  async #step(): Promise<number> {
    const { term, clock } = this.#parts;
    if (this.#mayDiffer) this.#forgetRemoved();
    if (!this.#isLoaded) await this.#load();
    if (clock.monotonicMs() >= this.#nextPollMs && this.#polling === undefined) this.#pollBeside();
    if (this.#toRestore !== undefined) await this.#restore(this.#toRestore);
    if (this.#unheld.length > 0) await this.#hold();
    if (!this.#over.signal.aborted) await this.#takeRequests();
    if (this.#over.signal.aborted) return 0;
    const isComplete = await this.#claimDue();
    this.#notes.settle((name) => this.#tracks.get(name)?.accountedMs);
    if (this.#notes.hasEnded) await this.#notes.flush();
    if (!isComplete || !this.#isLoaded || this.#unheld.length > 0 || !term.isCurrent()) return RETRY_MS;
    const untilPollMs = this.#polling === undefined ? this.#nextPollMs - clock.monotonicMs() : LONGEST_SLEEP_MS;
    return Math.max(0, Math.ceil(Math.min(LONGEST_SLEEP_MS, untilPollMs, this.#untilTickMs())));
  }

  /** Of ten thousand calendars, which take a second to ask, some are asked in each step; 0 while others are left. */
  #untilTickMs(): number {
    const { clock } = this.#parts;
    const slice = new Slice(clock);
    const nowMs = clock.wallMs();
    let waitMs = Number.POSITIVE_INFINITY;
    for (const track of this.#tracks.values()) {
      if (track.retryMs !== undefined && track.retryMs <= clock.monotonicMs()) track.nextMs = undefined;
      if (track.nextMs === undefined) {
        if (slice.isOver) return 0;
        this.#guarded(track, () => {
          track.nextMs = track.entry.calendar.next(track.accountedMs);
        });
      }
      if (typeof track.nextMs === "number") waitMs = Math.min(waitMs, track.nextMs + track.delayMs - nowMs);
    }
    return waitMs;
  }

  /** What was removed has no track: so there are as many tracks as schedules, once each has one. */
  get #isLoaded(): boolean {
    return this.#tracks.size === this.#parts.entries.size;
  }

  /** What is stored of them is read again if they are added again; until then nothing of them is done. */
  #forgetRemoved(): void {
    this.#mayDiffer = false;
    for (const { entry } of this.#tracks.values()) {
      const { name } = entry;
      if (this.#parts.entries.get(name) === entry) continue;
      this.#tracks.delete(name);
      this.#unheld = this.#unheld.filter((tick) => tick.name !== name);
      this.#runner.dropWaiting(name, "removed", () => true);
    }
  }

  /** Finds out how far each schedule is dealt with, and what an earlier leader left unfinished. */
  async #load(): Promise<void> {
    const { entries, term, store, clock } = this.#parts;
    const state = await store.read(term.term, true);
    if (state.isStale) return this.#untilOver();
    // An earlier session of this term has left its own to the next leader.
    if (!this.#hasLoaded) for (const tick of state.noted) if (tick.term === term.term) this.#notes.keep(tick);
    this.#hasLoaded = true;
    const nowMs = Math.floor(clock.wallMs());
    const fresh = [...entries.values()].filter((entry) => !this.#tracks.has(entry.name));
    const unknown = fresh.filter((entry) => !state.schedules.has(entry.name));
    const seeded = await store.claim(
      term.term,
      unknown.map((entry) => ({ name: entry.name, atMs: nowMs, lastMs: 0, missed: 0, mode: "skip", attempt: 1 })),
    );
    if (seeded.isStale) return this.#untilOver();
    if (seeded.outcomes.some((outcome) => outcome.kind === "open")) return;
    const tracks = new Map<string, Track>();
    await eachInSlices(clock, fresh, (entry) => {
      const stored = state.schedules.get(entry.name);
      const track = trackOf(entry, stored?.accountedMs ?? nowMs);
      track.lastMs = stored?.lastMs ?? 0;
      track.missed = stored?.missed ?? 0;
      advance(track, track.accountedMs, this.#parts.random);
      tracks.set(entry.name, track);
    });
    // In one turn with taking over what is unfinished: a poll that knew only the tracks would end that.
    for (const [name, track] of tracks) this.#tracks.set(name, track);
    this.#setPauses(state);
    if (state.sawBlank) this.#toRestore = state;
    await this.#takeOver(state, tracks);
  }

  /** Ticks that an earlier leader started and did not finish are held on the nodes under this term, then run again. */
  async #takeOver(state: StoredState, tracks: ReadonlyMap<string, Track>): Promise<void> {
    const pending = state.pending.filter((tick) => tracks.has(tick.name));
    const again = pending.filter((tick) => {
      const options = tracks.get(tick.name)?.entry.options;
      return options?.delivery === "at-least-once" && tick.attempt < options.maxAttempts;
    });
    for (const tick of pending) {
      if (again.includes(tick)) continue;
      this.#notes.end(tick);
      tellSkipped(this.#parts, tick, "attempts");
    }
    for (const { name, atMs, attempt } of again) {
      const tick = { name, atMs, attempt: attempt + 1 };
      this.#notes.keep(tick);
      this.#unheld.push(tick);
    }
    if (again.length > 0) await this.#hold();
  }

  /** Too few nodes may answer: what is not held by a majority is held with the next step. */
  async #hold(): Promise<void> {
    const { term, store } = this.#parts;
    const ticks = this.#unheld.splice(0);
    const held = await store.claim(term.term, ticks.map(holdOf)).catch((error: unknown) => {
      this.#unheld.push(...ticks);
      throw error;
    });
    if (held.isStale) return this.#untilOver();
    for (const [index, tick] of ticks.entries()) {
      const track = this.#tracks.get(tick.name);
      if (track === undefined) continue;
      if (held.outcomes[index]?.kind !== "claimed") this.#unheld.push(tick);
      else this.#runner.launch(this.#job(track, { ...tick, isCatchup: true, isBacklog: true }), "queue");
    }
  }

  /** Waits for every node, also a slow one, and so beside the ticks; wakes the session when it knows. Never rejects. */
  #pollBeside(): void {
    this.#nextPollMs = this.#parts.clock.monotonicMs() + POLL_MS;
    this.#polling = this.#poll()
      .catch((error: unknown) => this.#parts.events.emit("error", error))
      .finally(() => {
        this.#polling = undefined;
        this.nudge(false);
      });
  }

  async #poll(): Promise<void> {
    const { term, store } = this.#parts;
    const isAll = this.#mustRead;
    this.#mustRead = false;
    const state = await store.read(term.term, isAll);
    if (state.isStale) return;
    if (isAll) this.#toRestore = state;
    else if (state.sawBlank) this.#sawBlank();
    this.#setPauses(state);
    this.#requests.see(state.requests);
    // What is not known here is left to a leader that has it, and until all is read, what an earlier session of this term has left.
    if (this.#hasLoaded)
      this.#notes.tidy(state.noted, (tick) => tick.term === term.term || this.#tracks.has(tick.name));
    await this.#repeatPauses((name) => state.halfPaused.includes(name));
    await this.#requests.tidy(state);
  }

  /** To nodes that missed them: a later leader may hear of those only. */
  async #repeatPauses(isMeant: (name: string) => boolean): Promise<void> {
    const { store } = this.#parts;
    const orders = [...this.#pauses].filter(([name]) => isMeant(name));
    await Promise.all(orders.map(([name, pause]) => store.restorePause(name, pause)));
  }

  #setPauses(state: StoredState): void {
    for (const [name, pause] of state.paused) {
      if (pause.version >= (this.#pauses.get(name)?.version ?? 0)) this.#pauses.set(name, pause);
    }
    for (const track of this.#tracks.values()) this.#setPause(track);
  }

  #setPause(track: Track): void {
    const pause = this.#pauses.get(track.entry.name);
    track.isPaused = pause?.isPaused ?? track.entry.options.paused;
    if (track.isPaused) this.#dropPaused(track);
    else if (pause !== undefined) this.#passOver(track, pause.resumedMs);
  }

  /** Ticks from before the end of a pause are dealt with. If that is yet to come, clocks differ: to wait for it would hold the schedule up. */
  #passOver(track: Track, resumedMs: number): void {
    const { clock, random } = this.#parts;
    if (resumedMs > track.accountedMs && resumedMs <= clock.wallMs()) advance(track, resumedMs, random);
  }

  #dropPaused(track: Track): void {
    this.#runner.dropWaiting(track.entry.name, "paused", (job) => job.request === undefined);
  }

  #sawBlank(): void {
    this.#mustRead = true;
    this.#nextPollMs = 0;
  }

  /** A node that lost its state gets it again, also that of schedules which only other leaders have; the others keep theirs. */
  async #restore(state: StoredState): Promise<void> {
    const { term, store, clock } = this.#parts;
    this.#toRestore = undefined;
    const requests = this.#requests.untaken(state.requests);
    if (!(await store.repeatRequests(term.term, requests))) return this.#untilOver();
    const claims: Claim[] = [];
    await eachInSlices(clock, this.#tracks.values(), ({ entry, accountedMs, lastMs, missed }) =>
      claims.push({ name: entry.name, atMs: accountedMs, lastMs, missed, mode: "skip", attempt: 1 }),
    );
    for (const [name, { accountedMs, lastMs, missed }] of state.schedules)
      if (!this.#tracks.has(name)) claims.push({ name, atMs: accountedMs, lastMs, missed, mode: "skip", attempt: 1 });
    const held = this.#notes.live();
    claims.push(...held.map(holdOf));
    for (const tick of state.pending)
      if (!this.#tracks.has(tick.name)) claims.push({ ...holdOf(tick), term: tick.term });
    const restored = await store.claim(term.term, claims, true);
    if (restored.isStale) return this.#untilOver();
    // What ended meanwhile may have been noted after its end.
    for (const tick of held) if (!this.#notes.mayRun(tick)) this.#notes.end(tick);
    await this.#repeatPauses(() => true);
  }

  async #takeRequests(): Promise<void> {
    const taken = await this.#requests.take((name) => this.#tracks.has(name));
    if (taken === undefined) return this.#untilOver();
    for (const request of taken) {
      const track = this.#tracks.get(request.name);
      if (track === undefined) continue;
      const job = this.#job(track, { atMs: request.atMs, isCatchup: false, isBacklog: false, attempt: 1 }, request.id);
      this.#runner.launch({ ...job, delivery: "at-most-once", request }, "queue");
    }
  }

  /** Of what is due, claims and launches as much as there is time for in a slice; false if some of that has to be claimed again. */
  async #claimDue(): Promise<boolean> {
    const { term, store } = this.#parts;
    const intentions = this.#intentions();
    if (intentions.length === 0) return true;
    const claims = intentions.flatMap((intention) => intention.claims);
    this.#notes.ask(claims);
    const claimed = await store.claim(term.term, claims);
    if (claimed.isStale) {
      await this.#untilOver();
      return true;
    }
    if (claimed.sawBlank) this.#sawBlank();
    let offset = 0;
    let isComplete = true;
    for (const { track, plan, claims: own, decisions, isBacklog } of intentions) {
      const outcomes = claimed.outcomes.slice(offset, offset + own.length);
      offset += own.length;
      const openAt = outcomes.findIndex((outcome) => outcome.kind === "open");
      isComplete &&= openAt === -1;
      if (openAt !== 0 && plan.missed > 0) {
        track.missed += plan.missed;
        tellMissed(this.#parts, { name: track.entry.name, atMs: track.accountedMs }, plan.missed);
      }
      for (const [index, claim] of own.entries()) {
        const outcome = outcomes[index];
        if (outcome === undefined || outcome.kind === "open") break;
        const tick = plan.fire[index];
        if (outcome.kind === "taken") track.accountedMs = Math.max(track.accountedMs, outcome.accountedMs);
        else if (tick !== undefined)
          this.#afterClaim(track, { ...tick, isBacklog }, outcome.kind, decisions[index] ?? "run");
        advance(track, claim.atMs, this.#parts.random);
      }
    }
    return isComplete;
  }

  #intentions(): readonly Intention[] {
    const { clock } = this.#parts;
    const nowMs = clock.wallMs();
    const due = this.#dueAt(nowMs);
    const slice = new Slice(clock, CLAIM_SLICE_MS);
    const intentions: Intention[] = [];
    let claimCount = 0;
    for (const track of due) {
      const plan = this.#guarded(track, () => this.#plan(track, nowMs - track.delayMs, slice));
      if (plan !== undefined) {
        const intention = this.#intend(track, plan);
        intentions.push(intention);
        claimCount += intention.claims.length;
      }
      if (slice.isOver || claimCount >= CLAIMS_PER_REQUEST) break;
    }
    return intentions;
  }

  /** The longest overdue first: what is due again at once cannot keep the others from their turn. */
  #dueAt(nowMs: number): readonly Track[] {
    const dueMs = ({ nextMs, delayMs }: Track): number =>
      typeof nextMs === "number" ? nextMs + delayMs : Number.POSITIVE_INFINITY;
    const due: Track[] = [];
    for (const track of this.#tracks.values()) if (dueMs(track) <= nowMs) due.push(track);
    return due.sort((a, b) => dueMs(a) - dueMs(b));
  }

  /** A calendar of the user's that throws holds up its own schedule only; it is asked again later. */
  #guarded<T>(track: Track, ask: () => T): T | undefined {
    try {
      track.retryMs = undefined;
      return ask();
    } catch (error) {
      track.nextMs = null;
      track.planning = undefined;
      track.retryMs = this.#parts.clock.monotonicMs() + LONGEST_SLEEP_MS;
      this.#parts.events.emit("error", error);
      return undefined;
    }
  }

  /** Undefined: the slice was over before its ticks were found; the next step goes on. */
  #plan(track: Track, nowMs: number, slice: Slice): Plan | undefined {
    const { calendar, options } = track.entry;
    track.planning ??= planInSteps({
      calendar,
      accountedMs: track.accountedMs,
      nowMs,
      catchup: options.catchup,
      windowMs: options.catchupWindow,
      maxCatchup: options.maxCatchup,
    });
    for (;;) {
      const step = track.planning.next();
      if (step.done === true) {
        track.planning = undefined;
        return step.value;
      }
      if (slice.isOver) return undefined;
    }
  }

  #intend(track: Track, plan: Plan): Intention {
    const { options, name } = track.entry;
    const runs = this.#runner.runsOf(name);
    const { running, queue } = runs;
    const occupancy = { running: running.size, queued: queue.length };
    const isLate = plan.fire.length > 1 || plan.fire.some((tick) => tick.isCatchup);
    const isBacklog = options.catchup === "all" && (isLate || isCatchingUp(runs));
    const missed = track.missed + plan.missed;
    const decisions: OverlapDecision[] = [];
    const claims = plan.fire.map((tick): Claim => {
      const decision = track.isPaused
        ? "skip"
        : decideOverlap(options.overlap, occupancy, { isPart: isBacklog, mostQueued: options.maxCatchup });
      decisions.push(decision);
      if (decision === "run") occupancy.running += 1;
      else if (decision !== "skip") occupancy.queued += 1;
      const mode = decision === "skip" ? "skip" : options.delivery === "at-least-once" ? "least" : "once";
      return {
        name,
        atMs: tick.atMs,
        lastMs: decision === "skip" ? track.lastMs : tick.atMs,
        missed,
        mode,
        attempt: 1,
        pauseVersion: this.#pauses.get(name)?.version,
      };
    });
    if (claims.length === 0)
      claims.push({ name, atMs: plan.accountedMs, lastMs: track.lastMs, missed, mode: "skip", attempt: 1 });
    return { track, plan, claims, decisions, isBacklog };
  }

  #afterClaim(
    track: Track,
    tick: Pick<Job, "atMs" | "isCatchup" | "isBacklog">,
    kind: "claimed" | "paused",
    decision: OverlapDecision,
  ): void {
    if (kind === "claimed" && decision !== "skip") {
      const job = this.#job(track, { ...tick, attempt: 1 });
      track.lastMs = tick.atMs;
      this.#notes.claimed(job);
      this.#runner.launch(job, decision);
      return;
    }
    if (kind === "paused" && !track.isPaused) {
      track.isPaused = true;
      this.#dropPaused(track);
    }
    tellSkipped(this.#parts, { name: track.entry.name, atMs: tick.atMs }, track.isPaused ? "paused" : "overlap");
  }

  #job(track: Track, tick: Pick<Job, "atMs" | "isCatchup" | "isBacklog" | "attempt">, suffix = ""): Job {
    return {
      track,
      name: track.entry.name,
      ...tick,
      id: tickId(track.entry.name, tick.atMs, suffix),
      delivery: track.entry.options.delivery,
      request: undefined,
      lastMs: track.lastMs,
    };
  }

  /** A newer term was seen: the deadline ends this one at the latest. */
  async #untilOver(): Promise<void> {
    const { signal } = this.#over;
    if (!signal.aborted) await new Promise<void>((resolve) => onAbort(signal, resolve));
  }

  /** Until a nudge, the end of the term, or `ms`; others have a turn of the event loop in any case. */
  async #pause(ms: number): Promise<void> {
    if (this.#isNudged) return;
    const woken = linkSignals(this.#over.signal);
    this.#wake = () => woken.abort(undefined);
    await sleep(this.#parts.clock, ms, woken.signal).catch(() => undefined);
    this.#wake = () => undefined;
    woken.unlink();
  }
}

function holdOf({ name, atMs, attempt }: PendingTick): Claim {
  return { name, atMs, lastMs: 0, missed: 0, mode: "hold", attempt };
}
