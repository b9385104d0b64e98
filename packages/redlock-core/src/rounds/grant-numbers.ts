/**
 * Numbers that a node alone gave to grants of this client. A node that has lost its data continues above these numbers.
 */
import { digits, isNumber } from "../rules/operation.ts";
import { NO_NUMBER } from "./batch-request.ts";

export class GrantNumbers {
  #greatest = NO_NUMBER;
  /** The greatest number that has not been converted to text. */
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

  /**
   * Records a number. The number is not converted to text until a request needs the text, because many clients that
   * record numbers send no requests.
   */
  noteValue(number: number): void {
    if (number > this.#notedValue) this.#notedValue = number;
  }
}
