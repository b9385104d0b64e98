/** Seeded randomness (sfc32): the printed seed replays a run. */
export class SeededRandom {
  #a = 0;
  #b = 0;
  #c = 0;
  #counter = 1;

  constructor(seed: string) {
    let hash = 2_166_136_261;
    const word = (): number => {
      for (const char of `${seed}/${hash}`) hash = Math.imul(hash ^ (char.codePointAt(0) ?? 0), 16_777_619);
      return hash >>> 0;
    };
    [this.#a, this.#b, this.#c] = [word(), word(), word()];
    for (let round = 0; round < 12; round += 1) this.fraction();
  }

  /** Draws a number that is uniform in [0, 1). */
  fraction(): number {
    const sum = (this.#a + this.#b + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = ((this.#c << 21) | (this.#c >>> 11)) + sum;
    this.#c |= 0;
    return (sum >>> 0) / 4_294_967_296;
  }

  between(low: number, high: number): number {
    return low + this.fraction() * (high - low);
  }

  /** Draws an integer from `low` to `high`, both included. */
  integer(low: number, high: number): number {
    return low + Math.floor(this.fraction() * (high - low + 1));
  }

  chance(probability: number): boolean {
    return this.fraction() < probability;
  }

  pick<Item>(items: readonly Item[]): Item {
    const item = items[Math.floor(this.fraction() * items.length)];
    if (item === undefined) throw new RangeError("pick from nothing");
    return item;
  }

  /** Draws `digits` hex digits. */
  hex(digits: number): string {
    let text = "";
    while (text.length < digits)
      text += Math.floor(this.fraction() * 2 ** 24)
        .toString(16)
        .padStart(6, "0");
    return text.slice(0, digits);
  }
}

/** A generator without chance: every delay has its least value, and no random fault occurs. */
export class CalmRandom extends SeededRandom {
  #count = 0;

  constructor() {
    super("");
  }

  override fraction(): number {
    return 0;
  }

  /** Counts up, so that names differ from each other. */
  override hex(digits: number): string {
    this.#count += 1;
    return this.#count.toString(16).padStart(digits, "0");
  }
}
