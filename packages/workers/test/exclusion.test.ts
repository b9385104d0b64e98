/** The lock of a key: other queues, plain code, several lock nodes, and held or lost locks. */
import { setTimeout as delay } from "node:timers/promises";
import { LockLostError, type Redlock, ReentrancyError, systemClock } from "@x/redlock-core";
import { startProxy, startRedis, startRedisNodes, until, waitersOf } from "@x/test-support";
import { ExclusiveWorker, JobLockLostError, NotALockError } from "@x/workers";
import { Job } from "bullmq";
import { describe, expect, it } from "vitest";
import { targetOf } from "../src/bullmq/bullmq.ts";
import { type Data, finished, gate, jobs, Lab, listen, redlockOn, SHORT_MS, scriptCalls } from "./support/lab.ts";

describe("with plain code and other queues", () => {
  it("excludes jobs of two queues and plain code from one another, with increasing fencing tokens", async () => {
    await using lab = await Lab.start();
    const [first, second] = [lab.queue("first"), lab.queue("second")];
    const plain = redlockOn(lab, lab.connection);
    const tokens = new Map<string, number[]>();
    const inside = new Set<string>();
    const clashes: string[] = [];
    const work = async (key: string, fencingToken: number): Promise<void> => {
      if (inside.has(key)) clashes.push(key);
      inside.add(key);
      tokens.set(key, [...(tokens.get(key) ?? []), fencingToken]);
      // A second process in the section would be visible after this round trip.
      await lab.redis.ping();
      inside.delete(key);
    };
    const body = async (job: Job<Data>, _signal: AbortSignal, lock: { fencingToken: number }): Promise<void> =>
      await work(String(job.data.k), lock.fencingToken);
    for (const name of ["first", "second"]) lab.worker(body, { timeout: 2_000 }, name);
    await Promise.all([
      first.addBulk(jobs(40, (i) => `k${i % 3}`)),
      second.addBulk(jobs(40, (i) => `k${i % 3}`)),
      ...jobs(30, (i) => `k${i % 3}`).map(async ({ data }) => {
        await plain.using(String(data.k), async (lock) => await work(String(data.k), lock.fencingToken));
      }),
    ]);
    await finished(first, 40);
    await finished(second, 40);
    expect(clashes).toEqual([]);
    expect([...tokens.values()].flat()).toHaveLength(110);
    for (const each of tokens.values()) expect(each).toEqual([...each].sort((a, b) => a - b));
    expect(lab.errors).toEqual([]);
  });

  it("moves a job whose lock is held back to delayed, and runs it when the lock is released", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const plain = redlockOn(lab, lab.connection);
    const yields = listen<{ jobId: string; reason: string }>(lab, "x.workers.yielded");
    const wakes = listen<{ jobId: string }>(lab, "x.workers.woken");
    const held = await plain.acquire("a");
    lab.worker(undefined, { concurrency: 1, timeout: SHORT_MS, recheckInterval: 60_000 });
    const [job] = await queue.addBulk([...jobs(2, () => "a"), { name: "job", data: { k: "b", i: 5 } }]);
    // There is one slot: b runs because a does not wait in the slot. The second job of a does not overtake the first.
    await until(() => lab.ran.length === 1);
    expect(lab.ran[0]?.key).toBe("b");
    await until(async () => (await queue.getDelayedCount()) === 2);
    expect(await queue.explain("1")).toMatchObject({ verdict: "waits-for-lock", state: "delayed" });
    expect(await queue.explain("2")).toMatchObject({ verdict: "parked", keys: [{ holder: "1", ahead: 0 }] });
    expect((await queue.getJob("1"))?.attemptsStarted).toBe(0);
    await held.release();
    await finished(queue, 3);
    expect(lab.ran.map((run) => run.i)).toEqual([5, 0, 1]);
    expect(yields).toEqual([expect.objectContaining({ jobId: "1", reason: "held" })]);
    expect(wakes).toEqual([expect.objectContaining({ jobId: "1", keys: ["a"] })]);
    expect((await queue.getJob(job?.id ?? ""))?.attemptsMade).toBe(1);
    expect(lab.errors).toEqual([]);
  });

  it("moves a job back with the reason held, and is woken, if a round trip takes longer than the timeout", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const plain = redlockOn(lab, lab.connection);
    await using proxy = await startProxy({ path: lab.server.path });
    const redlock = redlockOn(lab, proxy.url);
    const yields = listen<{ reason: string }>(lab, "x.workers.yielded");
    const wakes = listen(lab, "x.workers.woken");
    const held = await plain.acquire("a");
    await redlock.using("other", async () => await Promise.resolve());
    proxy.delay(15);
    lab.worker(undefined, { redlock, timeout: 10, recheckInterval: 60_000 });
    await queue.addBulk(jobs(1, () => "a"));
    await until(() => yields.length === 1);
    await held.release();
    await finished(queue, 1);
    expect(yields.map(({ reason }) => reason)).toEqual(["held"]);
    expect(wakes).toHaveLength(1);
    expect(lab.errors).toEqual([]);
  });

  it("occupies no slot for a job while another library holds the job's lock", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const yields = listen(lab, "x.workers.yielded");
    await lab.redis.set("a", "a value of node-redlock", "PX", 4_000);
    lab.worker(undefined, { concurrency: 1, timeout: SHORT_MS, recheckInterval: 60_000 });
    await queue.addBulk(jobs(1, () => "a"));
    await finished(queue, 1);
    expect(yields).toHaveLength(1);
    expect(await queue.getCompletedCount()).toBe(1);
    expect(lab.errors).toEqual([]);
  });

  it("keeps a job's place in line for its lock, whichever process takes the job again", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const plain = redlockOn(lab, lab.connection);
    const held = await plain.acquire("a");
    const order: string[] = [];
    const first = lab.worker(() => void order.push("job in the first"), { timeout: SHORT_MS, recheckInterval: 60_000 });
    await queue.addBulk(jobs(1, () => "a"));
    await until(async () => (await queue.getDelayedCount()) === 1);
    await first.pause();
    const other = plain.using("a", () => void order.push("plain code that came later"));
    lab.worker(() => void order.push("job in the second"), { timeout: SHORT_MS, recheckInterval: 60_000 });
    await held.release();
    await finished(queue, 1);
    await other;
    expect(order).toEqual(["job in the second", "plain code that came later"]);
  });

  it("takes a job whose lock was held again by itself when the process that would wake the job is gone", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const plain = redlockOn(lab, lab.connection);
    const held = await plain.acquire("a");
    const first = lab.worker(undefined, { timeout: SHORT_MS, recheckInterval: 600, drainDelay: 1 });
    await queue.addBulk(jobs(1, () => "a"));
    await until(async () => (await queue.getDelayedCount()) === 1);
    await first.close();
    await held.release();
    lab.worker(undefined, { timeout: SHORT_MS, recheckInterval: 600, drainDelay: 1 });
    await finished(queue, 1);
  });

  it("waits no longer than other processes for a lock when its own clock is ahead", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const clock = { ...systemClock, wallMs: () => Date.now() + 60_000 };
    const redlock = redlockOn(lab, lab.connection, { clock });
    const others = [1, 2, 3].map(() => redlockOn(lab, lab.connection));
    lab.worker(undefined, { redlock });
    await queue.add("job", { k: "first", i: 0 });
    await finished(queue, 1);
    let isOver = false;
    let turns = 0;
    const loops = others.map(async (other) => {
      while (!isOver) {
        await other.using("k", async () => {
          turns += 1;
          await delay(5);
        });
      }
    });
    await until(() => turns > 10);
    const before = turns;
    await queue.add("job", { k: "k", i: 0 });
    await until(() => lab.ran.length === 2);
    const seen = turns - before;
    isOver = true;
    await Promise.all(loops);
    expect(seen).toBeLessThan(200);
  });

  it("fails a job whose lock would have the name of a BullMQ key, and no other job", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.addBulk([...jobs(1, () => "bull:q:completed"), ...jobs(5, (i) => `k${i}`)]);
    lab.worker();
    await finished(queue, 6);
    const [failed] = await queue.getFailed();
    expect(failed?.failedReason).toBe(
      'job 1: its key would give its lock the name of a BullMQ key ("bull:q:completed")',
    );
    expect([await queue.getCompletedCount(), await queue.getFailedCount()]).toEqual([5, 1]);
  });

  it("is closed at the end of its await using block, when its jobs have ended", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const opened = gate();
    await queue.addBulk(jobs(3, (i) => `k${i}`));
    const closed = (async () => {
      await using worker = lab.worker(async () => await opened.passed);
      await until(() => lab.ran.length === 3);
      return worker;
    })();
    opened.open();
    const worker = await closed;
    expect(worker.isRunning()).toBe(false);
    expect(await queue.getCompletedCount()).toBe(3);
    await expect(worker.redlock.acquire("k0")).rejects.toThrow("closed");
  });

  it.each(["{a}:fence", "{a}:note", "{x}:node", "{leader:billing}:register", "{exports}:semaphore", "{a}"])(
    "fails a job whose lock would share a key with another lock, and no other job: %s",
    async (k) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      await queue.addBulk([...jobs(1, () => k), ...jobs(3, () => "a")]);
      lab.worker();
      await finished(queue, 4);
      const [failed] = await queue.getFailed();
      expect(failed?.failedReason).toMatch(
        /^job 1: its key cannot name a lock: key of a resource must not (be|end like)/,
      );
      expect(failed?.stacktrace?.[0]).toMatch(/^JobKeyError/);
      expect([await queue.getCompletedCount(), await queue.getFailedCount()]).toEqual([3, 1]);
      expect(lab.ran.map(({ key }) => key)).toEqual(["a", "a", "a"]);
    },
  );

  it.each([
    ["SET", "k", "something else", "a key of this name never expires"],
    ["SADD", "k", "something else", "a key of this lock has another type"],
    ["SADD", "{x}:node:last", "something else", "a key of this lock has another type"],
  ])(
    "reports a foreign key that has the name of a lock (%s %s), and runs the job once the key is gone",
    async (...facts) => {
      const [command, name, value, what] = facts;
      await using lab = await Lab.start();
      const queue = lab.queue();
      await lab.redis.call(command, name, value);
      await queue.addBulk(jobs(1, () => "k"));
      const worker = lab.worker(undefined, { timeout: SHORT_MS, recheckInterval: 500 });
      // A loaded machine may give no answer within the timeout, which says nothing about the key.
      let refusals = 0;
      worker.redlock.on("acquireFailed", ({ reason }) => (refusals += reason === "held" ? 1 : 0));
      let refusalsBeforeError: number | undefined;
      worker.on("error", () => (refusalsBeforeError ??= refusals));
      await until(() => refusalsBeforeError !== undefined);
      expect(lab.errors[0]).toBeInstanceOf(NotALockError);
      expect(lab.errors[0]?.message).toMatch(new RegExp(`^job 1 waits for the lock "k", but on .* ${what}`));
      // No slot is kept for the job.
      expect(refusalsBeforeError).toBeLessThan(4);
      await lab.redis.del(name);
      await finished(queue, 1);
      expect(lab.ran).toHaveLength(1);
    },
  );

  it.each(["pass", "fail"] as const)("lets a job without a key %s as withoutKey says", async (withoutKey) => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.addBulk(jobs(2, (i) => (i === 0 ? null : "k")));
    lab.worker(undefined, { withoutKey });
    await finished(queue, 2);
    const reasons = (await queue.getFailed()).map(({ failedReason }) => failedReason);
    expect(reasons).toEqual(withoutKey === "pass" ? [] : ["job 1: its key is missing"]);
  });

  it("names locks with the resource option, so that keys of two kinds of entity do not clash", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const plain = redlockOn(lab, lab.connection);
    await using _other = await plain.acquire("7");
    const seen: unknown[] = [];
    lab.worker(
      async (_job, _signal, lock) => void seen.push(lock.keys, lock.resources, await plain.tryAcquire("account:7")),
      {
        resource: (key) => `account:${key}`,
      },
    );
    await queue.addBulk(jobs(1, () => 7));
    await finished(queue, 1);
    expect(seen).toEqual([["7"], ["account:7"], null]);
  });
});

describe.each(["its own Redlock", "the option redlock"])(
  "a processor that acquires the lock of its own key, with %s",
  (whose) => {
    const patient = { timeout: Number.POSITIVE_INFINITY };
    const optionsOn = (
      lab: Lab,
      reentrancy: "refuse" | "join",
    ): { reentrancy: typeof reentrancy; redlock?: Redlock } =>
      whose === "its own Redlock" ? { reentrancy } : { reentrancy, redlock: redlockOn(lab, { path: lab.server.path }) };

    it("is refused immediately, and may acquire the lock of another key", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const errors: unknown[] = [];
      const others: boolean[] = [];
      const worker = lab.worker(
        async () => {
          const nested = worker.redlock.using(["other", "a"], () => expect.unreachable(), patient);
          errors.push(await nested.catch((error: unknown) => error));
          await worker.redlock.using("other", (lock) => others.push(lock.isHeld()), patient);
        },
        optionsOn(lab, "refuse"),
      );
      await queue.addBulk(jobs(2, () => "a"));
      await finished(queue, 2);
      expect(others).toEqual([true, true]);
      for (const [index, error] of errors.entries()) {
        expect(error).toBeInstanceOf(ReentrancyError);
        expect(String(error)).toContain(`lock "a" is held by the job ${index + 1} around this one`);
      }
    });

    it("joins the job's lock with the same token, and the job keeps the key until the call has ended", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const ended = gate();
      const joined: { readonly fencingToken: number; readonly isHeld: boolean }[] = [];
      const order: string[] = [];
      const worker = lab.worker(
        async (job, _signal, lock) => {
          order.push(`job ${job.id} begins`);
          const call = worker.redlock.using(
            "a",
            async ({ fencingToken }) => {
              await ended.passed;
              await lab.redis.ping();
              joined.push({ fencingToken, isHeld: lock.isHeld() });
              order.push(`call of ${job.id} ends`);
            },
            patient,
          );
          // The first job does not wait for its call.
          if (job.id === "2") await call;
          else void call.catch((error: unknown) => order.push(String(error)));
          expect(lock.isHeld()).toBe(true);
          ended.open();
        },
        optionsOn(lab, "join"),
      );
      await queue.addBulk(jobs(2, () => "a"));
      await finished(queue, 2);
      expect(order).toEqual(["job 1 begins", "call of 1 ends", "job 2 begins", "call of 2 ends"]);
      expect(joined).toEqual(lab.ran.map(({ fencingToken }) => ({ fencingToken, isHeld: true })));
    });

    it("waits for its turn if the job has already ended", async () => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const later = gate();
      const locked: number[] = [];
      let call: Promise<unknown> = Promise.resolve();
      const worker = lab.worker(
        () => {
          call = later.passed.then(
            async () => await worker.redlock.using("a", ({ fencingToken }) => locked.push(fencingToken), patient),
          );
        },
        optionsOn(lab, "join"),
      );
      await queue.addBulk(jobs(1, () => "a"));
      await finished(queue, 1);
      later.open();
      await call;
      expect(locked[0]).toBeGreaterThan(lab.ran[0]?.fencingToken ?? Number.POSITIVE_INFINITY);
    });
  },
);

describe("with separate lock nodes", () => {
  it("continues while a minority of nodes is down", async () => {
    const nodes = await startRedisNodes(3);
    try {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const redlock = redlockOn(
        lab,
        nodes.map((node) => ({ path: node.path })),
        { quarantine: false },
      );
      lab.worker(undefined, { redlock, ttl: 2_000, timeout: 2_000 });
      await queue.addBulk(jobs(60, (i) => `k${i % 5}`));
      await until(() => lab.ran.length > 10);
      await nodes[0]?.kill();
      await finished(queue, 60);
      expect(await queue.getFailedCount()).toBe(0);
      expect(lab.overlaps()).toEqual([]);
      expect(lab.inversions()).toEqual([]);
      expect(lab.ran.every((run) => run.fencingToken > 0)).toBe(true);
    } finally {
      await Promise.all(nodes.map((node) => node.stop()));
    }
  });

  it("runs no job while the lock nodes are down, and fails none", async () => {
    await using locks = await startRedis();
    await using lab = await Lab.start();
    const queue = lab.queue();
    const redlock = redlockOn(lab, { path: locks.path });
    lab.worker(undefined, { redlock, ttl: 2_000 });
    await queue.addBulk(jobs(2, () => "a"));
    await finished(queue, 2);
    await locks.kill();
    await queue.addBulk(jobs(3, () => "a"));
    await until(() => lab.errors.length > 0);
    expect(lab.ran).toHaveLength(2);
    await locks.start();
    await finished(queue, 5);
    expect(await queue.getFailedCount()).toBe(0);
    expect((await queue.getCompleted()).map((job) => job.attemptsStarted)).toEqual([1, 1, 1, 1, 1]);
    expect(lab.inversions().slice(1)).toEqual([]);
  });
});

describe("when a lock is lost", () => {
  it("aborts the signal when the key's lock is released by force, and fails the job", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const lost = listen<{ error: Error }>(lab, "x.workers.lost");
    const seen: unknown[] = [];
    const worker = lab.worker(
      async (_job, signal, lock) => {
        await worker.redlock.forceRelease("a");
        await until(() => signal.aborted);
        seen.push(signal.reason, lock.isHeld(), lock.remaining());
        try {
          lock.assertHeld();
        } catch (error) {
          seen.push(error);
        }
      },
      { ttl: 3_000 },
    );
    await queue.addBulk(jobs(1, () => "a"));
    await finished(queue, 1);
    expect(seen).toEqual([expect.any(LockLostError), false, 0, expect.any(LockLostError)]);
    expect((await queue.getFailed())[0]?.failedReason).toMatch(/is lost \(forced\)/);
    expect(lost).toHaveLength(1);
    expect(await lab.leftovers()).toEqual([]);
  });

  it("aborts the signal when the Redlock is closed while the job runs, which releases the lock", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const lost = listen<{ error: Error }>(lab, "x.workers.lost");
    const seen: unknown[] = [];
    const worker = lab.worker(async (_job, signal, lock) => {
      const closed = worker.redlock.close();
      seen.push(signal.reason, lock.isHeld());
      await closed;
    });
    await queue.addBulk(jobs(1, () => "a"));
    await finished(queue, 1);
    expect(seen).toEqual([expect.objectContaining({ code: "LOCK_LOST", reason: "closed" }), false]);
    expect((await queue.getFailed())[0]?.failedReason).toMatch(/is lost \(closed\)/);
    expect(lost).toHaveLength(1);
  });

  it("aborts the signal when BullMQ's lock is lost, and lets no other run start until the old run has ended", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const reasons: unknown[] = [];
    const ending = gate();
    const tuned = {
      lockDuration: 2_500,
      stalledInterval: 500,
      concurrency: 4,
      timeout: SHORT_MS,
      recheckInterval: 300,
      drainDelay: 1,
    };
    for (let n = 0; n < 2; n++) {
      lab.worker(async (job, signal) => {
        if (job.data.i > 0 || reasons.length > 0) return;
        await lab.redis.del(`bull:q:${job.id}:lock`);
        await until(() => signal.aborted);
        reasons.push(signal.reason);
        // A processor that ignores its signal: the job is stalled and taken again, but must not run at the same time.
        await ending.passed;
      }, tuned);
    }
    await queue.addBulk(jobs(3, () => "a"));
    await until(() => reasons.length === 1);
    await until(async () => (await queue.getJob("1"))?.stalledCounter === 1);
    // The job was fetched again, and waits for the lock of its key.
    await until(async () => (await lab.redis.zscore("bull:q:delayed", "1")) !== null);
    expect(lab.ran).toHaveLength(1);
    ending.open();
    await finished(queue, 3);
    expect(reasons).toEqual([expect.any(JobLockLostError)]);
    expect(lab.ran.map((run) => run.i)).toEqual([0, 0, 1, 2]);
    expect(lab.overlaps()).toEqual([]);
    expect(lab.ran.map((run) => run.fencingToken)).toEqual(
      lab.ran.map((run) => run.fencingToken).sort((a, b) => a - b),
    );
    expect(await queue.getFailedCount()).toBe(0);
  });

  it("aborts the signal at the first refused renewal, long before the lease expires", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const reasons: unknown[] = [];
    lab.worker(
      async (job, signal) => {
        await lab.redis.del(`bull:q:${job.id}:lock`);
        await until(() => signal.aborted);
        reasons.push(signal.reason);
      },
      { lockDuration: 60_000, lockRenewTime: 200, stalledInterval: 60_000 },
    );
    await queue.addBulk(jobs(1, () => "a"));
    await until(() => reasons.length === 1);
    expect(reasons).toEqual([expect.any(JobLockLostError)]);
  });

  it("aborts the signal by its own clock when the queue's Redis no longer answers", async () => {
    await using locks = await startRedis();
    await using lab = await Lab.start();
    const queue = lab.queue();
    const redlock = redlockOn(lab, { path: locks.path });
    const aborted = gate();
    lab.worker(
      async (_job, signal) => {
        if (lab.ran.length > 1) return;
        lab.server.freeze();
        await until(() => signal.aborted);
        expect(signal.reason).toBeInstanceOf(JobLockLostError);
        lab.server.thaw();
        aborted.open();
      },
      { redlock, lockDuration: 800, ttl: 800, stalledInterval: 300 },
    );
    await queue.addBulk(jobs(1, () => "a"));
    await aborted.passed;
    await finished(queue, 1);
    expect(lab.overlaps()).toEqual([]);
  });

  it("runs a job that Redis handed out late, after the process had waited for longer than the lease", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const stale = listen<unknown>(lab, "x.workers.abandoned");
    const options = { concurrency: 1, lockDuration: 3_000, stalledInterval: 30_000, maxStalledCount: 0 };
    const worker = lab.worker(undefined, options);
    await worker.waitUntilReady();
    await until(async () => String(await lab.redis.client("LIST")).includes("bzpopmin"));
    const pid = Number(/process_id:(\d+)/.exec(await lab.redis.info("server"))?.[1]);
    const target = targetOf(worker, new Job(worker, "sample", {}));
    const exec = target.execCommand.bind(target);
    let isFrozen = false;
    target.execCommand = async (client, name, args) => {
      if (name === "moveToActive" && !isFrozen) {
        isFrozen = true;
        process.kill(pid, "SIGSTOP");
        // Longer than the lease.
        setTimeout(() => process.kill(pid, "SIGCONT"), 3_500);
      }
      return await exec(client, name, args);
    };
    await queue.add("job", { k: "k", i: 0 });
    await finished(queue, 1);
    expect([lab.ran.length, stale.length, await queue.getFailedCount()]).toEqual([1, 0, 0]);
  });

  it("does not start a job that was fetched too long ago and whose lock is lost", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const stale = listen<{ jobId: string; ageMs: number }>(lab, "x.workers.abandoned");
    const held = await redlockOn(lab, lab.connection).acquire("a");
    // The job waits in its slot for longer than the lease, and its lock is deleted as if the lock had expired in a
    // freeze.
    lab.worker(undefined, {
      lockDuration: 1_000,
      ttl: 1_000,
      stalledInterval: 60_000,
      timeout: 5_000,
      skipLockRenewal: true,
    });
    await queue.addBulk(jobs(1, () => "a"));
    await until(async () => (await queue.getActiveCount()) === 1);
    await lab.redis.del("bull:q:1:lock");
    // Together with the time before, longer than the time in which a lease may be renewed at its end.
    await delay(700);
    await held.release();
    await until(() => stale.length === 1);
    expect(stale[0]).toMatchObject({ jobId: "1" });
    expect(lab.ran).toEqual([]);
    expect((await queue.getJob("1"))?.attemptsMade).toBe(0);
  });

  it("confirms a job that was fetched long ago and whose lock is still held, and runs it", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const held = await redlockOn(lab, lab.connection).acquire("a");
    lab.worker(undefined, { lockDuration: 4_000, ttl: 2_000, timeout: 10_000 });
    await queue.addBulk(jobs(1, () => "a"));
    await until(async () => (await queue.getActiveCount()) === 1);
    // Longer than half of the lease.
    await delay(2_400);
    await held.release();
    await finished(queue, 1);
    expect(await queue.getCompletedCount()).toBe(1);
  });
});

describe("an exclusive worker instead of BullMQ's worker", () => {
  it("aborts the signal of a job that the user cancels", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const reasons: unknown[] = [];
    const worker = lab.worker(async (job, signal) => {
      setImmediate(() => worker.cancelJob(String(job.id), "changed my mind"));
      await until(() => signal.aborted);
      reasons.push(signal.reason);
    });
    await queue.addBulk(jobs(1, () => "a"));
    await finished(queue, 1);
    expect(reasons).toEqual(["changed my mind"]);
  });

  it("fails a job that is cancelled while it waits for its lock, with an Error for any reason", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await using _held = await redlockOn(lab, lab.connection).acquire("k");
    const worker = lab.worker(undefined, { timeout: 20_000 });
    await queue.add("job", { k: "k", i: 0 });
    await until(async () => (await queue.getActiveCount()) === 1 && (await waitersOf(lab.redis, "k")) === 1);
    worker.cancelJob("1", "because");
    await finished(queue, 1);
    expect((await queue.getFailed())[0]?.failedReason).toBe("cancelled: because");
    expect(lab.ran).toEqual([]);
  });

  it("does not return the limiter's token for a job that waits for its lock, because the next period may have begun", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const plain = redlockOn(lab, lab.connection);
    for (const { data } of jobs(3, (i) => `k${i}`)) await plain.acquire(String(data.k));
    lab.worker(undefined, { limiter: { max: 5, duration: 60_000 }, timeout: SHORT_MS });
    await queue.addBulk([...jobs(3, (i) => `k${i}`), ...jobs(10, (i) => `other${i}`)]);
    await until(async () => (await queue.getJobCounts("delayed", "completed"))["delayed"] === 3);
    await until(async () => (await queue.getCompletedCount()) >= 2);
    await lab.anotherRuns();
    expect(await queue.getJobCounts("waiting", "active", "delayed", "completed")).toEqual({
      waiting: 8,
      active: 0,
      delayed: 3,
      completed: 2,
    });
  });

  it("continues when the data of a job is missing and its key comes from a function", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const gone = await queue.add("job", { k: "a", i: 0 });
    await queue.addBulk(jobs(5, (i) => `k${i}`));
    await lab.redis.del(`bull:q:${gone.id}`);
    lab.worker(undefined, { key: ({ data }) => String(data.k) });
    await until(() => lab.ran.length === 5);
    expect(await scriptCalls(lab)).toBeLessThan(200);
  });

  it("runs processors with any number of parameters, as BullMQ does", async () => {
    await using lab = await Lab.start();
    const seen: unknown[] = [];
    const queue = lab.queue("many");
    const processors = [
      async (job: Job<Data>) => void seen.push(["one", job.data.i]),
      async (job: Job<Data>, token?: string) => void seen.push(["two", job.data.i, typeof token]),
      async (job: Job<Data>, _token?: string, signal?: AbortSignal) =>
        void seen.push(["three", job.data.i, signal?.aborted]),
      async (...all: unknown[]) => void seen.push(["wrapped", (all[2] as AbortSignal).aborted, all.length]),
    ];
    for (const [n, processor] of processors.entries()) {
      await queue.add("job", { k: "a", i: n });
      const worker = lab.adopt(new ExclusiveWorker<Data>("many", processor, { connection: lab.connection, key: "k" }));
      await finished(queue, n + 1);
      await worker.close();
    }
    expect(seen).toEqual([
      ["one", 0],
      ["two", 1, "string"],
      ["three", 2, false],
      ["wrapped", false, 4],
    ]);
  });

  it.each([false, true])(
    "runs sandboxed processors (worker threads: %s), which receive their lock",
    async (useWorkerThreads) => {
      await using lab = await Lab.start();
      const queue = lab.queue();
      const file = new URL("./processors/report.cjs", import.meta.url);
      const worker = lab.adopt(
        new ExclusiveWorker<Data>("q", file, {
          connection: lab.connection,
          concurrency: 3,
          key: "k",
          useWorkerThreads,
        }),
      );
      await queue.addBulk(jobs(4, () => "a", 0));
      await finished(queue, 4);
      const results = (await queue.getCompleted())
        .sort((a, b) => Number(a.id) - Number(b.id))
        .map((job) => job.returnvalue.lock);
      const tokens = results.map((lock) => lock.fencingToken as number);
      expect(results.map((lock) => [lock.keys, lock.resources])).toEqual(results.map(() => [["a"], ["a"]]));
      expect(tokens).toEqual([...tokens].sort((a, b) => a - b));
      expect(new Set(tokens).size).toBe(4);
      await queue.add("job", { k: "a", i: 9, ms: 20_000 });
      await until(async () => (await queue.getJob("5"))?.progress === 1);
      expect(worker.cancelJob("5", "stop")).toBe(true);
      await finished(queue, 5);
      expect((await queue.getJob("5"))?.returnvalue.aborted).toBe(true);
    },
  );

  it("locks a job that was built manually from the reply to the end of the previous job", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(undefined, { autorun: false });
    await queue.addBulk(jobs(2, (i) => `k${i}`));
    const job = await worker.getNextJob("mine", { block: false });
    if (job === undefined) throw new Error("expected a job");
    const [data, id] = (await job.moveToCompleted("done", "mine", true)) as [never, string];
    const next = Job.fromJSON<Data>(worker, data, id);
    await using lock = await worker.lockJob(next);
    expect(lock?.resources).toEqual(["k1"]);
    await next.moveToCompleted("done", "mine", false);
  });

  it("locks jobs that are fetched manually", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.adopt(new ExclusiveWorker<Data>("q", null, { connection: lab.connection, key: "k" }));
    await queue.addBulk([...jobs(2, () => "a"), { name: "job", data: { i: 7 } }]);
    const first = await worker.getNextJob("t1", { block: false });
    const keyless = await worker.getNextJob("t2", { block: false });
    expect([first?.data.i, keyless?.data.i]).toEqual([0, 7]);
    if (first === undefined || keyless === undefined) return;
    const lock = await worker.lockJob(first);
    expect(lock?.fencingToken).toBeGreaterThan(0);
    expect(await worker.lockJob(keyless)).toBeUndefined();
    expect(await worker.getNextJob("t3", { block: false })).toBeUndefined();
    await lock?.release();
    await first.moveToCompleted("done", "t1", false);
    expect((await worker.getNextJob("t4", { block: false }))?.data.i).toBe(1);
  });

  it("refuses to lock a job that did not pass through the lane", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker(undefined, { autorun: false });
    const job = await queue.add("job", { k: "a", i: 0 });
    await expect(worker.lockJob(job)).rejects.toThrow(/without passing through its lane/);
  });

  it("keeps its locks on the Redis of the client that is passed as connection", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue("q", { connection: lab.redis });
    const seen: unknown[] = [];
    const body = async (): Promise<void> => void seen.push(await lab.redis.pttl("a"));
    const worker = lab.worker(body, { connection: lab.redis });
    await queue.addBulk(jobs(1, () => "a"));
    await finished(queue, 1);
    expect(seen).toEqual([expect.any(Number)]);
    expect(seen[0]).toBeGreaterThan(0);
    await worker.close();
    await queue.close();
  });

  it("fails a job whose key function is asynchronous, and handles the rejection of the function's promise", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const unhandled: unknown[] = [];
    const note = (error: unknown): void => void unhandled.push(error);
    process.on("unhandledRejection", note);
    lab.defer(async () => void process.off("unhandledRejection", note));
    await queue.addBulk(jobs(1, () => "a"));
    lab.worker(undefined, { key: (async () => await Promise.reject(new Error("late"))) as never });
    await finished(queue, 1);
    expect((await queue.getFailed()).map((job) => job.failedReason)).toEqual([
      "job 1: its key function returned a promise, but must be synchronous",
    ]);
    expect(unhandled).toEqual([]);
  });

  it("reaches the locks by a URL with separate options, as BullMQ reaches the queue", async () => {
    await using lab = await Lab.start();
    await lab.redis.config("SET", "requirepass", "secret");
    const url = `redis://127.0.0.1:${lab.server.port}`;
    const connection = { url, password: "secret", db: 3, maxRetriesPerRequest: null } as const;
    const queue = lab.queue("q", { connection });
    await queue.addBulk(jobs(1, () => "a"));
    const fences: number[] = [];
    lab.worker(
      async () => {
        await lab.redis.select(3);
        fences.push(await lab.redis.exists("a", "{x}:node:last"));
      },
      { connection },
    );
    await finished(queue, 1);
    expect(fences).toEqual([2]);
    expect(lab.errors).toEqual([]);
  });

  it("continues to take jobs of a key after its key function threw", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    let isBroken = true;
    lab.worker(undefined, {
      key: (job) => {
        if (isBroken && job.data.i === 1) throw new Error("boom");
        return String(job.data.k);
      },
    });
    const added = await queue.addBulk(jobs(3, () => "a"));
    await finished(queue, 3);
    expect((await queue.getFailed()).map((job) => job.failedReason)).toEqual(["job 2: its key function threw: boom"]);
    isBroken = false;
    await added[1]?.retry();
    await until(async () => (await queue.getCompletedCount()) === 3);
    expect(lab.ran.map((run) => run.i)).toEqual([0, 2, 1]);
  });
});
