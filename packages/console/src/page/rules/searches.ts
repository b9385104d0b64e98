/**
 * Pure: finds the items whose names contain a browser's search text.
 *
 * A search reads all names. A look therefore makes a bounded number of searches, and all browsers with the same text
 * share one search. A text that is not searched again at a look keeps its previous result.
 */

/** The most searches per look for the texts of open pages, and again for requests between two looks. */
const MOST = 10;

/** The number of searches left until the next look, for all tables together. */
export class SearchTurns {
  forPages: number = MOST;
  forRequests: number = MOST;

  /** Begins a look. */
  renew(): void {
    this.forPages = MOST;
    this.forRequests = MOST;
  }
}

export class Searches<Item> {
  readonly #turns: SearchTurns;
  readonly #nameOf: (item: Item) => string;
  /** Results by text. The text whose search is longest ago comes first. */
  readonly #found = new Map<string, readonly Item[]>();
  #items: readonly Item[] = [];

  constructor(turns: SearchTurns, nameOf: (item: Item) => string) {
    this.#turns = turns;
    this.#nameOf = nameOf;
  }

  /** Replaces the items. Drops the results of all texts that are not in `texts`, the searches of the open pages. */
  renew(items: readonly Item[], texts: ReadonlySet<string>): void {
    const isSame = items === this.#items;
    this.#items = items;
    for (const text of this.#found.keys()) if (!texts.has(text)) this.#found.delete(text);
    const known = [...this.#found.keys()];
    const unknown = [...texts].filter((text) => !this.#found.has(text));
    for (const text of isSame ? unknown : [...unknown, ...known]) {
      if (text === "" || this.#turns.forPages === 0) continue;
      this.#turns.forPages -= 1;
      this.#search(text);
    }
  }

  /** Returns the items whose names contain `text`. Undefined if the text has to wait for a later look. */
  find(text: string): readonly Item[] | undefined {
    if (text === "") return this.#items;
    const found = this.#found.get(text);
    if (found !== undefined) return found;
    if (this.#turns.forRequests === 0) return undefined;
    this.#turns.forRequests -= 1;
    return this.#search(text);
  }

  #search(text: string): readonly Item[] {
    const found = this.#items.filter((item) => this.#nameOf(item).includes(text));
    this.#found.delete(text);
    this.#found.set(text, found);
    return found;
  }
}
