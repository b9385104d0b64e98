/**
 * Who holds a lock, for operators. All tokens of a `Redlock` with a `name` begin with the same random digits, under
 * which the nodes keep the name. So a lock of such a client costs no more than any other.
 *
 * Guaranteed: no call waits for it, and none fails because of it. Each node is told once an hour at most, with the next
 * token after that; after a failure, again 10 s later.
 *
 * Not guaranteed: that a name is known. A node that lost its data knows it again within an hour of locking. A holder
 * that takes no token for a day is forgotten. No decision rests on it.
 */
import type { Clock } from "../kit/clock.ts";
import type { Random } from "../kit/random.ts";
import { CLIENT_DIGITS, newToken } from "../rules/token.ts";

const TOLD_EVERY_MS = 3_600_000;
const AGAIN_MS = 10_000;

/** Tells all nodes the name of the client with these digits. Resolves with whether each has it; never rejects. */
type TellName = (digits: string) => Promise<boolean>;

export class ClientName {
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #tell: TellName;
  readonly #digits: string;
  #dueMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, random: Random, tell: TellName) {
    this.#clock = clock;
    this.#random = random;
    this.#tell = tell;
    this.#digits = random.token().slice(0, CLIENT_DIGITS);
  }

  /** Returns the token for a lock that is about to be asked for. */
  newToken(): string {
    if (this.#clock.monotonicMs() >= this.#dueMs) void this.#tellAll();
    return newToken(this.#random, this.#digits);
  }

  async #tellAll(): Promise<void> {
    this.#dueMs = this.#clock.monotonicMs() + AGAIN_MS;
    if (await this.#tell(this.#digits)) this.#dueMs = this.#clock.monotonicMs() + TOLD_EVERY_MS;
  }
}
