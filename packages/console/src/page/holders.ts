/** The names of those who hold the locks that browsers show. A name is asked for once, and few at a look. */

/** A look asks for this many, in one request. */
const ASKED = 100;
/** A holder without a name is asked for again after this many looks: its nodes may not have been told yet. */
const AGAIN_LOOKS = 30;
/** More are not kept: that which was asked for first is forgotten. */
const MOST = 5_000;

export class Holders {
  readonly #ask: (clients: readonly string[]) => Promise<ReadonlyMap<string, string>>;
  readonly #known = new Map<string, { readonly name: string | undefined; readonly askedAt: number }>();
  #looks = 0;

  constructor(ask: (clients: readonly string[]) => Promise<ReadonlyMap<string, string>>) {
    this.#ask = ask;
  }

  of(client: string): string | undefined {
    return this.#known.get(client)?.name;
  }

  /** Asks for those of `clients` that are not known yet. */
  async look(clients: readonly string[]): Promise<void> {
    this.#looks += 1;
    const asked = [...new Set(clients)].filter((client) => client !== "" && !this.#isKnown(client)).slice(0, ASKED);
    if (asked.length === 0) return;
    const names = await this.#ask(asked);
    for (const client of asked) {
      this.#known.delete(client);
      this.#known.set(client, { name: names.get(client), askedAt: this.#looks });
    }
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= MOST) return;
      this.#known.delete(oldest);
    }
  }

  #isKnown(client: string): boolean {
    const known = this.#known.get(client);
    return known !== undefined && (known.name !== undefined || this.#looks - known.askedAt < AGAIN_LOOKS);
  }
}
