/** Stands in the line for a lock three times, and never gets anywhere: to be killed or frozen. */
import { Redlock } from "@x/redlock-core";

const [resource = "", ...paths] = process.argv.slice(2);
for (let index = 0; index < 3; index += 1) {
  const redlock = new Redlock(
    paths.map((path) => ({ path })),
    { quarantine: false, timeout: Number.POSITIVE_INFINITY },
  );
  void redlock.acquire(resource).catch(() => undefined);
}
