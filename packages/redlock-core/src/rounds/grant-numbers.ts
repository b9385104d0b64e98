/** The numbers that a node alone gave the grants of this client. A node that lost its data continues above them. */
import { digits, isNumber } from "../rules/operation.ts";
import { NO_NUMBER } from "./batch-request.ts";

export class GrantNumbers {
  #greatest = NO_NUMBER;
  /** The greatest number that is not a text yet. */
  #notedValue = 0;

  /** The greatest number, as text. */
  get greatest(): string {
    if (this.#notedValue > 0) this.note(digits(this.#notedValue));
    this.#notedValue = 0;
    return this.#greatest;
  }

  note(number: string): void {
    if (isNumber(number) && number > this.#greatest) this.#greatest = number;
  }

  /** Notes a number. The number becomes a text only for a request, because many clients that note send none. */
  noteValue(number: number): void {
    if (number > this.#notedValue) this.#notedValue = number;
  }
}
