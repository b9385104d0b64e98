/** Waits in line for a lock three times without a grant, until it is killed or frozen. */
import { Redlock } from "@x/redlock-core";

const [resource = "", ...paths] = process.argv.slice(2);
for (let index = 0; index < 3; index += 1) {
  const redlock = new Redlock(
    paths.map((path) => ({ path })),
    { quarantine: false, timeout: Number.POSITIVE_INFINITY },
  );
  void redlock.acquire(resource).catch(() => undefined);
}
