import type { RedisServer } from "./redis.ts";

/** Objects that JavaScript itself defines. They contain no state of this project, and some of their getters throw. */
const BUILT_IN: ReadonlySet<unknown> = new Set(
  [Object, Error, AggregateError, Array, Map, Set, Function].map((each) => each.prototype),
);

/**
 * Calls `ask` while the Redis user `app` has all rights, then no rights, and then a password that its clients do not
 * know.
 */
export async function askWithoutRights(server: RedisServer, ask: () => Promise<void>): Promise<void> {
  await ask();
  await server.call("ACL", "SETUSER", "app", "-@all");
  await ask();
  await server.call("ACL", "SETUSER", "app", "resetpass", ">another", "+@all");
  await server.call("CLIENT", "KILL", "USER", "app");
  await ask();
}

/**
 * Resolves with every place at which `secret` can be read in a thrown, emitted or returned value: the paths through own
 * and inherited properties (including hidden ones and symbols), getters, `toJSON()`, collections, bytes and promises.
 * `except` lists objects that belong to the caller, such as a client that it created, and that are not searched.
 */
export async function placesOf(
  secret: string,
  thrown: unknown,
  except: readonly object[] = [],
): Promise<readonly string[]> {
  const search = new Search(secret, except);
  await search.look(thrown, "it");
  return search.places;
}

class Search {
  readonly places: string[] = [];
  readonly #texts: readonly string[];
  readonly #seen: Set<unknown>;

  constructor(secret: string, except: readonly object[]) {
    if (secret.length < 6) throw new RangeError(`secret must have at least 6 characters, got ${secret.length}`);
    this.#texts = [secret, encodeURIComponent(secret), Buffer.from(secret).toString("base64")];
    this.#seen = new Set(except);
  }

  async look(value: unknown, path: string): Promise<void> {
    if (typeof value === "string") this.#read(value, path);
    if (typeof value === "symbol") this.#read(value.description ?? "", path);
    if ((typeof value !== "object" && typeof value !== "function") || value === null || this.#seen.has(value)) return;
    this.#seen.add(value);
    if (ArrayBuffer.isView(value)) this.#read(bytesOf(value), path);
    else if (value instanceof Promise) await this.#settled(value, path);
    else await this.#inside(value, path);
  }

  async #settled(promise: Promise<unknown>, path: string): Promise<void> {
    const [outcome] = await Promise.allSettled([promise]);
    await this.look(outcome.status === "fulfilled" ? outcome.value : outcome.reason, `await ${path}`);
  }

  async #inside(value: object, path: string): Promise<void> {
    if ("toJSON" in value && typeof value.toJSON === "function") await this.look(value.toJSON(), `${path}.toJSON()`);
    if (value instanceof Map || value instanceof Set) {
      for (const [index, entry] of [...value].entries()) await this.look(entry, `${path}{${index}}`);
    }
    for (
      let owner: object | null = value;
      owner !== null && !BUILT_IN.has(owner);
      owner = Object.getPrototypeOf(owner) as object | null
    ) {
      for (const key of Reflect.ownKeys(owner)) {
        this.#read(String(key), `${path}: name`);
        await this.look(valueOf(value, owner, key), `${path}.${String(key)}`);
      }
    }
  }

  #read(text: string, path: string): void {
    if (this.#texts.some((each) => text.includes(each))) this.places.push(path);
  }
}

function bytesOf({ buffer, byteOffset, byteLength }: ArrayBufferView): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString("latin1");
}

function valueOf(value: object, owner: object, key: PropertyKey): unknown {
  const property = Object.getOwnPropertyDescriptor(owner, key);
  if (property?.get === undefined) return property?.value;
  try {
    return property.get.call(value);
  } catch (error) {
    return error;
  }
}
