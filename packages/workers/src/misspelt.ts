/** Options whose names are nearly ours. */
import { nearestName } from "@x/redlock-core/protocol";

/** BullMQ ignores options that it does not know; one that was meant to be among `own` must not be lost in that way: TypeError. */
export function refuseMisspelt(options: object, own: readonly string[]): void {
  for (const name of Object.keys(options)) {
    const meant = nearestName(name, own);
    if (meant !== undefined && meant !== name)
      throw new TypeError(`unknown option "${name}": did you mean "${meant}"?`);
  }
}
