/** No option is ignored. */
import { nearestName } from "@x/redlock-core/protocol";
import { show } from "./checks.ts";

/** Every name of a kind; the compiler finds one that is left out. */
export type Known<Options> = Record<keyof Options, true>;

/** @throws TypeError if `given` is no object or has an option that is not in `known`; `prefix` names the option that it belongs to */
export function checkKnown<Options extends object>(given: Options, known: Known<Options>, prefix = ""): void {
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new TypeError(`${prefix === "" ? "options" : prefix} must be an object, got ${show(given)}`);
  }
  const names = Object.keys(known);
  const unknown = Object.keys(given).find((name) => !names.includes(name));
  if (unknown === undefined) return;
  const near = nearestName(unknown, names);
  const path = prefix === "" ? "" : `${prefix}.`;
  const hint = near === undefined ? `known are ${names.join(", ")}` : `did you mean "${path}${near}"?`;
  throw new TypeError(`unknown option "${path}${unknown}": ${hint}`);
}
