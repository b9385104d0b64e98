/**
 * Fencing of data in Redis: only the newest holder of a lock can read and write the data.
 *
 * Once a fencing token has claimed the keys, every call with an older token is refused. Every script runs in one atomic
 * step with its check. The values that a holder writes were therefore computed from data that no other holder has
 * changed since, even if the process was frozen in between.
 *
 * The claim precedes the read. A check on the write alone would let an older holder write after a newer holder has
 * read.
 *
 * Nothing is guaranteed for access that bypasses the fence, or after the Redis server has lost confirmed data.
 */
import { FencedOffError } from "../api/errors.ts";
import { integer, listOf, shaped, text, texts, textsAndNumbers } from "../kit/schema/check.ts";
import { Schema, type ShapeOf } from "../kit/schema/schema.ts";
import { quote } from "../kit/schema/show.ts";
import { hasStableSlot, isOtherInBraces, sideKeyOf } from "../rules/keys.ts";
import { fenceScript } from "../scripts/fence.lua.ts";

/**
 * A client of ioredis 5 or 6, or of node-redis 5 or later, including Cluster. The client is used directly, with its own
 * deadlines and retries.
 */
export interface FenceClient {
  eval(...args: never[]): unknown;
}

export interface FenceOptions {
  /**
   * How long a claim is kept after its last use, in ms. Default: forever, like the data that it protects.
   *
   * For data that expires, choose a time longer than any process may be frozen. Afterwards an older holder could claim
   * the data again.
   */
  readonly keepFor?: number | undefined;
}

type Argument = string | number;

const OPTIONS = new Schema({ keepFor: integer({ min: 1 }).optional() } satisfies ShapeOf<FenceOptions>);

const NAMES = listOf("a string or an array of strings", text());

const TOKEN = integer({ min: 1, unit: "" });

const SCRIPT = text();

interface FencedCall {
  readonly script: string;
  readonly keys: readonly string[];
  readonly args: readonly Argument[];
  readonly isClaim: boolean;
}

/**
 * Data that is claimed for a fencing token. Once another token has claimed the data, every call rejects with
 * `FencedOffError` and does nothing.
 */
export class Fenced {
  readonly #run: (call: FencedCall) => Promise<unknown>;

  constructor(run: (call: FencedCall) => Promise<unknown>) {
    this.#run = run;
  }

  /**
   * Runs a Lua script in one atomic step with the check. The script finds `keys` and `args` in KEYS and ARGV, as with
   * EVAL.
   */
  async eval(script: string, keys: readonly string[], args: readonly Argument[] = []): Promise<unknown> {
    SCRIPT.of("script", script);
    return await this.#run({
      script,
      keys: texts.of("keys", keys),
      args: textsAndNumbers.of("args", args),
      isClaim: false,
    });
  }

  /** Resolves with the string at `key`, or with null if the key does not exist. */
  async get(key: string): Promise<string | null> {
    return (await this.eval("return redis.call('GET', KEYS[1])", [key])) as string | null;
  }

  /** Sets the string at any `key` if the claim is still valid. As with SET, the key loses its expiry. */
  async set(key: string, value: Argument): Promise<void> {
    await this.eval("return redis.call('SET', KEYS[1], ARGV[1])", [key], [value]);
  }
}

/**
 * Claims `keys` in Redis for the holder of `fencingToken`. Call this function before reading the data. From then on
 * every older holder is refused.
 *
 * `keys` name the data that the lock protects, one key for each of its resources. The claim of `stock:42` is the key
 * `{stock:42}:claim`, in the same hash slot.
 * @throws FencedOffError if a newer token has claimed one of the keys; nothing is claimed in this case.
 */
export async function fence(
  client: FenceClient,
  keys: string | readonly string[],
  fencingToken: number,
  options: FenceOptions = {},
): Promise<Fenced> {
  const names = [...NAMES.of("keys", typeof keys === "string" ? [keys] : keys)];
  if (names.length === 0) throw new RangeError("keys must name at least one key, got []");
  const token = TOKEN.of("fencingToken", fencingToken);
  const { keepFor = "" } = OPTIONS.resolve(options);
  const evaluate = evaluatorOf(client);
  const claims = names.map((name) => claimKeyOf(client, name));
  const run = async ({ script, keys, args, isClaim }: FencedCall): Promise<unknown> => {
    const facts = [claims.length, token, keepFor, isClaim ? 1 : 0];
    try {
      return await evaluate(fenceScript(script), [...claims, ...keys], [...facts, ...args].map(String));
    } catch (error) {
      throw refusalIn(error, names, token) ?? error;
    }
  };
  await run({ script: "", keys: [], args: [], isClaim: true });
  return new Fenced(run);
}

type Evaluate = (script: string, keys: readonly string[], args: readonly string[]) => Promise<unknown>;

interface Evaluator {
  readonly eval: (...args: unknown[]) => Promise<unknown>;
  /** Exists on clients of ioredis. */
  readonly evalsha?: unknown;
  /** Exists on clients of node-redis. */
  readonly evalSha?: unknown;
}

const CLIENT = shaped<Evaluator>(
  "a client of ioredis or node-redis",
  (client) =>
    typeof client["eval"] === "function" &&
    (typeof client["evalsha"] === "function" || typeof client["evalSha"] === "function"),
);

function evaluatorOf(given: FenceClient): Evaluate {
  const client = CLIENT.of("client", given);
  return typeof client.evalsha === "function"
    ? async (script, keys, args) => await client.eval(script, keys.length, ...keys, ...args)
    : async (script, keys, args) => await client.eval(script, { keys, arguments: args });
}

interface ClientOptions {
  readonly keyPrefix?: string | Buffer | undefined;
  readonly redisOptions?: ClientOptions | undefined;
}

/**
 * Returns the key of a claim. The client puts its own prefix before every key, so the prefix belongs inside the braces:
 * the claim is then in the hash slot of the prefixed key.
 */
function claimKeyOf(client: FenceClient, key: string): string {
  const { options } = client as { readonly options?: ClientOptions };
  const prefix = options?.keyPrefix ?? options?.redisOptions?.keyPrefix ?? "";
  const prefixed = `${prefix.toString()}${key}`;
  if (!hasStableSlot(prefixed)) {
    throw new RangeError(`keys must not have a "}" without a hash tag, got ${quote(key)}`);
  }
  if (isOtherInBraces(prefixed)) {
    const inner = quote(prefixed.slice(1, -1));
    throw new RangeError(`keys must not be another one in braces: it shares the claim of ${inner}, got ${quote(key)}`);
  }
  return sideKeyOf(prefixed, "claim");
}

/** Matches the refusal of scripts/fence.lua.ts. A server may put `ERR` before it. */
const REFUSED = /^(?:ERR )?FENCEDOFF (\d+) ?(.*)/;

function refusalIn(error: unknown, keys: readonly string[], fencingToken: number): FencedOffError | undefined {
  const [, index, claimedBy = ""] = (error instanceof Error ? REFUSED.exec(error.message) : undefined) ?? [];
  const key = keys[Number(index) - 1];
  return key === undefined ? undefined : new FencedOffError({ key, fencingToken, claimedBy });
}
