/** Randomness that leaves nothing to chance: every delay is its least, and no fault strikes that nobody asked for. */
import { SeededRandom } from "./world/random.ts";

export class CalmRandom extends SeededRandom {
  #count = 0;

  constructor() {
    super("");
  }

  override fraction(): number {
    return 0;
  }

  /** Names stay different from each other. */
  override hex(digits: number): string {
    this.#count += 1;
    return this.#count.toString(16).padStart(digits, "0");
  }
}
