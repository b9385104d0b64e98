/**
 * The page in a real browser with real servers: it shows the state of the libraries, its actions take effect, and it
 * shows the loss of a Redis. `page-look.test.ts` tests the look of the page.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { isDeepStrictEqual } from "node:util";
import { createPage, nodeListener } from "@x/console/page";
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { Redlock } from "@x/redlock-core";
import { ReadWriteLock, Semaphore } from "@x/semaphore";
import { isWithoutBrowser, type RedisServer, startBrowser, startRedisNodes } from "@x/test-support";
import { ExclusiveQueue, ExclusiveWorker } from "@x/workers";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import type { PageState } from "../src/page/state.ts";

/** Time for a loaded machine. */
const LONG = { timeout: 30_000 };

type Browser = Awaited<ReturnType<typeof startBrowser>>;
type Tab = Awaited<ReturnType<Browser["newPage"]>>;
type Handle = NonNullable<Awaited<ReturnType<Tab["$"]>>>;

function raise(text: string): never {
  throw new Error(text);
}

describe.skipIf(isWithoutBrowser("the live page in a browser"))("the live page in a browser", () => {
  let nodes: readonly RedisServer[];
  let browser: Browser;
  beforeAll(async () => {
    [nodes, browser] = await Promise.all([startRedisNodes(3), startBrowser()]);
  });
  afterAll(async () => {
    await Promise.all([browser.close(), ...nodes.map((node) => node.stop())]);
  });

  /** Returns the texts of the cells of a row, by the titles of their columns. Empty if there is no such row. */
  async function rowOf(tab: Tab, selector: string): Promise<Readonly<Record<string, string>>> {
    const cells = await tab.$$eval(`${selector} > *`, (found) =>
      found.map((cell) => [cell.getAttribute("data-l") ?? "name", cell.textContent.replaceAll("\u00a0", " ").trim()]),
    );
    return Object.fromEntries(cells) as Readonly<Record<string, string>>;
  }

  it("shows changes while they happen, and performs actions", { timeout: 180_000 }, async () => {
    const urls = nodes.map(({ url }) => url);
    const redlock = new Redlock(urls, { quarantine: false });
    const other = new Redlock(urls, { quarantine: false, name: "billing-api host-7 4711" });
    const connection = { url: urls[0] ?? "", maxRetriesPerRequest: null };
    const queue = new ExclusiveQueue("payments", { connection });
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
    const page = createPage({ redlock, queues: [queue], outboxes, actions: true, refresh: 300 });
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
    await tab.setViewport({ width: 1_100, height: 900 });
    await tab.goto(url, { waitUntil: "domcontentloaded" });
    const textOf = async (selector: string): Promise<string> =>
      (await tab.$eval(selector, (found) => found.textContent ?? "").catch(() => "")).replaceAll("\u00a0", " ");
    const row = (selector: string): Promise<Readonly<Record<string, string>>> => rowOf(tab, selector);
    await expect.poll(() => textOf("#live"), LONG).toMatch(/^Live \d\d:\d\d:\d\d$/);
    expect(await textOf("#nodes")).toContain("2 of 3 votes take a lock");

    // A lock is acquired.
    const lock = await other.acquire("account:42", { ttl: 60_000 });
    const waiting = redlock.acquire("account:42", { timeout: 120_000 });
    waiting.catch(() => undefined);
    const kept = await other.acquire("invoice:<b>7</b>", { ttl: 60_000 });
    const lockRow = '[data-lock="account:42"]';
    await expect.poll(() => row(lockRow), LONG).toMatchObject({ "Held by": "billing-api host-7 4711", Waiters: "1" });
    expect(await redlock.inspect("account:42")).toMatchObject({ verdict: "held", holder: "billing-api host-7 4711" });
    // A name is shown as text, even if it contains HTML.
    await expect.poll(() => textOf("#locks"), LONG).toContain("invoice:<b>7</b>");
    const odd = await other.acquire("account:7\u001f1", { ttl: 60_000 });
    await expect.poll(() => textOf("#locks"), LONG).toContain("account:7 slot 2");
    expect(await tab.$('button[aria-label="Details of lock account:7 slot 2"]')).not.toBeNull();
    await odd.release();

    // A semaphore and a read-write lock, as their own inspection reports them.
    const single = new Redlock([urls[0] ?? ""], { quarantine: false });
    onTestFinished(() => single.close());
    const bank = new Semaphore(single, "bank-api", { permits: 3, ttl: 60_000 });
    const prices = new ReadWriteLock(other, "price-list", { ttl: 60_000 });
    const permits = await bank.acquire({ permits: 2 });
    const reader = await prices.read.acquire();
    const semaphoreRow = async (name: string): Promise<unknown> => await row(`[data-semaphore="${name}"]`);
    await expect
      .poll(() => semaphoreRow("bank-api"), LONG)
      .toMatchObject({ name: "bank-api", "Permits held": "2 of 3", Holders: "1", Waiters: "0" });
    expect(await bank.inspect()).toMatchObject({ permits: 3, used: 2, waiting: 0 });
    await expect.poll(() => semaphoreRow("price-list"), LONG).toMatchObject({ "Permits held": "1 reader" });
    expect(await prices.inspect()).toMatchObject({ readers: 1, isWriting: false });
    const asking = bank.acquire({ permits: 3, timeout: 120_000 });
    await expect.poll(() => semaphoreRow("bank-api"), LONG).toMatchObject({ Waiters: "1" });
    await permits.release();
    await reader.release();
    const writer = await prices.write.acquire();
    await expect.poll(() => semaphoreRow("bank-api"), LONG).toMatchObject({ "Permits held": "3 of 3", Waiters: "0" });
    await expect.poll(() => semaphoreRow("price-list"), LONG).toMatchObject({ "Permits held": "1 writer" });
    await Promise.all([(await asking).release(), writer.release()]);

    // The leader changes.
    const billing = "[data-election=billing]";
    const term = await first.campaign();
    await expect.poll(() => textOf(billing), LONG).toContain("api-1 leads for");
    await term.resign();
    scheduler.start();
    await expect.poll(() => textOf(billing), LONG).toContain("api-2 leads for");
    expect((await second.leader())?.id).toBe("api-2");
    // Both terms are bars of the time line.
    expect(await tab.$$eval(`${billing} .term`, (found) => found.map(({ title }) => title.split(",")[0]))).toEqual([
      "api-1",
      "api-2",
    ]);
    await scheduler.trigger("refresh-rates");
    await expect.poll(() => textOf("[data-schedule=refresh-rates]"), LONG).toMatch(/ran in/);

    // Ticks end, successfully and with errors. A keyboard opens the details of a tick.
    const ran: string[] = [];
    for (const outcome of ["run", "run", "failed", "run"]) {
      ran.unshift(outcome);
      await scheduler.trigger("fetch-statements");
      await expect
        .poll(async () => (await scheduler.history("fetch-statements")).map((tick) => tick.outcome), LONG)
        .toEqual(ran);
    }
    await tab.waitForSelector('[aria-label="fetch-statements, last ticks: 3 ran, 1 failed"]', LONG);
    await tab.focus('button[aria-label="Details of schedule fetch-statements"]');
    await tab.keyboard.press("Enter");
    await expect
      .poll(() => tab.$$eval("#ticks tbody tr", (rows) => rows.map((each) => each.children[1]?.textContent)), LONG)
      .toEqual(ran);
    expect(await textOf("#ticks")).toContain("Error: the bank answers 503");
    expect(await textOf("#dialog-title")).toBe("Schedule fetch-statements");
    await tab.keyboard.press("Escape");
    await expect.poll(focused).toBe("Details of schedule fetch-statements");

    // Jobs wait for their keys. A keyboard opens the queue.
    const accounts = ["42", "42", "42", "42", "7", "7", "7", "1001", "1001", "88"];
    await queue.addBulk(accounts.map((account) => ({ name: "charge", data: { account } })));
    await expect.poll(async () => (await queue.counts()).parked, LONG).toBe(6);
    await expect.poll(() => row("[data-queue=payments]"), LONG).toMatchObject({ Parked: "6" });
    await tab.focus("[data-queue=payments] a");
    await tab.keyboard.press("Enter");
    await expect.poll(() => textOf("h1")).toBe("payments");
    await expect
      .poll(
        async () =>
          await tab.$$eval("#keys tbody tr", (rows) =>
            rows.map((each) => [each.getAttribute("data-key"), each.querySelector(".big")?.textContent]),
          ),
        LONG,
      )
      .toEqual([
        ["42", "3"],
        ["7", "2"],
        ["1001", "1"],
        ["88", "0"],
      ]);

    // The buttons filter the keys: two of them still wait for a job that runs.
    const keyNames = async (): Promise<readonly (string | null)[]> =>
      await tab.$$eval("#keys tbody tr[data-key]", (rows) => rows.map((each) => each.getAttribute("data-key")));
    await queue.pauseKey("88", "audit");
    await clickButton("Paused 1");
    await expect.poll(keyNames, LONG).toEqual(["88"]);
    expect((await queue.listKeys()).filter(({ paused }) => paused !== undefined).map(({ key }) => key)).toEqual(["88"]);
    await clickButton("Waiting 3");
    await expect.poll(keyNames, LONG).toEqual(["42", "7", "1001"]);
    await queue.resumeKey("88");
    await clickButton("All 4");
    await expect.poll(keyNames, LONG).toHaveLength(4);

    // A key has a policy. The page shows the policy as the library reports it, and removes it.
    await queue.setKeyPolicy("1001", { concurrency: 1, maxWaiting: { max: 50 } });
    await queue.setKeyPolicy("7", { rate: { max: 100, duration: 60_000 } });
    const policyOf = async (key: string): Promise<string | undefined> => (await row(`[data-key="${key}"]`))["Limit"];
    await expect.poll(() => policyOf("1001"), LONG).toBe("1 at a time, 50 may wait");
    await expect.poll(() => policyOf("7"), LONG).toBe("100 in 1 min");
    expect(await policyOf("42")).toBe("–");
    await tab.click('[data-key="1001"] a');
    await clickButton("Remove policy");
    await clickButton("Remove policy", "dialog ");
    await expect.poll(() => textOf("#outcome"), LONG).toBe("key 1001 has no policy any more");
    await expect.poll(() => policyOf("1001"), LONG).toBe("–");
    expect([...(await queue.listKeyPolicies()).keys()]).toEqual(["7"]);

    // The opened key shows its holder and its waiting jobs. The keyboard alone pauses the key.
    await tab.click('[data-key="42"] a');
    await expect.poll(() => textOf("h1")).toBe("42");
    const { holder = "", parked } = await queue.jobsOf("42");
    await expect.poll(() => textOf(".inspect .line"), LONG).toContain(holder);
    expect(await tab.$$eval(".jobs tbody th", (found) => found.map(({ textContent }) => textContent))).toEqual(parked);
    const pause = await buttonWith("Pause key");
    await pause.focus();
    await tab.keyboard.press("Enter");
    await expect.poll(() => textOf("#dialog-title")).toBe("Pause key?");
    await (await buttonWith("Pause key", "dialog ")).focus();
    await tab.keyboard.press("Enter");
    await expect.poll(() => textOf("#outcome"), LONG).toBe("key 42 is paused");
    await expect.poll(() => row('[data-key="42"]'), LONG).toMatchObject({ State: "paused" });
    await expect.poll(() => textOf(".inspect .hd .tag"), LONG).toBe("paused");
    expect((await queue.listKeys()).find(({ key }) => key === "42")?.paused?.reason).toBe("paused on the page");

    // The jobs in line are removed, and the job that has the key continues.
    await clickButton("Remove 3 jobs");
    await clickButton("Remove 3 jobs", "dialog ");
    await expect.poll(() => textOf("#outcome"), LONG).toBe("3 jobs in line for key 42 are removed");
    expect(await queue.jobsOf("42")).toMatchObject({ holder, parked: [] });
    await expect.poll(() => tab.$(".jobs"), LONG).toBeNull();

    // The address contains the key, so the key is open again after a reload.
    await tab.reload({ waitUntil: "domcontentloaded" });
    await expect.poll(() => textOf(".inspect .hd .tag"), LONG).toBe("paused");
    await tab.click(".crumbs a");

    // An outbox drains.
    const outbox = async (): Promise<unknown> => await row("#outboxes tbody tr");
    await expect.poll(outbox, LONG).toMatchObject({ name: "payments", "Jobs to relay": "1,234", Oldest: "1 min 15 s" });
    Object.assign(backlog, { rows: 0, oldestMs: 0 });
    await expect.poll(outbox, LONG).toMatchObject({
      "Jobs to relay": "0",
      Oldest: "–",
      Change: expect.stringMatching(/^−[\d,.]+ a second$/) as string,
    });
    page.note("version 7 was deployed");
    await expect.poll(() => textOf(".marks"), LONG).toContain("version 7 was deployed");

    // A lock is released by force, and the waiter acquires it.
    await tab.click('button[aria-label="Details of lock account:42"]');
    await clickButton("Release by force", "dialog ");
    await expect.poll(() => textOf("#outcome"), LONG).toBe("account:42 was taken away");
    await expect(lock.extend()).rejects.toThrow("account:42");
    await (await waiting).release();
    await expect.poll(() => tab.$(lockRow), LONG).toBeNull();

    // Two of three nodes are lost, and return. The known state remains, and nothing can be changed.
    await Promise.all([nodes[1]?.kill(), nodes[2]?.kill()]);
    await expect.poll(() => textOf("h1"), LONG).toMatch(/^Redis has not answered since/);
    await expect.poll(() => textOf(".banner"), LONG).toContain("1 of 3 nodes answer, 2 make a quorum");
    expect(await textOf("#live")).toMatch(/^Not live/);
    await expect.poll(() => textOf("#nodes"), LONG).toContain("no answer");
    await tab.click('button[aria-label="Details of election billing"]');
    await expect
      .poll(() => tab.$$eval("dialog .btn.main", (found) => found.map(({ ariaDisabled }) => ariaDisabled)))
      .toEqual(["true"]);
    await tab.keyboard.press("Escape");
    await Promise.all([nodes[1]?.start(), nodes[2]?.start()]);
    await expect.poll(() => textOf("#live"), LONG).toMatch(/^Live/);
    await expect.poll(() => textOf("#nodes"), LONG).not.toContain("no answer");
    await kept.release().catch(() => undefined);

    expect(faults).toEqual([]);
    expect(requested.filter((address) => !address.startsWith(url) && !address.startsWith("data:"))).toEqual([]);

    /** Waits for the button with this text. */
    async function buttonWith(text: string, within = ""): Promise<Handle> {
      const found = async (): Promise<Handle | undefined> => {
        for (const button of await tab.$$(`${within}button`)) {
          if ((await button.evaluate((each) => each.textContent.trim())) === text) return button;
        }
        return undefined;
      };
      await expect.poll(async () => (await found()) !== undefined, LONG).toBe(true);
      return (await found()) ?? raise(`no button ${text}`);
    }
    async function clickButton(text: string, within = ""): Promise<void> {
      await (await buttonWith(text, within)).click();
    }
    async function focused(): Promise<unknown> {
      return await tab.evaluate("document.activeElement.getAttribute('aria-label')");
    }
  });

  it("shows the same as the API during a fault, from its beginning to its end", { timeout: 180_000 }, async () => {
    const own = await startRedisNodes(3);
    onTestFinished(async () => {
      await Promise.all(own.map((node) => node.stop()));
    });
    const urls = own.map(({ url }) => url);
    const [redlock, dying, lasting] = [1, 2, 3].map(() => new Redlock(urls, { quarantine: false })) as [
      Redlock,
      Redlock,
      Redlock,
    ];
    const connection = { url: urls[0] ?? "", maxRetriesPerRequest: null };
    const queues = ["exports", "invoices"].map((name) => new ExclusiveQueue(name, { connection })) as [
      ExclusiveQueue,
      ExclusiveQueue,
    ];
    let isMended = false;
    const send = (): Promise<void> => (isMended ? Promise.resolve() : Promise.reject(new Error("SMTP 421")));
    const halting = new ExclusiveWorker("invoices", send, {
      connection,
      key: "account",
      onFailure: "halt",
    });
    const leases = { name: "reports", leaseDuration: 1_500, renewDeadline: 1_000 };
    const [first, second] = [
      new LeaderElection(dying, { ...leases, id: "host-a" }),
      new LeaderElection(lasting, { ...leases, id: "host-b" }),
    ];
    let worker: ExclusiveWorker | undefined;
    const page = createPage({ redlock, queues, actions: true, refresh: 300 });
    const server = createServer(nodeListener(page));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const tab = await browser.newPage();
    const faults: string[] = [];
    tab.on("pageerror", (error) => faults.push(String(error)));
    onTestFinished(async () => {
      // A failed test may leave the nodes off, and closing a worker waits for its Redis.
      await Promise.all(own.map((node) => node.start()));
      await tab.close();
      await page.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await Promise.all([first.stop({ drainTimeout: 0 }), second.stop({ drainTimeout: 0 })]);
      await Promise.all([halting.close(), worker?.close(), ...queues.map((queue) => queue.close())]);
      await Promise.all([redlock.close(), lasting.close(), dying.close()]);
    });
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const plain = (text: string): string => text.replaceAll("\u00a0", " ");
    const textOf = async (selector: string): Promise<string> =>
      plain(await tab.$eval(selector, (found) => found.textContent ?? "").catch(() => ""));
    const stateNow = async (): Promise<PageState> => (await (await fetch(`${url}state`)).json()) as PageState;
    const titles = async (): Promise<readonly string[]> =>
      await tab.$$eval(".problem:not(.solved) h2", (found) => found.map(({ textContent }) => textContent));
    const titlesOfApi = async (): Promise<readonly string[]> =>
      (await stateNow()).problems.filter(({ solvedAt }) => solvedAt === undefined).map(({ title }) => title);

    const needing = ({ problems }: PageState): number =>
      problems.filter(({ severity, solvedAt }) => severity !== "notice" && solvedAt === undefined).length;

    // The page is one look behind the API, and a problem may begin in between.
    const agree = async (page: () => Promise<unknown>, api: () => Promise<unknown>): Promise<void> => {
      await expect.poll(async () => isDeepStrictEqual(await page(), await api()), LONG).toBe(true);
    };

    await queues[0].addBulk(["7", "7", "9"].map((tenant) => ({ name: "export", data: { tenant } })));
    await queues[1].addBulk(["42", "42", "42"].map((account) => ({ name: "send", data: { account } })));
    await first.campaign();
    await tab.setViewport({ width: 1_280, height: 900 });
    await tab.goto(url, { waitUntil: "domcontentloaded" });
    await expect.poll(() => textOf("[data-election=reports]"), LONG).toContain("host-a leads for");
    await expect
      .poll(() => textOf(".problems"), LONG)
      .toContain("Queue exports has no worker, and of its jobs 3 can run");
    await expect
      .poll(() => textOf(".problems"), LONG)
      .toContain("Key 42 of queue invoices is halted after job 1 failed, and 2 jobs wait");
    await agree(titles, titlesOfApi);
    await agree(
      () => textOf("h1"),
      async () => `${needing(await stateNow())} things need attention`,
    );
    expect(await textOf("[data-queue=exports]")).toContain("no worker");
    await agree(
      () => tab.title(),
      async () => `${needing(await stateNow())} need attention · Coordination`,
    );

    // The leader dies without a message. The page shows the last leader, since when there is no leader, and the next
    // leader.
    await dying.close();
    await expect.poll(() => textOf("[data-election=reports]"), LONG).toContain("nobody leads for");
    await expect.poll(() => textOf(".problems"), LONG).toContain("Election reports has no leader");
    const gap = (await stateNow()).elections.find(({ name }) => name === "reports");
    expect(gap).toMatchObject({ state: "gap", terms: [{ id: "host-a", end: "lease-ended" }] });
    expect(await tab.$$("[data-election=reports] .gap")).toHaveLength(1);
    await second.campaign();
    await expect.poll(() => textOf("[data-election=reports]"), LONG).toContain("host-b leads for");
    await expect.poll(() => textOf(".problem.solved"), LONG).toContain("Election reports has no leader");
    // The gap stays between the two terms.
    expect(await tab.$$("[data-election=reports] .gap")).toHaveLength(1);

    // The next step that the page proposes ends the halt.
    const { halted } = (await stateNow()).queues.find(({ name }) => name === "invoices") ?? {};
    expect(halted).toMatchObject([{ key: "42", jobId: "1", parked: 2 }]);
    await tab.click('.problem[data-problem*="KEY_HALTED"] .btn.main');
    await expect.poll(() => textOf("#dialog-title"), LONG).toBe("Retry, then resume?");
    expect(await textOf("dialog .effects")).toBe("Job 1 of key 42 runs again first. 2 jobs follow in order.");
    isMended = true;
    await tab.click("dialog .btn.main");
    await expect.poll(() => textOf("#outcome"), LONG).toBe("job 1 runs again, and key 42 goes on");
    await expect.poll(async () => (await queues[1].getJobCounts("completed"))["completed"], LONG).toBe(3);

    // A worker starts: its process has a row, and the queue needs no operator any more.
    const ends: (() => void)[] = [];
    worker = new ExclusiveWorker("exports", () => new Promise<void>((resolve) => ends.push(resolve)), {
      connection,
      key: "tenant",
      concurrency: 4,
    });
    await expect.poll(() => textOf("#workers"), LONG).toContain("2 of 4");
    const { running, parked, runnable } = (await stateNow()).queues.find(({ name }) => name === "exports") ?? {};
    expect({ running, parked, runnable }).toEqual({ running: 2, parked: 1, runnable: 0 });
    expect(await queues[0].counts()).toMatchObject({ active: 2, parked: 1, runnable: 0 });
    await expect.poll(titles, LONG).not.toContain("Queue exports has no worker, and of its jobs 3 can run");
    await agree(titles, titlesOfApi);

    // The opened key shows its holder, and how the page knows the holder.
    await tab.goto(`${url}#queue=exports&key=7`, { waitUntil: "domcontentloaded" });
    await expect.poll(() => textOf(".inspect .hd .tag"), LONG).toBe("runs");
    const { holder = "", parked: line } = await queues[0].jobsOf("7");
    expect(await textOf(".inspect .line")).toContain(holder);
    expect(await textOf(".inspect .ev")).toContain(`BullMQ's lock of job ${holder} exists`);
    expect(await tab.$$eval(".jobs tbody th", (found) => found.map(({ textContent }) => textContent))).toEqual(line);
    // A job in line has the same two ways out as in the API. The first one here is to remove it.
    const [parkedJob = ""] = line;
    await tab.click(`button[aria-label="Details of job ${parkedJob}"]`);
    await expect.poll(() => textOf("#dialog-title"), LONG).toBe(`Job ${parkedJob}`);
    await tab.click("dialog .buttons ::-p-text(Remove job)");
    await expect.poll(() => textOf("#outcome"), LONG).toBe(`job ${parkedJob} was parked, and is removed`);
    expect(await queues[0].getJob(parkedJob)).toBeUndefined();
    await expect.poll(() => tab.$(".jobs"), LONG).toBeNull();
    // A keyboard sets limits for the key. The page asks before it does.
    await (await tab.waitForSelector(".inspect ::-p-text(Set limits)"))?.focus();
    await tab.keyboard.press("Enter");
    await expect.poll(() => textOf("#dialog-title"), LONG).toBe("Limits of 7");
    await tab.focus("dialog input[name=rateMax]");
    await tab.keyboard.type("5");
    await tab.focus("dialog input[name=seconds]");
    await tab.keyboard.type("2.5");
    await tab.keyboard.press("Enter");
    await expect.poll(() => textOf("#dialog-title"), LONG).toBe("Set limits?");
    expect(await queues[0].getKeyPolicy("7")).toBeUndefined();
    expect(await textOf("dialog .effects")).toBe("From now on, 7 of exports: 5 in 2.5 s. Jobs that run continue.");
    await tab.click("dialog .btn.main");
    await expect.poll(() => textOf("#outcome"), LONG).toContain("key 7 from now on: 5 start in 2.5 s");
    expect(await queues[0].getKeyPolicy("7")).toEqual({ rate: { max: 5, duration: 2_500 } });
    await expect.poll(() => textOf(".kv"), LONG).toContain("5 in 2.5 s");
    // A second look at the form shows the present limits.
    await (await tab.waitForSelector(".inspect ::-p-text(Set limits)"))?.click();
    await expect.poll(() => tab.$eval("dialog input[name=seconds]", (found) => found.value)).toBe("2.5");
    await tab.keyboard.press("Escape");
    await queues[0].removeKeyPolicy("7");
    // The page cancels the job that has the key. It fails when its processor ends, whatever the processor returns.
    const cancel = `.inspect button ::-p-text(Cancel job ${holder})`;
    await tab.waitForSelector(cancel, LONG).then(async (button) => await button?.click());
    await expect.poll(() => textOf("#dialog-title"), LONG).toBe(`Cancel job ${holder}?`);
    await tab.click("dialog .btn.main");
    await expect
      .poll(() => textOf("#outcome"), LONG)
      .toBe(`job ${holder} is cancelled, and fails when its processor ends`);
    const ending = setInterval(() => ends.splice(0).forEach((end) => end()), 20);
    await expect.poll(() => textOf(".inspect .hd .tag"), LONG).toBe("free");
    expect((await queues[0].getJob(holder))?.failedReason).toContain("cancelled on the page");
    clearInterval(ending);

    // Redis stops completely: the known state remains, with its age. Redis returns, and the page continues by itself.
    await tab.click(".crumbs a");
    await expect.poll(() => textOf("#locks"), LONG).toContain("leader:reports");
    await Promise.all(own.map((node) => node.kill()));
    await expect.poll(() => textOf("h1"), LONG).toMatch(/^Redis has not answered since \d\d:\d\d:\d\d/);
    await expect.poll(() => textOf('[data-lock="leader:reports"]'), LONG).toContain("not known, was");
    expect(await textOf("[data-queue=exports]")).toContain("1 worker then");
    expect(await textOf("[data-election=reports]")).toContain("not known, was host-b");
    expect((await stateNow()).live).toMatchObject({ isLive: false, error: "0 of 3 nodes answer, 2 make a quorum" });
    await Promise.all(own.map((node) => node.start()));
    await expect.poll(() => textOf("#live"), LONG).toMatch(/^Live/);
    await expect.poll(titles, LONG).toEqual(expect.not.arrayContaining([expect.stringContaining("lock nodes answer")]));
    expect(faults).toEqual([]);
  });
});
