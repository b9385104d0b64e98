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
import { DAY_MS } from "../kit/clock.ts";
import type { Random } from "../kit/random.ts";
import { clientKeyOf } from "../rules/keys.ts";
import { newClient, newToken } from "../rules/token.ts";
import { keepNameScript, readNamesScript } from "../scripts/client-name.lua.ts";
import { type Asked, listsEverywhere, runEverywhere } from "./run.ts";

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
    this.#digits = newClient(random);
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

interface Nodes extends Asked {
  readonly options: { readonly nodeTimeout: number };
}

/** Has the nodes keep the name of the client with these digits. Resolves with whether each has it; never rejects. */
export async function keepName(nodes: Nodes, digits: string, name: string): Promise<boolean> {
  const request = { keys: [clientKeyOf(digits)], args: [name, String(DAY_MS)], timeoutMs: nodes.options.nodeTimeout };
  const replies = await runEverywhere(nodes, keepNameScript, request);
  return replies.every(({ ok }) => ok);
}

/**
 * Asks the nodes who the holders of locks are, as far as they have a `name`. Returns the names of clients by the digits
 * that their tokens begin with. Never rejects because of a node.
 */
export async function clientNames(nodes: Nodes, clients: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const names = new Map<string, string>();
  if (clients.length === 0) return names;
  const keys = clients.map(clientKeyOf);
  const replies = await listsEverywhere(nodes, readNamesScript, {
    keys,
    args: [],
    timeoutMs: nodes.options.nodeTimeout,
    enough: (answers) => keys.every((_, at) => answers.some((reply) => reply.ok && isNamedAt(at, reply.value))),
  });
  for (const reply of replies) {
    if (!reply.ok) continue;
    for (const [at, client] of clients.entries()) if (reply.value[at]) names.set(client, reply.value[at]);
  }
  return names;
}

function isNamedAt(at: number, reply: unknown): boolean {
  return Array.isArray(reply) && Boolean(reply[at]);
}

/** The names of this many clients are kept, at most about a megabyte. Nodes are asked again for a forgotten name. */
const MAX_NAMES = 1_000;

/** The names of holders, for callers that waited in vain. The nodes are asked once: a client never changes its name. */
export class HolderNames {
  readonly #nodes: Nodes;
  readonly #names = new Map<string, Promise<string | undefined>>();

  constructor(nodes: Nodes) {
    this.#nodes = nodes;
  }

  /** Resolves within `nodeTimeout`, with undefined if no node knows the name. Never rejects because of a node. */
  of(client: string): Promise<string | undefined> {
    const known = this.#names.get(client);
    if (known !== undefined) return known;
    if (this.#names.size >= MAX_NAMES) this.#names.clear();
    const name = this.#ask(client);
    this.#names.set(client, name);
    return name;
  }

  async #ask(client: string): Promise<string | undefined> {
    const name = (await clientNames(this.#nodes, [client])).get(client);
    if (name === undefined) this.#names.delete(client);
    return name;
  }
}
