/**
 * The invariants of permits, checked against true time after every turn of every client, and against each node's data
 * after every script. The checker knows nothing of the script except where it stores holders and waiters.
 *
 * Several nodes promise less about tokens (see pool.ts of the package), and no order of service that a check of single
 * nodes could see.
 */
import type { Lock } from "@x/redlock-core";
import type { Instant } from "@x/redlock-core/kit";
import {
  type ClientReply,
  type Machine,
  type Server,
  validityEnd,
  type World,
} from "../../../packages/testing/src/world.ts";

export const PERMIT_INVARIANTS = {
  count: "never more permits than there are",
  continuity: "an extension hides no gap",
  tokenOrder: "token order",
  tokenTime: "tokens are near the nodes' time",
  fifo: "first come, first served",
  accounts: "the permits in use are those of the holders",
  expiry: "leases end",
  wake: "no waiter is forgotten",
  starvation: "readers do not starve a writer",
  recovery: "bounded recovery",
  leftBehind: "nothing left behind",
} as const;

export interface Hold {
  readonly machine: Machine;
  readonly lock: Lock;
  readonly permits: number;
  readonly order: number;
  readonly losses: number;
  end: Instant | undefined;
  isOver: boolean;
}

/** Names of the node's keys. */
export interface PermitKeys {
  readonly state: string;
  readonly holders: string;
  readonly waiters: string;
  readonly places: string;
}

interface CheckedPool {
  readonly world: World;
  readonly capacity: number;
  /** Whether there is one node. */
  readonly isAlone: boolean;
  readonly maxTtl: number;
  readonly keys: PermitKeys;
  /**
   * Whether permits are counted. False if the node may lose its data without a quarantine: then more permits than
   * allowed may be held, and only the other invariants apply.
   */
  readonly isCounted: boolean;
  readonly nodeTimeUs: () => number;
  /**
   * Returns how often the node has lost data. After the second loss within a lease, the node cannot know of the grants
   * between the two losses.
   */
  readonly losses: () => number;
}

/** The greatest tokens that were granted before a call. */
export interface TokensSoFar {
  readonly any: number;
  readonly exclusive: number;
}

/** Several clients, each half a second ahead of the previous client, may together lead tokens further ahead. */
const FAR_AHEAD_MS = 5_000;

type Pairs = readonly (readonly [string, string | number])[];

export class PermitChecker {
  readonly #facts: CheckedPool;
  readonly #holds = new Set<Hold>();
  readonly #all: Hold[] = [];
  /** The first place in line of each waiter, which the waiter must keep. */
  readonly #tickets = new Map<string, number>();
  #tokens: TokensSoFar = { any: 0, exclusive: 0 };
  /**
   * How often the node had lost data before each grant, by token. The answer of a grant may arrive after the next loss.
   */
  readonly #lossesAt = new Map<number, number>();
  grantCount = 0;

  constructor(facts: CheckedPool) {
    this.#facts = facts;
  }

  /** The tokens that the grant of a call that begins now must exceed. */
  get tokensSoFar(): TokensSoFar {
    return this.#tokens;
  }

  granted(machine: Machine, lock: Lock, permits: number, after: TokensSoFar): Hold {
    const { world, losses } = this.#facts;
    const { fencingToken } = lock;
    const lossesBefore = this.#lossesAt.get(fencingToken) ?? losses();
    const facts = { order: this.grantCount, losses: lossesBefore, end: validityEnd(lock, machine), isOver: false };
    const hold = { machine, lock, permits, ...facts };
    this.grantCount += 1;
    const least = this.#mustFollowAll(permits) ? after.any : after.exclusive;
    const twin = this.#all.find(
      (other) =>
        other.lock.fencingToken === fencingToken &&
        (this.#mustFollowAll(permits) || this.#mustFollowAll(other.permits)),
    );
    if (fencingToken <= least || twin !== undefined)
      world.violate(PERMIT_INVARIANTS.tokenOrder, `${machine.name} was granted ${fencingToken}, after ${least}`);
    const aheadMs = (fencingToken - this.#facts.nodeTimeUs()) / 1_000;
    if (aheadMs > FAR_AHEAD_MS)
      world.violate(PERMIT_INVARIANTS.tokenTime, `${machine.name} was granted ${fencingToken}, ${aheadMs} ms ahead`);
    this.#holds.add(hold);
    this.#all.push(hold);
    const { any, exclusive } = this.#tokens;
    this.#tokens = {
      any: Math.max(any, fencingToken),
      exclusive: this.#mustFollowAll(permits) ? Math.max(exclusive, fencingToken) : exclusive,
    };
    return hold;
  }

  /**
   * Whether the grant must have a greater token than all earlier grants. Readers on several nodes need only follow
   * writers.
   */
  #mustFollowAll(permits: number): boolean {
    return this.#facts.isAlone || permits === this.#facts.capacity;
  }

  released(hold: Hold): void {
    this.#holds.delete(hold);
  }

  killed(machine: Machine): void {
    for (const hold of this.#holds) if (hold.machine === machine) this.#holds.delete(hold);
  }

  /** Called after each turn. */
  check(): void {
    for (const hold of this.#holds) this.#refresh(hold);
    const { world, capacity, isCounted } = this.#facts;
    const believers = [...this.#holds].filter((hold) => believes(hold));
    const held = believers.reduce((sum, { permits }) => sum + permits, 0);
    if (held <= capacity || !isCounted) return;
    const who = believers.map(({ machine, permits, lock }) => `${machine.name} ${permits} (${lock.fencingToken})`);
    world.violate(PERMIT_INVARIANTS.count, `${held} of ${capacity} are held: ${who.join(", ")}`);
  }

  /** Called after each script on the node. */
  executed(server: Server, args: readonly string[], reply: ClientReply): void {
    const [operation, , , , holder = "", , waiter = "", ticket = ""] = args;
    if (!["acquire", "extend", "release"].includes(operation ?? "")) return;
    const data = new Map(server.store.dump().map(({ key, content }) => [key, content as Pairs]));
    const { world, keys, maxTtl } = this.#facts;
    const nowMs = server.nowUs() / 1_000;
    const holders = data.get(keys.holders) ?? [];
    const used = new Map(data.get(keys.state)).get("used") ?? 0;
    const sum = holders.reduce((total, [member]) => total + Number(member.split(":")[0]), 0);
    if (sum !== Number(used)) world.violate(PERMIT_INVARIANTS.accounts, `used is ${used}, the holders have ${sum}`);
    const late = holders.find(([, endMs]) => Number(endMs) > nowMs + maxTtl + 1);
    if (late !== undefined) world.violate(PERMIT_INVARIANTS.expiry, `${late[0]} ends at ${late[1]}, now is ${nowMs}`);
    if (operation === "acquire" && Array.isArray(reply) && reply[0] === 1) {
      this.#lossesAt.set(Number(reply[1]), this.#facts.losses());
    }
    if (this.#facts.isAlone) this.#checkOrder(data, { operation, holder, waiter, ticket, reply, nowMs });
  }

  #checkOrder(
    data: ReadonlyMap<string, Pairs>,
    done: {
      readonly operation: string | undefined;
      readonly holder: string;
      readonly waiter: string;
      readonly ticket: string;
      readonly reply: ClientReply;
      readonly nowMs: number;
    },
  ): void {
    const { world, keys } = this.#facts;
    const { operation, holder, waiter, ticket, reply, nowMs } = done;
    const places = new Map(data.get(keys.places));
    const inLine = (data.get(keys.waiters) ?? []).map(([member]) => member);
    const answer = operation === "acquire" && Array.isArray(reply) ? reply[0] : undefined;
    if (operation === "release") this.#tickets.delete(waiter);
    if (answer === 0 && waiter !== "" && !this.#tickets.has(waiter)) this.#tickets.set(waiter, Number(ticket));
    const isGrant = answer === 1;
    if (!isGrant) return;
    const mine = this.#tickets.get(waiter) ?? (ticket === "" ? Number.POSITIVE_INFINITY : Number(ticket));
    this.#tickets.delete(waiter);
    const passed = inLine.find(
      (member) => (this.#tickets.get(member) ?? mine) < mine && Number(places.get(member) ?? 0) >= Math.floor(nowMs),
    );
    if (passed === undefined) return;
    world.violate(PERMIT_INVARIANTS.fifo, `${waiter || holder} was granted before ${passed}, who waits since earlier`);
  }

  #refresh(hold: Hold): void {
    const before = hold.end;
    hold.end = validityEnd(hold.lock, hold.machine);
    if (hold.end === undefined) {
      this.#holds.delete(hold);
      return;
    }
    if (before !== undefined && hold.end.monotonicMs > before.monotonicMs) this.#extended(hold);
    if (hold.machine.monotonicMs() >= hold.end.monotonicMs) hold.isOver = true;
  }

  #extended(hold: Hold): void {
    const { world, capacity, isCounted, losses } = this.#facts;
    const { machine, lock, permits } = hold;
    const isKnown = isCounted || losses() - hold.losses < 2;
    const between = !isKnown
      ? undefined
      : this.#all.find((other) => other.order > hold.order && other.permits + permits > capacity);
    if (!hold.isOver && between === undefined) return;
    const what =
      between === undefined ? "after its validity had ended" : `though ${between.machine.name} had come since`;
    world.violate(PERMIT_INVARIANTS.continuity, `${machine.name} extended (${lock.fencingToken}) ${what}`);
  }
}

function believes({ end, machine }: Hold): boolean {
  if (end === undefined) return false;
  const ranMs = machine.monotonicMs() + machine.suspendedMs() - end.suspendedMs;
  return ranMs < end.monotonicMs && Math.floor(machine.wallMs()) < end.wallMs;
}
