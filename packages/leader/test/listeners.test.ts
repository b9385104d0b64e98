import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { logTo, Redlock } from "@x/redlock-core";
import { beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { VirtualLab } from "./support/virtual-lab.ts";

interface Warning {
  readonly message: string;
  readonly options: { readonly code?: string; readonly detail?: string };
}

describe("a failure without a listener", () => {
  let warnings: Warning[];
  beforeEach(() => {
    warnings = [];
    const spy = vi
      .spyOn(process, "emitWarning")
      .mockImplementation((message, options) => void warnings.push({ message, options } as Warning));
    onTestFinished(() => spy.mockRestore());
  });

  const unheard = (): readonly string[] =>
    warnings.filter(({ options }) => options.code === "X_LEADER_UNHEARD").map(({ message }) => message);

  /** A scheduler whose handler throws at each tick. */
  function failing(lab: VirtualLab): { readonly scheduler: LeaderScheduler; readonly count: () => number } {
    const scheduler = new LeaderScheduler({ election: lab.candidate("jobs") });
    let count = 0;
    scheduler.every("bills", 100, () => {
      count += 1;
      throw new Error("no database");
    });
    onTestFinished(() => lab.clock.until(scheduler.stop({ drainTimeout: 0 })));
    scheduler.start();
    return { scheduler, count: () => count };
  }

  it("is reported by one warning when a handler throws at each tick", async () => {
    const lab = new VirtualLab();
    const { count } = failing(lab);
    await lab.poll(count).toBeGreaterThan(3);
    expect(unheard()).toEqual([
      'scheduler of election "jobs": the handler of "bills" failed: no database. This warning comes once: add a listener for "tickFailed", which reports each failure',
    ]);
    expect(warnings[0]?.options.detail).toMatch(/Error: no database\n.*listeners\.test/s);
  });

  it("causes no warning while a listener is attached, and one after the listener was removed", async () => {
    const lab = new VirtualLab();
    const { scheduler, count } = failing(lab);
    const removals = [scheduler.on("tickFailed", () => undefined), scheduler.on("tickFailed", () => undefined)];
    await lab.poll(count).toBeGreaterThan(3);
    removals[0]?.();
    removals[0]?.();
    const before = count();
    await lab.poll(count).toBeGreaterThan(before + 1);
    expect(unheard()).toEqual([]);
    removals[1]?.();
    await lab.poll(() => unheard().length).toBe(1);
  });

  it("causes no warning if a subscriber listens to the channel", async () => {
    const onMessage = (): void => undefined;
    subscribe("x.leader.tickFailed", onMessage);
    onTestFinished(() => void unsubscribe("x.leader.tickFailed", onMessage));
    const lab = new VirtualLab();
    const { count } = failing(lab);
    await lab.poll(count).toBeGreaterThan(1);
    expect(unheard()).toEqual([]);
  });

  it.each([
    ["is reported by a warning when the task of an election rejects", false],
    ["causes no warning when the process has a logger", true],
  ])("%s", async (_title, isLogged) => {
    const lab = new VirtualLab();
    const ignore = (): void => undefined;
    if (isLogged) onTestFinished(logTo({ debug: ignore, info: ignore, warn: ignore, error: ignore }));
    const election = lab.candidate("jobs");
    let count = 0;
    const running = election.run(() => {
      count += 1;
      throw new Error("no database");
    });
    await lab.poll(() => count).toBeGreaterThan(2);
    await lab.clock.until(election.stop());
    await running;
    expect(unheard()).toEqual(
      isLogged
        ? []
        : [
            'election "jobs": the task failed: no database. This warning comes once: add a listener for "taskFailed", which reports each failure',
          ],
    );
  });

  it("is reported by a warning when a listener of another event throws", async () => {
    const lab = new VirtualLab();
    const election = lab.candidate("jobs");
    election.on("elected", () => {
      throw new Error("a listener throws");
    });
    const term = await lab.clock.until(election.campaign());
    await lab.clock.until(term.resign());
    expect(unheard()).toEqual([
      'election "jobs": an attempt failed, or a listener threw: a listener throws. This warning comes once: add a listener for "error", which reports each failure',
    ]);
  });

  it.each([
    ["is reported by a warning when no lock node can be reached", false],
    ["causes no warning when a listener is notified that no lock node can be reached", true],
  ])("%s", async (_title, isHeard) => {
    const redlock = new Redlock({ path: "/nowhere/redis.sock" });
    onTestFinished(() => redlock.close());
    const election = new LeaderElection(redlock, { name: "jobs" });
    const down: string[] = [];
    if (isHeard) election.on("nodeFailed", ({ node }) => void down.push(node));
    const running = election.run(() => undefined);
    await expect.poll(() => (isHeard ? down.length : unheard().length)).toBeGreaterThan(0);
    await election.stop();
    await running;
    if (isHeard) expect(unheard()).toEqual([]);
    else expect(unheard()[0]).toMatch(/^election "jobs": a lock node is down: node .*redis\.sock: .*"nodeFailed"/);
    expect(unheard().length).toBe(isHeard ? 0 : 1);
  });
});
