/**
 * Names of lock holders, for operators. All tokens of a `Redlock` with a `name` begin with the same random digits, its
 * client ID, under which the nodes store the name. A lock of such a client therefore costs no more than any other lock.
 *
 * Guaranteed: no call waits for the storing of a name, and no call fails because of it. The name is sent to each node
 * at most once an hour, together with the creation of a token. After a failure it is sent again with a token 10 s
 * later.
 *
 * Not guaranteed: that a name is known. A node that lost its data receives the name again within an hour of locking.
 * The name of a client that creates no token for a day expires. No decision depends on names.
 */
import type { Clock } from "../kit/clock.ts";
import { DAY_MS } from "../kit/clock.ts";
import type { Random } from "../kit/random.ts";
import { clientKeyOf } from "../rules/keys.ts";
import { newClient, newToken } from "../rules/token.ts";
import { keepNameScript, readNamesScript } from "../scripts/client-name.lua.ts";
import type { RoundEngine } from "./round-engine.ts";
import { listsEverywhere, runEverywhere } from "./run.ts";

const REFRESH_MS = 3_600_000;
const RETRY_MS = 10_000;

/** Sends the client's name to all nodes. Resolves with true if every node has stored the name. Never rejects. */
type SendName = (digits: string) => Promise<boolean>;

export class ClientName {
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #send: SendName;
  readonly #client: string;
  #dueMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, random: Random, send: SendName) {
    this.#clock = clock;
    this.#random = random;
    this.#send = send;
    this.#client = newClient(random);
  }

  /** Returns a token for a new lock. Sends the name to the nodes if due. */
  newToken(): string {
    if (this.#clock.monotonicMs() >= this.#dueMs) void this.#sendIfDue();
    return newToken(this.#random, this.#client);
  }

  async #sendIfDue(): Promise<void> {
    this.#dueMs = this.#clock.monotonicMs() + RETRY_MS;
    if (await this.#send(this.#client)) this.#dueMs = this.#clock.monotonicMs() + REFRESH_MS;
  }
}

/** Stores the name of a client on all nodes. Resolves with true if every node has stored the name. Never rejects. */
export async function keepName(engine: RoundEngine, digits: string, name: string): Promise<boolean> {
  const request = { keys: [clientKeyOf(digits)], args: [name, String(DAY_MS)], timeoutMs: engine.options.nodeTimeout };
  const replies = await runEverywhere(engine, keepNameScript, request);
  return replies.every(({ ok }) => ok);
}

/** Asks the nodes for the names of clients. Returns the known names by client ID. Never rejects because of a node. */
export async function clientNames(
  engine: RoundEngine,
  clients: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const names = new Map<string, string>();
  if (clients.length === 0) return names;
  const keys = clients.map(clientKeyOf);
  const replies = await listsEverywhere(engine, readNamesScript, {
    keys,
    args: [],
    timeoutMs: engine.options.nodeTimeout,
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

/** Number of cached names, at most about a megabyte. The nodes are asked again for a forgotten name. */
const MAX_NAMES = 1_000;

/**
 * Names of holders, for callers that waited in vain. Known names are cached, because a client never changes its name.
 */
export class HolderNames {
  readonly #engine: RoundEngine;
  readonly #names = new Map<string, Promise<string | undefined>>();

  constructor(engine: RoundEngine) {
    this.#engine = engine;
  }

  /**
   * Resolves within `nodeTimeout` with the name of the client. Undefined if no node knows the name. Never rejects
   * because of a node.
   */
  of(client: string): Promise<string | undefined> {
    const known = this.#names.get(client);
    if (known !== undefined) return known;
    if (this.#names.size >= MAX_NAMES) this.#names.clear();
    const name = this.#ask(client);
    this.#names.set(client, name);
    return name;
  }

  async #ask(client: string): Promise<string | undefined> {
    const name = (await clientNames(this.#engine, [client])).get(client);
    if (name === undefined) this.#names.delete(client);
    return name;
  }
}
