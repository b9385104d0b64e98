/** Pure: an array that a script replies, with a name for each of its elements. */

/**
 * A `ReplyShape` is the one place that knows the positions: the script's text is written with it, and the reply is read
 * by it. Lua counts from 1, JavaScript from 0.
 */
export class ReplyShape<Name extends string> {
  /** The position of each element in Lua. */
  readonly at: Readonly<Record<Name, number>>;
  readonly #names: readonly Name[];

  /** Takes the names in the order of the elements. `first` is the position of the first of them in Lua. */
  constructor(names: readonly Name[], first = 1) {
    this.#names = names;
    this.at = Object.fromEntries(names.map((name, index) => [name, first + index])) as Record<Name, number>;
  }

  /** Returns the Lua of an array whose elements are the fields of a Lua table. A field must not be nil. */
  arrayOf(table: string): string {
    return `{${this.#names.map((name) => `${table}.${name}`).join(", ")}}`;
  }

  /** Returns one element of a reply. */
  valueIn(reply: readonly unknown[], name: Name): unknown {
    return reply[this.at[name] - 1];
  }

  /** Returns the elements of a reply by their names. */
  parse(reply: unknown): Readonly<Record<Name, unknown>> {
    const elements = reply as readonly unknown[];
    const values = this.#names.map((name) => [name, this.valueIn(elements, name)]);
    return Object.fromEntries(values) as Record<Name, unknown>;
  }
}
