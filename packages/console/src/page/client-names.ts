/**
 * The names of the clients whose locks browsers show. Each name is requested once, and only a bounded number per look.
 */

/** How many names one look requests, in one request. */
const ASKED = 100;
/**
 * After this many looks, the name of a client without a name is requested again: its nodes may not have received the
 * name earlier.
 */
const AGAIN_LOOKS = 30;
/** The most names that are kept. The name that was requested longest ago is dropped first. */
const MOST = 5_000;

export class ClientNames {
  readonly #ask: (clients: readonly string[]) => Promise<ReadonlyMap<string, string>>;
  readonly #known = new Map<string, { readonly name: string | undefined; readonly askedAt: number }>();
  #looks = 0;

  constructor(ask: (clients: readonly string[]) => Promise<ReadonlyMap<string, string>>) {
    this.#ask = ask;
  }

  of(client: string): string | undefined {
    return this.#known.get(client)?.name;
  }

  /** Requests the unknown names among `clients`. */
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
