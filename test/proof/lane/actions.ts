/** The actions that are possible in a state. */
import type { Moves } from "./moves.ts";
import { RedisFacts } from "./redis-state.ts";
import type { SpecJob, SpecKey } from "./spec.ts";
import type { Bounds, Draft, Event, Process, State, Way } from "./state.ts";

export interface Action {
  readonly name: string;
  /** The event that happens, of which there is a limited number. */
  readonly event?: Event;
  /** Whether the action happens sooner or later by itself. Operators resume keys sooner or later. */
  readonly isCertain: boolean;
  readonly take: (draft: Draft, moves: Moves) => Promise<void>;
}

export function actionsOf(state: State, { jobs, workers }: Bounds): readonly Action[] {
  const list = new ActionList(state);
  const added = Object.keys(state.spec.jobs).length;
  const keys = jobs[added];
  if (keys !== undefined) list.addJob(`job-${added + 1}`, keys);
  const busy = state.processes.filter(({ phase }) => phase !== "plain code");
  if (busy.length < workers && added > 0) list.fetch();
  for (const process of state.processes) list.ofProcess(process);
  list.expiries();
  list.passTime();
  for (const [id, job] of Object.entries(state.spec.jobs)) list.ofJob(id, job);
  for (const [name, key] of Object.entries(state.spec.keys)) list.ofKey(name, key);
  return list.actions;
}

class ActionList {
  readonly actions: Action[] = [];
  readonly #state: State;
  readonly #redis: RedisFacts;

  constructor(state: State) {
    this.#state = state;
    this.#redis = new RedisFacts(state.entries);
  }

  #certainly(name: string, take: Action["take"]): void {
    this.actions.push({ name, isCertain: true, take });
  }

  #possibly(event: Event, name: string, take: Action["take"]): void {
    if ((this.#state.left[event] ?? 0) > 0) this.actions.push({ name, event, isCertain: false, take });
  }

  addJob(id: string, keys: readonly string[]): void {
    const name = `${id} of key ${keys.join(" and ")} is added`;
    this.actions.push({ name, isCertain: false, take: async (draft, moves) => await moves.add(draft, id, keys) });
  }

  fetch(): void {
    this.#certainly("a worker fetches", async (draft, moves) => await moves.fetch(draft, false));
    const name = "a worker fetches, and the reply is lost";
    this.#possibly("lose reply", name, async (draft, moves) => await moves.fetch(draft, true));
  }

  ofProcess(process: Process): void {
    const { id, phase, again, lock } = process;
    switch (phase) {
      case "sends again":
        this.#certainly(
          again?.way === "fetches" ? "the fetch is sent again" : `the end of ${id} is sent again`,
          async (draft, moves) => {
            await moves.sendAgain(draft, process);
          },
        );
        return;
      case "plain code":
        this.#certainly(`plain code releases the lock of key ${lock?.name ?? ""}`, async (draft, moves) => {
          draft.remove(process);
          if (lock !== undefined) await moves.release(draft, lock);
        });
        return;
      case "asks for its lock":
        this.#certainly(`${id} asks for its lock`, async (draft, moves) => await moves.ask(draft, process));
        break;
      case "must fail":
        this.#certainly(`${id} fails for good`, this.#end(process, "fails for good"));
        break;
      case "lost its job":
        this.#certainly(`${id} completes too late`, this.#end(process, "completes"));
        this.#certainly(`${id} fails too late`, this.#end(process, "fails"));
        this.#certainly(`the process that lost ${id} drops it`, async (draft, moves) => {
          await Promise.resolve(moves.drop(draft, process));
        });
        return;
      case "runs":
        this.#ends(process);
        this.#possibly("freeze", `the process of ${id} freezes, and BullMQ's lock expires`, async (draft, moves) => {
          await moves.freeze(draft, process);
        });
    }
    if (lock !== undefined && lock.isLost !== true) {
      this.#possibly("lose lock", `${id} loses the lock of ${shownLock(lock.name)}`, async (draft, moves) => {
        await moves.loseKeyLock(draft, process, lock);
      });
    }
    this.#possibly("die", `the process of ${id} dies`, async (draft, moves) => await moves.die(draft, process));
  }

  #ends(process: Process): void {
    const { id } = process;
    const [doesFetch, isLost] = [true, true];
    this.#certainly(`${id} completes`, this.#end(process, "completes"));
    this.#certainly(`${id} completes, and its worker fetches`, this.#end(process, "completes", { doesFetch }));
    this.#possibly("lose reply", `${id} completes, and the reply is lost`, this.#end(process, "completes", { isLost }));
    const both = `${id} completes and its worker fetches, and the reply is lost`;
    this.#possibly("lose reply", both, this.#end(process, "completes", { doesFetch, isLost }));
    this.#possibly("fail", `${id} fails`, this.#end(process, "fails"));
    this.#possibly("fail", `${id} fails, and its worker fetches`, this.#end(process, "fails", { doesFetch }));
    if ((this.#state.left.fail ?? 0) > 0) {
      const name = `${id} fails and its worker fetches, and the reply is lost`;
      this.#possibly("lose reply", name, this.#end(process, "fails", { doesFetch, isLost }));
    }
    this.#possibly("delay", `${id} delays itself`, this.#end(process, "delays itself"));
    this.#possibly("back off", `${id} backs off`, this.#end(process, "backs off"));
  }

  #end(
    process: Process,
    way: Way,
    { doesFetch = false, isLost = false }: { readonly doesFetch?: boolean; readonly isLost?: boolean } = {},
  ): Action["take"] {
    return async (draft, moves) => await moves.end(draft, process, { way, doesFetch, isLost });
  }

  /** Locks that expire because no process renews them, the check for stalled jobs, and requests that arrive late. */
  expiries(): void {
    const { processes, releases } = this.#state;
    const redis = this.#redis;
    for (const id of redis.active) {
      const token = redis.jobLock(id);
      const isRenewed = processes.some(
        (each) => each.id === id && each.token === token && !["lost its job", "sends again"].includes(each.phase),
      );
      if (token !== undefined && !isRenewed) {
        this.#certainly(`BullMQ's lock of ${id} expires`, async (_draft, moves) => await moves.expireJobLock(id));
      }
    }
    if (redis.active.some((id) => redis.jobLock(id) === undefined)) {
      this.#certainly("a worker brings stalled jobs back", async (_draft, moves) => await moves.bringBack());
    }
    for (const name of redis.keyLocks) {
      const holder = processes.find(({ lock }) => lock?.token === redis.keyLock(name));
      if (holder !== undefined && holder.phase !== "lost its job") continue;
      this.#certainly(`the lock of ${shownLock(name)} expires`, async (draft, moves) => {
        await moves.expireKeyLock(draft, name, holder);
      });
    }
    for (const lock of releases) {
      this.#certainly(`the request that releases the lock of ${shownLock(lock.name)} arrives`, async (draft, moves) => {
        await moves.release(draft, lock);
      });
    }
  }

  /** Time passes to the next timer, and a millisecond further, because the lane's timers are late by as much. */
  passTime(): void {
    const { nowMs, spec } = this.#state;
    const next = this.#redis.nextTimerMs(nowMs, Object.keys(spec.keys));
    if (next === undefined) return;
    const passMs = next + 1 - nowMs;
    this.#certainly(`${passMs} ms pass`, async (draft) => await Promise.resolve(void (draft.passMs = passMs)));
  }

  ofJob(id: string, { state, keys }: SpecJob): void {
    const redis = this.#redis;
    const isWaiting = state === "waiting";
    const isFree = keys.every((key) => redis.keyLock(key) === undefined);
    if (isWaiting && isFree && redis.waitsForLock(id)) {
      this.#certainly(`${id} is woken`, async (draft, moves) => await moves.wake(draft, id));
    }
    if (isWaiting || state === "running") {
      this.#possibly("cancel", `an operator cancels ${id}`, async (draft, moves) => await moves.cancel(draft, id));
    }
    if (isWaiting && !redis.active.includes(id)) {
      this.#possibly("remove", `an operator removes ${id}`, async (draft, moves) => await moves.removeJob(draft, id));
    }
    if (redis.placesOf(id).includes("failed")) {
      this.#possibly(
        "retry by hand",
        `an operator retries ${id}`,
        async (draft, moves) => await moves.retryByHand(draft, id),
      );
    }
  }

  ofKey(name: string, { pausedUntilMs, slots }: SpecKey): void {
    const { nowMs } = this.#state;
    const redis = this.#redis;
    const isPaused = pausedUntilMs > nowMs;
    if (isPaused || redis.pauseEndOf(name) !== undefined) {
      this.#certainly(`an operator resumes key ${name}`, async (draft, moves) => await moves.resume(draft, name));
    }
    if (!isPaused) {
      this.#possibly(
        "pause",
        `an operator pauses key ${name}`,
        async (draft, moves) => await moves.pause(draft, name, true),
      );
      const forAWhile = `an operator pauses key ${name} for a while`;
      this.#possibly("pause for a while", forAWhile, async (draft, moves) => await moves.pause(draft, name, false));
    }
    const limit = slots === 1 ? 2 : 1;
    const change =
      limit === 1 ? `an operator removes the policy of key ${name}` : `an operator lets two jobs of key ${name} run`;
    this.#possibly("change limit", change, async (draft, moves) => await moves.changeLimit(draft, name, limit));
    if (redis.keyLock(name) === undefined) {
      this.#possibly(
        "plain lock",
        `plain code locks key ${name}`,
        async (draft, moves) => await moves.lockPlainly(draft, name),
      );
    }
  }
}

/** Returns the name of a lock for readers. A lock of a further slot contains the number of the slot. */
export function shownLock(name: string): string {
  return `key ${name.replace("\u001f", ", slot ")}`;
}
