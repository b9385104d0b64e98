/**
 * Candidates of one way, each in its own process: records which candidate leads since when, and how its leadership
 * ends.
 */
import { setTimeout as delay } from "node:timers/promises";
import { machineMs, type RedisServer } from "@x/test-support";
import { JobChild } from "../support/jobs.ts";
import type { Durations } from "./ballot.ts";
import type { IdleResult, LeaderArguments, LeaderJob } from "./child.ts";
import type { TermInterval } from "./terms.ts";
import type { WayName } from "./ways.ts";

export interface ContestSettings {
  readonly candidates: number;
  readonly durations: Durations;
  /** A failover that takes longer is cut off. */
  readonly limitMs: number;
}

interface ObservedTerm {
  readonly leader: JobChild;
  readonly fromMs: number;
  /** Whether its process has led before, so that the code of a term is compiled. */
  readonly isWarm: boolean;
  /** The last moment at which its program believed to lead. Undefined if not known yet. */
  toMs: number | undefined;
}

export interface Failover {
  /** Milliseconds until the next candidate led. Undefined if the failover was cut off. */
  readonly tookMs: number | undefined;
  /** Whether the next leader had led before. */
  readonly isWarm: boolean;
}

/** Longer than any contest, because a follower may wait for its turn all the time. */
const patienceMs = 600_000;

export class Contest implements AsyncDisposable {
  readonly #settings: ContestSettings;
  readonly #candidates = new Set<JobChild>();
  readonly #haveLed = new Set<JobChild>();
  readonly #terms: ObservedTerm[] = [];
  readonly #current = new Set<ObservedTerm>();
  readonly #waiting = new Set<(term: ObservedTerm) => void>();
  readonly #failures: unknown[] = [];
  #lostTerms = 0;

  private constructor(settings: ContestSettings) {
    this.#settings = settings;
  }

  /** Resolves when all candidates campaign and one of them leads. */
  static async start(
    file: URL,
    way: WayName,
    servers: readonly RedisServer[],
    settings: ContestSettings,
  ): Promise<Contest> {
    const contest = new Contest(settings);
    const args: LeaderArguments = {
      way,
      nodes: servers.map(({ host, port }) => ({ host, port })),
      durations: settings.durations,
    };
    for (let index = 0; index < settings.candidates; index += 1) {
      contest.#candidates.add(new JobChild(file, `${way} ${index + 1}`, [JSON.stringify(args)]));
    }
    try {
      // When all processes have answered, all have started.
      await contest.idle(0);
      const first = contest.#nextTerm();
      for (const candidate of contest.#candidates) {
        contest.#campaign(candidate);
        // Like independent replicas, candidates that poll do not all ask at the same moment.
        await delay(settings.durations.retryPeriodMs / settings.candidates);
      }
      if ((await first) === undefined) throw new Error(`${way}: nobody leads after ${settings.limitMs} ms`);
      return contest;
    } catch (error) {
      await contest[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Number of terms that ended without a request. */
  get lostTerms(): number {
    return this.#lostTerms;
  }

  /** Measures the processes of all candidates while no leader changes. Resolves with one result for each process. */
  async idle(durationMs: number): Promise<readonly IdleResult[]> {
    const job: LeaderJob = { kind: "idle", durationMs };
    return await Promise.all([...this.#candidates].map((candidate) => candidate.ask<IdleResult>(job)));
  }

  /** The leader resigns, and campaigns again when the next candidate leads. */
  async resign(): Promise<Failover> {
    const term = await this.#take();
    if (term === undefined) return GIVEN_UP;
    const next = this.#nextTerm();
    const job: LeaderJob = { kind: "resign" };
    term.toMs = await term.leader.ask<number>(job);
    const following = await next;
    this.#campaign(term.leader);
    return failover(term.toMs, following);
  }

  /** Kills the leader's process, which stays away. Otherwise like `resign`. */
  async crash(): Promise<Failover> {
    const term = await this.#take();
    if (term === undefined) return GIVEN_UP;
    const next = this.#nextTerm();
    this.#candidates.delete(term.leader);
    term.toMs = machineMs();
    await term.leader.stop();
    const following = await next;
    return failover(term.toMs, following);
  }

  /**
   * Ends the contest, and returns the observed terms.
   *
   * @throws an error with which a candidate failed.
   */
  async end(): Promise<readonly TermInterval[]> {
    const endMs = machineMs();
    await this[Symbol.asyncDispose]();
    if (this.#failures.length > 0) throw this.#failures[0];
    return this.#terms.map(({ fromMs, toMs }) => ({ fromMs, toMs: toMs ?? endMs }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const candidates = [...this.#candidates];
    this.#candidates.clear();
    await Promise.all(candidates.map((candidate) => candidate.stop()));
  }

  /**
   * Returns the current term, which is about to be ended. If no candidate leads at this moment, returns the next term.
   */
  async #take(): Promise<ObservedTerm | undefined> {
    const term = [...this.#current][0] ?? (await this.#nextTerm());
    if (term !== undefined) this.#current.delete(term);
    return term;
  }

  #nextTerm(): Promise<ObservedTerm | undefined> {
    return new Promise((resolve) => {
      const settle = (term?: ObservedTerm): void => {
        clearTimeout(timer);
        this.#waiting.delete(settle);
        resolve(term);
      };
      const timer = setTimeout(settle, this.#settings.limitMs);
      this.#waiting.add(settle);
    });
  }

  #campaign(candidate: JobChild): void {
    void this.#follow(candidate).catch((error: unknown) => {
      // A process that was stopped no longer answers.
      if (this.#candidates.has(candidate)) this.#failures.push(error);
    });
  }

  async #follow(leader: JobChild): Promise<void> {
    const campaign: LeaderJob = { kind: "campaign" };
    const loss: LeaderJob = { kind: "loss" };
    const fromMs = await leader.ask<number>(campaign, patienceMs);
    const term: ObservedTerm = { leader, fromMs, isWarm: this.#haveLed.has(leader), toMs: undefined };
    this.#haveLed.add(leader);
    this.#terms.push(term);
    this.#current.add(term);
    for (const settle of this.#waiting) settle(term);
    const lostMs = await leader.ask<number>(loss, patienceMs);
    if (!this.#current.delete(term)) return;
    term.toMs = lostMs;
    this.#lostTerms += 1;
    this.#campaign(leader);
  }
}

const GIVEN_UP: Failover = { tookMs: undefined, isWarm: false };

function failover(fromMs: number, following: ObservedTerm | undefined): Failover {
  return following === undefined ? GIVEN_UP : { tookMs: following.fromMs - fromMs, isWarm: following.isWarm };
}
