/** Pure: names for the elements of an array that a script replies. */

/**
 * The positions of the elements of a reply. Script texts and parsers use the same `ReplyShape`, so only it knows the
 * positions. Lua counts from 1, JavaScript from 0.
 */
export class ReplyShape<Name extends string> {
  /** The position of each element in Lua. */
  readonly at: Readonly<Record<Name, number>>;
  readonly #names: readonly Name[];

  /** `names` are in the order of the elements. `first` is the Lua position of the first element. */
  constructor(names: readonly Name[], first = 1) {
    this.#names = names;
    this.at = Object.fromEntries(names.map((name, index) => [name, first + index])) as Record<Name, number>;
  }

  /** Returns the Lua of an array whose elements are fields of a Lua table. No field may be nil. */
  arrayOf(table: string): string {
    return `{${this.#names.map((name) => `${table}.${name}`).join(", ")}}`;
  }

  /** Returns one element of a reply. */
  valueIn(reply: readonly unknown[], name: Name): unknown {
    return reply[this.at[name] - 1];
  }

  /** Returns the elements of a reply by name. */
  parse(reply: unknown): Readonly<Record<Name, unknown>> {
    const elements = reply as readonly unknown[];
    const values = this.#names.map((name) => [name, this.valueIn(elements, name)]);
    return Object.fromEntries(values) as Record<Name, unknown>;
  }
}
