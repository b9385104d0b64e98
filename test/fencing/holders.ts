/**
 * Holders of a lock that subtract from numbers in a store. Each holder takes the steps grant, claim, read and write,
 * and the steps of several holders occur in any order, because a process may be frozen between any two steps. A model
 * detects lost updates and holders that were refused without reason.
 */
import fc from "fast-check";

export interface FencedStore {
  reset(values: ReadonlyMap<string, number>): Promise<void>;
  /** Undefined if the claim is refused. */
  claim(token: number, keys: readonly string[]): Promise<Claim | undefined>;
  values(): Promise<ReadonlyMap<string, number>>;
  /** Loses the claim of the key. */
  forget(key: string): Promise<void>;
}

/**
 * The store's operations of a holder that has claimed. They resolve with undefined or false if the store refuses them.
 */
export interface Claim {
  read(): Promise<readonly number[] | undefined>;
  write(values: readonly number[]): Promise<boolean>;
}

/**
 * The next step of a holder, who is granted the lock of `keys` if the holder has no lock. Or a key whose claim the
 * store forgets.
 */
export type Turn = { readonly holder: number; readonly keys: readonly string[] } | { readonly forget: string };

interface Holder {
  readonly token: number;
  readonly keys: readonly string[];
  claim: Claim | undefined;
  read: readonly number[] | undefined;
}

const HOLDERS = 4;
const AT_FIRST = 1_000_000;

/**
 * The first holder freezes after its read, the second holder reads, the first resumes and writes, and the second
 * writes.
 */
export const overlap: readonly Turn[] = [0, 0, 0, 1, 1, 1, 0, 1].map((holder) => ({ holder, keys: ["a"] }));

/** Generates random turns. Each holder has one of `locks`. */
export function schedules(locks: readonly (readonly string[])[]): fc.Arbitrary<Turn[]> {
  const step = fc.record({ holder: fc.nat(HOLDERS - 1), keys: fc.constantFrom(...locks) });
  const forget = fc.record({ forget: fc.constantFrom(...locks.flat()) });
  return fc.array<Turn>(fc.oneof({ weight: 12, arbitrary: step }, { weight: 1, arbitrary: forget }), {
    minLength: 20,
    maxLength: 80,
    size: "max",
  });
}

/** Plays a schedule and returns the faults. */
export async function faultsOf(store: FencedStore, schedule: readonly Turn[]): Promise<readonly string[]> {
  const play = new Play(store);
  await play.start(schedule);
  for (const turn of schedule) await play.turn(turn);
  return play.faults;
}

class Play {
  readonly faults: string[] = [];
  readonly #store: FencedStore;
  readonly #holders = new Map<number, Holder>();
  readonly #claimedBy = new Map<string, number>();
  readonly #expected = new Map<string, number>();
  #lastToken = 0;

  constructor(store: FencedStore) {
    this.#store = store;
  }

  async start(schedule: readonly Turn[]): Promise<void> {
    for (const turn of schedule) if ("keys" in turn) for (const key of turn.keys) this.#expected.set(key, AT_FIRST);
    await this.#store.reset(this.#expected);
  }

  async turn(turn: Turn): Promise<void> {
    if ("forget" in turn) {
      this.#claimedBy.delete(turn.forget);
      return await this.#store.forget(turn.forget);
    }
    const holder = this.#holders.get(turn.holder);
    if (holder === undefined) {
      this.#holders.set(turn.holder, { token: ++this.#lastToken, keys: turn.keys, claim: undefined, read: undefined });
      return;
    }
    if (!(await this.#step(holder))) this.#holders.delete(turn.holder);
  }

  /** Takes the holder's next step. Resolves with false if the holder has written, or was refused. */
  async #step(holder: Holder): Promise<boolean> {
    const { token, keys, claim, read } = holder;
    const isOurs = keys.every((key) => this.#claimedBy.get(key) === token);
    if (claim === undefined) {
      holder.claim = await this.#store.claim(token, keys);
      const isFree = keys.every((key) => (this.#claimedBy.get(key) ?? 0) <= token);
      this.#compare(holder, "claim", holder.claim !== undefined, isFree);
      if (isFree) for (const key of keys) this.#claimedBy.set(key, token);
      return holder.claim !== undefined;
    }
    if (read === undefined) {
      holder.read = await claim.read();
      if (holder.read === undefined) this.#compare(holder, "read", false, isOurs);
      return holder.read !== undefined;
    }
    const isWritten = await claim.write(read.map((value) => value - token));
    this.#compare(holder, "write", isWritten, isOurs);
    if (isWritten) for (const key of keys) this.#expected.set(key, (this.#expected.get(key) ?? 0) - token);
    await this.#lookAtValues();
    return false;
  }

  #compare({ token }: Holder, step: string, isAccepted: boolean, isRight: boolean): void {
    if (isAccepted !== isRight) this.faults.push(`${step} of ${token} ${isAccepted ? "accepted" : "refused"}`);
  }

  async #lookAtValues(): Promise<void> {
    for (const [key, value] of await this.#store.values()) {
      const expected = this.#expected.get(key);
      if (expected === value) continue;
      this.faults.push("lost update");
      this.#expected.set(key, value);
    }
  }
}
