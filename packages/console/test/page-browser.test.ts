/**
 * The page in a real browser: what it shows is what the libraries say, an action does what it says, and a Redis that is
 * lost shows. With `SCREENSHOTS=1` the pictures of docs/console are taken anew.
 */
import { mkdirSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createPage, nodeListener } from "@x/console/page";
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { Redlock } from "@x/redlock-core";
import { isWithoutBrowser, type RedisServer, startBrowser, startRedisNodes, temporaryFolder } from "@x/test-support";
import { ExclusiveWorker } from "@x/workers";
import { Queue } from "bullmq";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";

type Browser = Awaited<ReturnType<typeof startBrowser>>;
type Tab = Awaited<ReturnType<Browser["newPage"]>>;

const pictures =
  process.env["SCREENSHOTS"] === "1"
    ? fileURLToPath(new URL("../../../docs/console", import.meta.url))
    : temporaryFolder();

describe.skipIf(isWithoutBrowser("the live page in a browser"))("the live page in a browser", () => {
  let nodes: readonly RedisServer[];
  let browser: Browser;
  beforeAll(async () => {
    [nodes, browser] = await Promise.all([startRedisNodes(3), startBrowser()]);
  });
  afterAll(async () => {
    await Promise.all([browser.close(), ...nodes.map((node) => node.stop())]);
  });

  /** The texts of the cells of a table, by the first cell of each row. */
  async function rowsOf(tab: Tab, table: string): Promise<ReadonlyMap<string, readonly string[]>> {
    const rows = await tab.$$eval(`#${table} tbody tr`, (found) =>
      found.map((row) => [...row.children].map((cell) => cell.textContent)),
    );
    return new Map(rows.map((cells) => [cells[0] ?? "", cells]));
  }

  it("shows changes while they happen, and performs actions", { timeout: 180_000 }, async () => {
    const urls = nodes.map(({ url }) => url);
    const redlock = new Redlock(urls, { quarantine: false });
    const other = new Redlock(urls, { quarantine: false, name: "billing-api host-7 4711" });
    const connection = { url: urls[0] ?? "", maxRetriesPerRequest: null };
    const queue = new Queue("payments", { connection });
    const ends: (() => void)[] = [];
    const worker = new ExclusiveWorker("payments", () => new Promise<void>((resolve) => ends.push(resolve)), {
      connection,
      redlock: other,
      key: "account",
      resource: "charge:",
      concurrency: 8,
    });
    const [first, second] = ["api-1", "api-2"].map(
      (id) => new LeaderElection(other, { name: "billing", id, value: "10.0.0.7:8080" }),
    ) as [LeaderElection, LeaderElection];
    const scheduler = new LeaderScheduler({ election: second });
    scheduler.cron("nightly-billing", "0 3 * * *", () => undefined);
    scheduler.every("refresh-rates", 3_600_000, () => undefined);
    let fetched = 0;
    scheduler.every("fetch-statements", 3_600_000, () => {
      fetched += 1;
      if (fetched === 3) throw new Error("the bank answers 503");
    });
    const backlog = { rows: 1_234, oldestMs: 75_000 };
    const outboxes = { payments: { backlog: async () => await Promise.resolve(backlog) } };
    const page = createPage({ redlock, queues: [worker], outboxes, actions: true, refresh: 300 });
    const server = createServer(nodeListener(page));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const tab = await browser.newPage();
    const faults: string[] = [];
    tab.on("pageerror", (error) => faults.push(String(error)));
    tab.on("console", (message) => {
      if (/Content Security Policy|Refused to/.test(message.text())) faults.push(message.text());
    });
    const requested: string[] = [];
    tab.on("request", (request) => requested.push(request.url()));
    onTestFinished(async () => {
      await tab.close();
      await page.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      const closing = worker.close();
      const ending = setInterval(() => ends.splice(0).forEach((end) => end()), 20);
      await closing;
      clearInterval(ending);
      await scheduler.stop({ drainTimeout: 0 });
      await Promise.all([first.stop({ drainTimeout: 0 }), queue.close()]);
      await Promise.all([redlock.close(), other.close()]);
    });

    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    await tab.setViewport({ width: 1100, height: 900 });
    await tab.goto(url, { waitUntil: "domcontentloaded" });
    const textOf = async (selector: string): Promise<string> =>
      await tab.$eval(selector, (found) => found.textContent ?? "");
    await expect.poll(() => textOf("#connection"), { timeout: 20_000 }).toBe("live, 3 of 3 nodes answer");

    // Locks come.
    const lock = await other.acquire("account:42", { ttl: 60_000 });
    const waiting = redlock.acquire("account:42", { timeout: 120_000 });
    waiting.catch(() => undefined);
    const kept = await other.acquire("invoice:<b>7</b>", { ttl: 60_000 });
    await expect.poll(async () => (await rowsOf(tab, "locks")).get("account:42")?.slice(1, 2)).toEqual(["held"]);
    await expect.poll(async () => (await rowsOf(tab, "locks")).get("account:42")?.[5]).toBe("1");
    await expect.poll(async () => (await rowsOf(tab, "locks")).get("account:42")?.[2]).toBe("billing-api host-7 4711");
    expect(await redlock.inspect("account:42")).toMatchObject({ verdict: "held", holder: "billing-api host-7 4711" });
    // A name is a text, whatever it has in it.
    await expect.poll(async () => (await rowsOf(tab, "locks")).has("invoice:<b>7</b>")).toBe(true);
    const odd = await other.acquire("account:7\u001f1", { ttl: 60_000 });
    await expect.poll(async () => (await rowsOf(tab, "locks")).has(String.raw`account:7\x1f1`)).toBe(true);
    expect(await tab.$(String.raw`#locks button[aria-label="Take away: account:7\\x1f1"]`)).not.toBeNull();
    await odd.release();

    // Leaders change.
    const term = await first.campaign();
    await expect.poll(() => textOf("#elections")).toContain("api-1 has led");
    await term.resign();
    scheduler.start();
    await expect.poll(() => textOf("#elections"), { timeout: 20_000 }).toContain("api-2 has led");
    expect((await second.leader())?.id).toBe("api-2");
    await scheduler.trigger("refresh-rates");
    await expect
      .poll(async () => (await rowsOf(tab, "schedules")).get("refresh-rates")?.[2], { timeout: 20_000 })
      .toMatch(/^run/);

    // Ticks come to an end, well and badly; a keyboard opens what is known of them.
    const ran: string[] = [];
    for (const outcome of ["run", "run", "failed", "run"]) {
      ran.unshift(outcome);
      await scheduler.trigger("fetch-statements");
      await expect
        .poll(async () => (await scheduler.history("fetch-statements")).map((tick) => tick.outcome), {
          timeout: 20_000,
        })
        .toEqual(ran);
    }
    const history = '#schedules button[aria-label="History of fetch-statements, of the last ticks: 3 run, 1 failed"]';
    await tab.waitForSelector(history, { timeout: 20_000 });
    expect(await tab.$$eval(`${history} rect`, (found) => found.map((each) => each.getAttribute("class")))).toEqual(
      ran.toReversed().map((outcome) => `mark-${outcome}`),
    );
    await tab.focus(history);
    await tab.keyboard.press("Enter");
    await expect
      .poll(() => tab.$$eval("#history tbody tr", (rows) => rows.map((row) => row.children[1]?.textContent)))
      .toEqual(ran);
    expect(await textOf("#history")).toContain("Error: the bank answers 503");
    expect(await textOf("#dialog-title")).toBe("History of fetch-statements");
    await historyPicture(tab);
    await tab.keyboard.press("Escape");
    expect(await tab.evaluate("document.activeElement.getAttribute('aria-label')")).toContain("fetch-statements");

    // Jobs wait for their keys.
    const accounts = ["42", "42", "42", "42", "7", "7", "7", "1001", "1001", "88"];
    await queue.addBulk(accounts.map((account) => ({ name: "charge", data: { account } })));
    await expect.poll(async () => (await worker.counts()).parked).toBe(6);
    await expect
      .poll(async () => [...(await rowsOf(tab, "keys"))].map(([key, cells]) => [key, cells[1]]), { timeout: 20_000 })
      .toEqual([
        ["42", "3"],
        ["7", "2"],
        ["1001", "1"],
        ["88", "0"],
      ]);

    // A key has a policy; the page says what the library says, and takes it away.
    await worker.setKeyPolicy("1001", { concurrency: 1, maxWaiting: { max: 50 } });
    await worker.setKeyPolicy("7", { rate: { max: 100, duration: 60_000 } });
    const policyOf = async (key: string): Promise<string | undefined> => (await rowsOf(tab, "keys")).get(key)?.[5];
    await expect.poll(() => policyOf("1001")).toBe("1 at a time, 50 wait");
    await expect.poll(() => policyOf("7")).toBe("100 start in 1 min 0 s");
    expect(
      (await worker.listKeys())
        .filter(({ policy }) => policy !== undefined)
        .map(({ key }) => key)
        .sort(),
    ).toEqual(["1001", "7"]);
    expect(await policyOf("42")).toBe("");
    await tab.click('#keys button[aria-label="Remove policy: 1001"]');
    await tab.click("#dialog-yes");
    await expect.poll(() => textOf("#outcome")).toBe("key 1001 has no policy any more");
    await expect.poll(() => policyOf("1001")).toBe("");
    expect([...(await worker.listKeyPolicies()).keys()]).toEqual(["7"]);

    // A key is paused by hand, with the keyboard alone.
    await tab.focus('#keys button[aria-label="Pause: 42"]');
    await tab.keyboard.press("Enter");
    expect(await textOf("#dialog-title")).toBe("Pause?");
    await tab.focus("#dialog-yes");
    await tab.keyboard.press("Enter");
    await expect.poll(() => textOf("#outcome")).toBe("key 42 is paused");
    await expect.poll(async () => (await rowsOf(tab, "keys")).get("42")?.[4]).toBe("paused: paused on the page");
    expect((await worker.listKeys()).find(({ key }) => key === "42")?.paused?.reason).toBe("paused on the page");
    // An outbox drains.
    const outboxRow = async (): Promise<readonly string[]> =>
      (await rowsOf(tab, "outboxes")).get("payments")?.slice(0, 4) ?? [];
    await expect.poll(outboxRow, { timeout: 20_000 }).toEqual(["payments", "1,234", "1 min 15 s", "none"]);
    Object.assign(backlog, { rows: 0, oldestMs: 0 });
    const drained = ["payments", "0", "", expect.stringMatching(/^−[\d,.]+ \/ s$/)];
    await expect.poll(outboxRow, { timeout: 20_000 }).toEqual(drained);
    Object.assign(backlog, { rows: 1_234, oldestMs: 75_000 });
    page.note("version 7 was deployed");
    await expect.poll(() => textOf("#events")).toContain("version 7 was deployed");

    await picturesOf(tab);

    // A lock is taken away; the one who waits has it then.
    await tab.click('#locks button[aria-label="Take away: account:42"]');
    await tab.click("#dialog-yes");
    await expect.poll(() => textOf("#outcome")).toBe("account:42 was taken away");
    await expect(lock.extend()).rejects.toThrow("account:42");
    await (await waiting).release();
    await kept.release();
    await expect.poll(async () => (await rowsOf(tab, "locks")).has("account:42")).toBe(false);

    // Two of three nodes are lost, and come back.
    await Promise.all([nodes[1]?.kill(), nodes[2]?.kill()]);
    await expect.poll(() => textOf("#banner"), { timeout: 20_000 }).toContain("1 of 3 nodes answer, 2 make a quorum");
    expect(await tab.$("#banner[hidden]")).toBeNull();
    expect(await textOf("#connection")).toBe("1 of 3 nodes answer");
    const enabled = '#keys button[aria-label^="Pause"]:not([disabled])';
    await expect.poll(() => tab.$(enabled)).toBeNull();
    await expect.poll(() => textOf("#findings"), { timeout: 20_000 }).toContain("UNREACHABLE");
    await Promise.all([nodes[1]?.start(), nodes[2]?.start()]);
    await expect.poll(() => textOf("#connection"), { timeout: 30_000 }).toBe("live, 3 of 3 nodes answer");
    expect(await tab.$("#banner[hidden]")).not.toBeNull();
    await expect.poll(() => textOf("#findings"), { timeout: 20_000 }).not.toContain("UNREACHABLE");
    expect(await tab.$(enabled)).not.toBeNull();

    expect(faults).toEqual([]);
    expect(requested.filter((address) => !address.startsWith(url) && !address.startsWith("data:"))).toEqual([]);
  });

  const overhangOf = async (tab: Tab, selector: string): Promise<unknown> =>
    await tab.$eval(selector, (found) => found.scrollWidth - found.clientWidth);

  /** Takes the picture of an open history; on a telephone, nothing of it may stick out. */
  async function historyPicture(tab: Tab): Promise<void> {
    await tab.setViewport({ width: 390, height: 844 });
    expect(await overhangOf(tab, "#dialog")).toBe(0);
    await tab.setViewport({ width: 1100, height: 900 });
    mkdirSync(pictures, { recursive: true });
    const dialog = await tab.waitForSelector("#dialog");
    await dialog?.screenshot({ path: join(pictures, "page-history.webp"), type: "webp", quality: 80 });
  }

  /** Takes the pictures: light, dark, and as narrow as a telephone, where nothing may stick out. */
  async function picturesOf(tab: Tab): Promise<void> {
    mkdirSync(pictures, { recursive: true });
    const save = async (name: string): Promise<void> => {
      await tab.evaluate("scrollTo(0, 0)");
      await tab.screenshot({ path: join(pictures, `${name}.webp`), type: "webp", quality: 80 });
    };
    const theme = async (value: string): Promise<void> => {
      await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value }]);
    };
    await theme("light");
    await tab.setViewport({ width: 1100, height: 1800 });
    await save("page-light");
    await theme("dark");
    await save("page-dark");
    await tab.setViewport({ width: 390, height: 844, isMobile: true });
    expect(await overhangOf(tab, "html")).toBe(0);
    await save("page-phone");
    await theme("light");
    await tab.setViewport({ width: 1100, height: 900 });
  }
});
