/**
 * A map by name for entries that come and go all the time.
 *
 * A `Map` that entries are set in and deleted from over and over replaces its table now and then. A replaced table that has
 * reached V8's old generation keeps its entries, and the next table, alive until the next full collection: a fifth of
 * all that a lock allocates was copied and promoted for nothing. A dictionary object has no such chain.
 */
export class Table<Value> {
  readonly #values: Record<string, Value> = Object.create(null) as Record<string, Value>;

  get(name: string): Value | undefined {
    return this.#values[name];
  }

  set(name: string, value: Value): void {
    this.#values[name] = value;
  }

  delete(name: string): void {
    delete this.#values[name];
  }
}
