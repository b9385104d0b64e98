/** Why a command could not do what it was asked to, in words for whoever typed it. */
export class ConsoleFailure extends Error {
  /** What to do about it. */
  readonly advice: string;

  constructor(message: string, advice = "") {
    super(message);
    this.name = "ConsoleFailure";
    this.advice = advice;
  }
}
