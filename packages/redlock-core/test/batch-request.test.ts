import { expect, it } from "vitest";
import { openRedlock } from "./support/nodes.ts";
import { granted, StubNode } from "./support/stub-node.ts";

class ListeningNode extends StubNode {
  readonly heard: (readonly string[])[] = [];

  override eval(...[script, keys, args]: Parameters<StubNode["eval"]>): Promise<unknown> {
    this.heard.push(keys, args);
    return super.eval(script, keys, args);
  }
}

it("writes each request to several nodes only once, even if a turn has several requests", async () => {
  const nodes = [new ListeningNode(), new ListeningNode(), new ListeningNode()];
  for (const node of nodes) node.answer = (operations) => Promise.resolve(granted(operations));
  const redlock = openRedlock(nodes, { quarantine: false });
  const locks = await Promise.all(
    Array.from({ length: 600 }, (_, index) => `r${index}`).map((resource) => redlock.acquire(resource)),
  );
  await Promise.all(locks.map((lock) => lock.release()));
  const [first, ...others] = nodes.map(({ heard }) => heard);
  expect(first?.length).toBeGreaterThan(8);
  for (const heard of others) expect(heard.every((part, index) => part === first?.[index])).toBe(true);
});
