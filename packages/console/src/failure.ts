/** A command failed. The message tells the user why. */
export class ConsoleFailure extends Error {
  /** What the user can do about the failure. May be empty. */
  readonly advice: string;

  constructor(message: string, advice = "") {
    super(message);
    this.name = "ConsoleFailure";
    this.advice = advice;
  }
}
