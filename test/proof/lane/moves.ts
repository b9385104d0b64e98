/** The steps of processes and operators: each calls BullMQ and the lane, and changes the model accordingly. */
import type { Job } from "bullmq";
import { slotSuffix } from "../../../packages/workers/src/rules/entity-key.ts";
import { parseCancel } from "../../../packages/workers/src/scripts/operator-replies.ts";
import { LOCK_PREFIX, PREFIX } from "../../simulation/lanes/names.ts";
import { fetchAsLoop, installed } from "../../simulation/lanes/release.ts";
import { type LaneData, NEAR_MS } from "../../simulation/lanes/setting.ts";
import type { LaneWorld, Member } from "../../simulation/lanes/world.ts";
import * as spec from "./spec.ts";
import type { Bounds, Draft, HeldLock, Process, Way } from "./state.ts";
import { copyOf, LOST, Refusal, type Wire } from "./wire.ts";

/** How long a delay and a back-off take, and a pause with an end. */
const DELAY_MS = NEAR_MS;
const PAUSE_MS = NEAR_MS;

interface MovesParts {
  readonly world: LaneWorld;
  readonly member: Member;
  readonly bounds: Bounds;
  readonly wire: Wire;
  /** The Lua library of the lock. */
  readonly library: string;
}

export class Moves {
  readonly #parts: MovesParts;
  #tokens = 0;

  constructor(parts: MovesParts) {
    this.#parts = parts;
  }

  async add(draft: Draft, id: string, keys: readonly string[]): Promise<void> {
    const { world, bounds } = this.#parts;
    const [key = ""] = keys;
    const backoff = { type: "fixed", delay: bounds.backoffMs };
    await world.queue.add(
      "step",
      { k: keys.length === 1 ? key : keys },
      { jobId: id, attempts: bounds.attempts, backoff },
    );
    draft.spec = spec.add(draft.spec, id, keys);
  }

  async fetch(draft: Draft, isLost: boolean): Promise<void> {
    const { wire } = this.#parts;
    const token = this.#newToken();
    const outcome = await wire.outcomeOf(async () => await this.#fetchOne(token), isLost);
    if (outcome instanceof Refusal) throw new Error("a fetch was refused");
    if (outcome !== LOST) return this.#receive(draft, outcome, token);
    const again = { way: "fetches" as const, doesFetch: false, command: wire.takeSent(), sentMs: draft.nowMs };
    const process: Process = {
      phase: "sends again",
      token,
      id: "",
      job: undefined,
      taken: undefined,
      lock: undefined,
      again,
    };
    draft.processes = [...draft.processes, process];
  }

  /** Acquires the lock of a job with a request, or sends the job back to wait for its lock. */
  async ask(draft: Draft, process: Process): Promise<void> {
    const { id, job, token } = process;
    const [key = ""] = spec.jobOf(draft.spec, id).keys;
    const lock = { name: key + slotSuffix(draft.before.slotOf(id, key)), token: `asked-${this.#newToken()}` };
    const number = await this.#lockIfFree(lock);
    if (number !== undefined) {
      draft.result = "granted";
      grant(draft, id, number);
      draft.replace(process, { ...process, phase: "runs", lock });
      return;
    }
    draft.result = "the lock is held, so the job waits";
    const dueMs = draft.nowMs + NEAR_MS;
    const moveToDelayed = async (): Promise<void> => await copyOf(job as Job).moveToDelayed(dueMs, token);
    await this.#parts.member.lane.moveBack({ jobId: id, token }, { place: 1 }, moveToDelayed);
    draft.remove(process);
    draft.spec = spec.changeJob(draft.spec, id, { state: "waiting", dueMs });
  }

  /** Lets a process leave its job. With `doesFetch`, the reply brings the next job. */
  async end(
    draft: Draft,
    process: Process,
    { way, doesFetch, isLost }: { readonly way: Way; readonly doesFetch: boolean; readonly isLost: boolean },
  ): Promise<void> {
    const { wire } = this.#parts;
    const { id, token, phase } = process;
    const outcome = await wire.outcomeOf(async () => await this.#sendEnd(draft, process, way, doesFetch), isLost);
    if (outcome instanceof Refusal) return this.#onRefusal(draft, process, way, outcome);
    if (phase === "lost its job") {
      draft.violation = `${id} was ended by a process that had lost it`;
      return;
    }
    if (spec.jobOf(draft.spec, id).isCancelled && !way.startsWith("fails")) {
      draft.violation = `${id} ${way}, although it was cancelled`;
    }
    this.#noteEnd(draft, process, way);
    if (outcome === LOST) {
      const again = { way, doesFetch, command: wire.takeSent(), sentMs: draft.nowMs };
      draft.replace(process, { ...process, phase: "sends again", lock: undefined, again });
      return;
    }
    draft.remove(process);
    if (outcome !== undefined) this.#receive(draft, outcome, token);
    else if (doesFetch) draft.result = "no job";
  }

  /** Sends a command again whose reply was lost. */
  async sendAgain(draft: Draft, process: Process): Promise<void> {
    const { again, token } = process;
    if (again === undefined) throw new Error("nothing to send again");
    const { way, doesFetch, command } = again;
    this.#parts.wire.sendAgain(command);
    const call = async (): Promise<Job<LaneData> | undefined> =>
      way === "fetches" ? await this.#fetchOne(token) : await this.#sendEnd(draft, process, way, doesFetch);
    const outcome = await this.#parts.wire.outcomeOf(call, false);
    if (outcome === LOST) throw new Error("a reply was lost twice");
    if (outcome instanceof Refusal) return this.#onRefusal(draft, process, way, outcome);
    draft.remove(process);
    // The command contains the time at which it was first sent, so it may find less than a new one.
    if (outcome === undefined) draft.result = "no job";
    else this.#receive(draft, outcome, token);
  }

  /** A process dies. BullMQ's lock of its job expires in the same step: until then, the process could only be slow. */
  async die(draft: Draft, process: Process): Promise<void> {
    await this.#loseJob(draft, process);
    draft.remove(process);
  }

  async freeze(draft: Draft, process: Process): Promise<void> {
    await this.#loseJob(draft, process);
    draft.replace(process, { ...process, phase: "lost its job" });
  }

  /** A process notices that it has lost its job, and releases the lock of the key. */
  drop(draft: Draft, process: Process): void {
    draft.remove(process);
    if (process.lock !== undefined) draft.releases = [...draft.releases, process.lock];
  }

  async expireJobLock(id: string): Promise<void> {
    await this.#parts.world.redis.del(`${PREFIX}${id}:lock`);
  }

  async expireKeyLock(draft: Draft, name: string, holder: Process | undefined): Promise<void> {
    await this.#parts.world.redis.del(LOCK_PREFIX + name);
    if (holder !== undefined) draft.replace(holder, { ...holder, lock: undefined });
  }

  async loseKeyLock(draft: Draft, process: Process, lock: HeldLock): Promise<void> {
    await this.#parts.world.redis.del(LOCK_PREFIX + lock.name);
    draft.replace(process, { ...process, lock: { ...lock, isLost: true } });
  }

  async lockPlainly(draft: Draft, key: string): Promise<void> {
    const lock = { name: key, token: `plain-${this.#newToken()}` };
    grant(draft, "plain code", (await this.#lockIfFree(lock)) ?? 0);
    draft.processes = [
      ...draft.processes,
      { phase: "plain code", token: lock.token, id: "", job: undefined, taken: undefined, lock },
    ];
  }

  async release(draft: Draft, lock: HeldLock): Promise<void> {
    const { world, library } = this.#parts;
    draft.releases = draft.releases.filter((each) => each !== lock);
    const script = `${library}return unlockIfUnwanted(KEYS[1], ARGV[1])`;
    await world.redis.eval(script, 1, LOCK_PREFIX + lock.name, lock.token);
  }

  async bringBack(): Promise<void> {
    const { world, member } = this.#parts;
    // The first round marks the active jobs. The second round brings back the jobs without a lock.
    for (let round = 0; round < 2; round += 1) {
      await world.redis.del(`${PREFIX}stalled-check`);
      await member.worker.moveStalledJobsToWait();
    }
  }

  async wake(draft: Draft, id: string): Promise<void> {
    const isWoken = (await this.#parts.member.lane.operate("wake", id)) === 1;
    if (isWoken) draft.spec = spec.changeJob(draft.spec, id, { dueMs: 0 });
    else draft.violation = `${id} waits for its lock, and is not woken`;
  }

  async cancel(draft: Draft, id: string): Promise<void> {
    const note = JSON.stringify({ reason: "by hand", by: "an operator", atMs: 0 });
    const { found } = parseCancel(await this.#parts.member.lane.operate("cancel", id, note, "cancelled", 1));
    draft.result = found;
    draft.spec =
      found === "running"
        ? spec.changeJob(draft.spec, id, { isCancelled: true })
        : spec.dropKeys(draft.spec, id, { state: "ended" });
  }

  async removeJob(draft: Draft, id: string): Promise<void> {
    const job = await this.#parts.world.queue.getJob(id);
    await job?.remove();
    const isHolder = spec.jobOf(draft.spec, id).keys.some((key) => draft.before.holdersOf(key).includes(id));
    if (isHolder) draft.spec = spec.orphanKeys(draft.spec, id);
    draft.spec = spec.dropKeys(draft.spec, id, { state: "removed" });
  }

  async retryByHand(draft: Draft, id: string): Promise<void> {
    const job = await this.#parts.world.queue.getJob(id);
    await job?.retry("failed");
    draft.spec = spec.changeJob(draft.spec, id, { state: "waiting", dueMs: 0, isCancelled: false });
  }

  async pause(draft: Draft, key: string, isEndless: boolean): Promise<void> {
    await this.#parts.member.lane.operate("pause", key, "by hand", isEndless ? "" : PAUSE_MS);
    const pausedUntilMs = isEndless ? Number.POSITIVE_INFINITY : draft.nowMs + PAUSE_MS;
    draft.spec = spec.changeKey(draft.spec, key, { pausedUntilMs });
  }

  async resume(draft: Draft, key: string): Promise<void> {
    await this.#parts.member.lane.operate("resume", key);
    draft.spec = spec.changeKey(draft.spec, key, { pausedUntilMs: spec.UNPAUSED });
  }

  async changeLimit(draft: Draft, key: string, concurrency: number): Promise<void> {
    const policy = concurrency === 1 ? "" : JSON.stringify({ concurrency });
    await this.#parts.member.lane.operate("setPolicy", key, policy);
    draft.spec = spec.changeKey(draft.spec, key, { slots: concurrency });
  }

  async #fetchOne(token: string): Promise<Job<LaneData> | undefined> {
    const { worker } = this.#parts.member;
    worker.limitUntil = 0;
    return await fetchAsLoop(worker, token);
  }

  /** Receives the job of a reply. */
  #receive(draft: Draft, job: Job<LaneData> | undefined, token: string): void {
    if (job === undefined) {
      draft.result = "no job";
      draft.isIdle = true;
      return;
    }
    const id = String(job.id);
    draft.result = id;
    const taken = this.#parts.member.lane.handOut(id);
    if (taken === undefined) throw new Error(`the lane has no record of ${id}`);
    taken.attachTo(job);
    const lockToken = taken.claimLock();
    const { keys, isCancelled } = spec.jobOf(draft.spec, id);
    const process: Process = { phase: "must fail", token, id, job, taken, lock: undefined };
    if (taken.pin.kind === "cancelled") {
      if (!isCancelled) draft.violation = `${id} does not run, and was not cancelled`;
      draft.spec = spec.changeJob(draft.spec, id, { state: "running" });
      draft.processes = [...draft.processes, process];
      return;
    }
    draft.violation = spec.objectionTo(draft.spec, id, draft.nowMs);
    draft.spec = spec.handOut(draft.spec, id, true);
    const lock =
      lockToken === "" ? undefined : { name: (keys[0] ?? "") + slotSuffix(taken.slots?.[0]), token: lockToken };
    if (lock !== undefined) grant(draft, id, taken.fencingToken ?? 0);
    const mustFail = taken.pin.kind !== "keys" || job.deferredFailure !== undefined;
    const mustAsk = this.#parts.bounds.hasLocks && lock === undefined;
    const phase = mustFail ? "must fail" : mustAsk ? "asks for its lock" : "runs";
    draft.processes = [...draft.processes, { ...process, phase, lock }];
  }

  /** Sends the command with which a process leaves its job. Resolves with the next job. */
  async #sendEnd(
    draft: Draft,
    { id, job, token, lock, taken }: Process,
    way: Way,
    doesFetch: boolean,
  ): Promise<Job<LaneData> | undefined> {
    if (job === undefined) throw new Error("the process has no job");
    const own = copyOf(job);
    if (way === "completes") return await this.#complete(draft, own, { token, lock, taken, doesFetch });
    // Requests release the locks of jobs that do not complete.
    if (lock !== undefined) draft.releases = [...draft.releases, lock];
    const dueMs = draft.nowMs + DELAY_MS;
    const moveToDelayed = async (): Promise<void> => await own.moveToDelayed(dueMs, token);
    switch (way) {
      case "fails":
        return await this.#nextOf(own.moveToFailed(new Error("fails"), token, doesFetch), token);
      case "fails for good":
        return await this.#nextOf(own.moveToFailed(new installed.UnrecoverableError("fails"), token, doesFetch), token);
      case "delays itself":
        await moveToDelayed();
        return undefined;
      case "backs off":
        await this.#parts.member.lane.moveBack({ jobId: id, token }, { backOffMs: DELAY_MS }, moveToDelayed);
        return undefined;
    }
  }

  /** Completes a job. The script that completes the job releases its lock, or else a request does. */
  async #complete(
    draft: Draft,
    job: Job<LaneData>,
    { token, lock, taken, doesFetch }: Pick<Process, "token" | "lock" | "taken"> & { readonly doesFetch: boolean },
  ): Promise<Job<LaneData> | undefined> {
    let isReleased = lock === undefined;
    const onReply = (was: boolean): void => void (isReleased = was);
    if (lock !== undefined) taken?.leaveLockInstruction({ kind: "release-held", token: lock.token, onReply });
    try {
      return await this.#nextOf(job.moveToCompleted("done", token, doesFetch), token);
    } finally {
      if (lock !== undefined && !isReleased) draft.releases = [...draft.releases, lock];
    }
  }

  /** Returns the next job in the reply of an end. */
  async #nextOf(reply: Promise<unknown>, token: string): Promise<Job<LaneData> | undefined> {
    const received: unknown = await reply;
    const [data, id] = Array.isArray(received) ? (received as [object | null | undefined, string]) : [];
    if (data === undefined || data === null) return undefined;
    return await this.#parts.member.worker.nextJobFromJobData(data, id ?? "", token);
  }

  /** Changes the model as the end of a job does. */
  #noteEnd(draft: Draft, { id, job }: Process, way: Way): void {
    const { attempts, backoffMs, rules } = this.#parts.bounds;
    const { onFailure = "skip" } = rules;
    const isFinal = way === "fails for good" || (way === "fails" && (job?.attemptsMade ?? 0) + 1 >= attempts);
    const dueMs = draft.nowMs + (way === "fails" ? backoffMs : DELAY_MS);
    const waiting = { state: "waiting", dueMs } as const;
    const { isCancelled } = spec.jobOf(draft.spec, id);
    if (isFinal && onFailure === "halt") draft.spec = spec.pauseKeys(draft.spec, id, Number.POSITIVE_INFINITY);
    if (way === "completes" || isFinal) draft.spec = spec.dropKeys(draft.spec, id, { state: "ended" });
    // A cancelled job is taken once more, and then fails for good.
    else if (isCancelled) draft.spec = spec.changeJob(draft.spec, id, { state: "waiting", dueMs: 0 });
    else if (way === "backs off") draft.spec = spec.backOff(draft.spec, id, dueMs);
    else if (way === "delays itself" || onFailure === "skip") draft.spec = spec.dropKeys(draft.spec, id, waiting);
    else draft.spec = spec.changeJob(draft.spec, id, waiting);
  }

  /** BullMQ tries to fail a job that it cannot complete. A job that was cancelled fails. */
  #onRefusal(draft: Draft, process: Process, way: Way | "fetches", { why }: Refusal): void {
    draft.result = `refused, ${why}`;
    const { again, ...others } = process;
    const isCancelled = spec.jobOf(draft.spec, process.id).isCancelled;
    if (isCancelled && process.phase === "runs") {
      draft.replace(process, { ...others, phase: "must fail", lock: undefined });
    } else if (way === "completes" && again !== undefined) {
      draft.replace(process, { ...others, phase: "lost its job", lock: undefined });
    } else draft.remove(process);
  }

  async #loseJob(draft: Draft, { id }: Process): Promise<void> {
    await this.expireJobLock(id);
    draft.spec = spec.changeJob(draft.spec, id, { state: "waiting" });
  }

  /** Acquires a lock with a request. Resolves with its fencing token, or with undefined if the lock is held. */
  async #lockIfFree({ name, token }: HeldLock): Promise<number | undefined> {
    const { world, library } = this.#parts;
    const script = `${library}return lockIfFree(KEYS[1], ARGV[1], '600000')`;
    const number = await world.redis.eval(script, 1, LOCK_PREFIX + name, token);
    return number === null ? undefined : Number(number);
  }

  #newToken(): string {
    this.#tokens += 1;
    return `token-${this.#tokens}`;
  }
}

function grant(draft: Draft, holder: string, number: number): void {
  const { greatest } = draft.spec;
  if (number <= greatest) draft.violation ??= `${holder} has a fencing token that is not above all earlier ones`;
  draft.spec = { ...draft.spec, greatest: Math.max(greatest, number) };
}
