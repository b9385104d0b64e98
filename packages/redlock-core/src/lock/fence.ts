/**
 * Fencing of data in Redis: only the newest holder of a lock reads and writes it.
 *
 * Once a fencing token has claimed the keys, nothing passes with an older one. Every script runs in one atomic step
 * with its check. What a holder writes was therefore computed from a value that nobody has changed since, even if its
 * process was frozen in between.
 *
 * The claim comes before the read. A check on the write alone would let an older holder write after a newer one has
 * read.
 *
 * Nothing is guaranteed for what bypasses the fence, or after the Redis has lost what it had confirmed.
 */
import { FencedOffError } from "../api/errors.ts";
import { integer, listOf, shaped, text, texts, textsAndNumbers } from "../kit/schema/check.ts";
import { Schema, type ShapeOf } from "../kit/schema/schema.ts";
import { quote } from "../kit/schema/show.ts";
import { hasStableSlot, isOtherInBraces, sideKeyOf } from "../rules/keys.ts";
import { fenceScript } from "../scripts/fence.lua.ts";

/**
 * A client of ioredis 5 or 6, or of node-redis 5 or later; a Cluster works too. It is used as it is, with its own
 * deadlines and retries.
 */
export interface FenceClient {
  eval(...args: never[]): unknown;
}

export interface FenceOptions {
  /**
   * How long a claim is remembered after its last use, in ms. Default: for ever, like the data that it stands beside.
   *
   * For data that expires, choose longer than any process may be frozen. An older holder that comes back after that
   * can claim again.
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
 * A `Fenced` is data that is claimed for a fencing token. Once another token has claimed it, every call rejects with
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

  /** Resolves with the string at `key`, or null if there is none. */
  async get(key: string): Promise<string | null> {
    return (await this.eval("return redis.call('GET', KEYS[1])", [key])) as string | null;
  }

  /** Sets the string at `key`, whatever its name, if the claim still stands. As with SET, an expiry of the key ends. */
  async set(key: string, value: Argument): Promise<void> {
    await this.eval("return redis.call('SET', KEYS[1], ARGV[1])", [key], [value]);
  }
}

/**
 * Claims `keys` in Redis for the holder of `fencingToken`. Call it before the data is read. From then on every older
 * holder is refused.
 *
 * `keys` name what the lock protects, one for each of its resources. The claim of `stock:42` is the key
 * `{stock:42}:claim`, in the same hash slot.
 * @throws FencedOffError if a newer token has claimed one of the keys; nothing is claimed then.
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
  /** A client of ioredis has this method. */
  readonly evalsha?: unknown;
  /** A client of node-redis has this method. */
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
 * Names the claim of a key. The client puts its own prefix before every key, so the prefix belongs inside the braces:
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
    throw new RangeError(`keys must not be another one in braces: it has the claim of ${inner}, got ${quote(key)}`);
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
