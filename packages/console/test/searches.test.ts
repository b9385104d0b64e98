/** The cost of a look, for any number of browsers and texts. */
import { expect, it } from "vitest";
import { Budgets } from "../src/page/rules/budgets.ts";
import { LockTable } from "../src/page/rules/lock-table.ts";
import { Searches, SearchTurns } from "../src/page/rules/searches.ts";

const TEXTS = Array.from({ length: 100 }, (_, at) => `a${at}`);

/** Counts how often a name was read. */
class Names {
  reads = 0;
  readonly items = Array.from({ length: 1_000 }, (_, at) => at);
  readonly turns = new SearchTurns();
  readonly searches = new Searches<number>(this.turns, (item) => {
    this.reads += 1;
    return `a${item}`;
  });

  look(texts: readonly string[], items: readonly number[] = [...this.items]): number {
    const before = this.reads;
    this.turns.renew();
    this.searches.renew(items, new Set(texts));
    return (this.reads - before) / this.items.length;
  }
}

it("searches few texts per look, and each of a hundred texts in turn", () => {
  const names = new Names();
  const found = new Set<string>();
  for (let look = 0; look < 10; look += 1) {
    expect(names.look(TEXTS)).toBeLessThanOrEqual(10);
    const before = names.reads;
    for (const text of TEXTS) if (names.searches.find(text) !== undefined) found.add(text);
    expect(names.reads - before).toBeLessThanOrEqual(10 * names.items.length);
  }
  expect(found.size).toBe(100);
});

it("shares a search among all browsers with the same text, and keeps its result until its next turn", () => {
  const names = new Names();
  expect(names.look(["a99"])).toBe(1);
  const found = names.searches.find("a99");
  expect(found).toEqual([99, ...Array.from({ length: 10 }, (_, at) => 990 + at)]);
  for (let viewer = 0; viewer < 100; viewer += 1) expect(names.searches.find("a99")).toBe(found);
  expect(names.reads).toBe(1_000);
});

it("searches again only if the items have changed, and never for an empty text", () => {
  const names = new Names();
  const items = [...names.items];
  names.look(["a1", ""], items);
  expect(names.look(["a1", ""], items)).toBe(0);
  expect(names.searches.find("")).toBe(items);
  expect(names.look(["a1"])).toBe(1);
  expect(names.look([])).toBe(0);
});

it("shares its turns among all tables", () => {
  const turns = new SearchTurns();
  const [one, other] = [new Searches<string>(turns, String), new Searches<string>(turns, String)];
  for (let at = 0; at < 5; at += 1) expect([one.find(`a${at}`), other.find(`b${at}`)]).toEqual([[], []]);
  expect([one.find("c"), other.find("c"), one.find("a0")]).toEqual([undefined, undefined, []]);
});

it("gives each page a budget, all other requests a shared budget, and all together a limit", () => {
  const budgets = new Budgets();
  const taken = (client: string, nowMs: number): number =>
    Array.from({ length: 50 }, () => budgets.take(client, nowMs)).filter(Boolean).length;
  expect([taken("", 0), taken("page", 0), taken("", 999), taken("", 1_000)]).toEqual([20, 20, 0, 20]);
  const all = Array.from({ length: 30 }, (_, at) => taken(`page ${at}`, 5_000));
  expect(all.reduce((sum, each) => sum + each, 0)).toBe(200);
});

it("orders locks by their waiters, then by their age, and drops ended locks", () => {
  const locks = new LockTable(1, "", new SearchTurns());
  const lock = (key: string, holder: string, waiters: number) => ({
    key,
    holder,
    pttlMs: 1_000,
    waiters,
    claim: "",
    client: "",
  });
  const look = (found: readonly ReturnType<typeof lock>[], asked: readonly string[], wallMs: number): void => {
    const answer = {
      runId: "r",
      nowMs: wallMs,
      cursor: "1",
      locks: found,
      elections: [],
      schedulers: [],
      semaphores: [],
      waited: new Map<string, number>(),
    };
    locks.add(0, answer, { asked, wallMs, nowMs: wallMs });
    locks.renew(new Set());
  };
  look([lock("a", "1", 0), lock("b", "2", 1), lock("c", "3", 0)], [], 1);
  look([lock("d", "4", 5)], [], 2);
  expect(locks.find("")).toEqual(["d", "b", "a", "c"]);
  // Another holder has "a" now, and "c" was released.
  look([lock("a", "5", 0), lock("e", "6", 0)], ["a", "c"], 3);
  expect(locks.find("")).toEqual(["d", "b", "a", "e"]);
  expect(locks.size).toBe(4);
  expect(locks.viewOf("a", 3)?.seenAt).toBe(3);
});
