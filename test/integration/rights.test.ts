/**
 * Each Redis user of the guide has exactly the rights that its package uses: without any of these rights the user fails
 * somewhere.
 */

import { readFileSync } from "node:fs";
import {
  type RedisServer,
  recordRights,
  rightsGuide,
  rightsInGuide,
  sinceRedis7,
  startRedis,
  usersInGuide,
} from "@x/test-support";
import { describe, expect, it, onTestFinished } from "vitest";
import { flows, locksWithGlide } from "./rights/flows.ts";

it("the guide has rights for each package", () => {
  expect(usersInGuide()).toEqual(Object.keys(flows));
});

describe.each(Object.keys(flows))("the user for %s", (user) => {
  it.each(["app:", ""])("uses each right of the guide, and no other; keyPrefix %j", async (keyPrefix) => {
    const server = await startRedis({ persistence: true });
    onTestFinished(() => server.stop());
    const rights = rightsInGuide(user, { isWithoutPrefix: keyPrefix === "" });
    await server.call("ACL", "SETUSER", user, ...rights);
    const recording = await recordRights(server);
    onTestFinished(() => recording.stop());
    await flows[user]?.({ server, url: `redis://${user}:secret@127.0.0.1:${server.port}`, keyPrefix });
    const { commands, keys, channels } = await recording.read();
    // MONITOR leaves out CLIENT LIST, and in Redis 6.2 all of CLIENT.
    const unseen = ["+client|list", ...(sinceRedis7("seen").length === 0 ? ["+client|setname"] : [])];
    const allowed = rights.filter((right) => right.startsWith("+") && !unseen.includes(right));
    expect(commands.map((command) => `+${command}`)).toEqual(allowed.sort());
    const unused = (kind: string, used: readonly string[]): readonly string[] => {
      const patterns = rights.filter((right) => right.startsWith(kind));
      const others = (pattern: string) => patterns.filter((each) => each !== pattern);
      return patterns.filter(
        (pattern) =>
          !used.some((name) => allows(pattern, name) && !others(pattern).some((other) => allows(other, name))),
      );
    };
    expect({ keys: unused("~", keys), channels: unused("&", channels) }).toEqual({ keys: [], channels: [] });
    expect(await refusals(server)).toEqual([]);
  });
});

const withGlide = locksWithGlide();
it.skipIf(withGlide === undefined)(
  "the user for locks uses Valkey GLIDE with the further rights of the guide",
  async () => {
    const server = await startRedis({ persistence: true });
    onTestFinished(() => server.stop());
    const [, further = ""] = /GLIDE uses `([^`]+)`/.exec(readFileSync(rightsGuide, "utf8")) ?? [];
    await server.call("ACL", "SETUSER", "locks", ...rightsInGuide("locks"), ...further.split(" "));
    await withGlide?.({ server, url: `redis://locks:secret@127.0.0.1:${server.port}`, keyPrefix: "app:" });
    expect(await refusals(server)).toEqual([]);
  },
);

/** Returns the commands that the server has refused, except commands that the guide calls optional. */
async function refusals(server: RedisServer): Promise<readonly string[]> {
  const refused = (await server.call("ACL", "LOG")) as readonly unknown[];
  // Before Redis 7 the log has no subcommands.
  return refused.map(String).filter((entry) => !/client\|setinfo|config\|get|,object,(?:client|config),/.test(entry));
}

/** Whether a pattern such as `~app:*` or `&x:*` matches a name. */
function allows(pattern: string, name: string): boolean {
  return name.startsWith(pattern.slice(1, -1));
}
