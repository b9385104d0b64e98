import { BullModule, getQueueToken, OnWorkerEvent, Processor, WorkerHost } from "@nestjs/bullmq";
import { Inject, Injectable, Scope } from "@nestjs/common";
import { CoordinationModule, ExclusiveProcessor, ExclusiveWorkerHost, Locked } from "@x/nestjs";
import { Redlock } from "@x/redlock-core";
import { type RedisServer, startRedis } from "@x/test-support";
import { ExclusiveQueue, ExclusiveWorker, type JobLock } from "@x/workers";
import { type Job, Queue, Worker } from "bullmq";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { type App, appWith } from "./support/app.ts";

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
});

afterAll(async () => await server.stop());

interface Payment {
  readonly accountId: string;
  readonly amount: number;
}

const connection = (): { readonly host: string; readonly port: number } => ({ host: server.host, port: server.port });

/** Records which jobs ran, in order, and how many jobs of an account ran at a time. */
class Journal {
  readonly entries: string[] = [];
  readonly completed: string[] = [];
  most = 0;
  readonly #running = new Map<string, number>();

  async work(account: string, entry: string): Promise<void> {
    const count = (this.#running.get(account) ?? 0) + 1;
    this.#running.set(account, count);
    this.most = Math.max(this.most, count);
    await new Promise((resolve) => setTimeout(resolve, 5));
    this.entries.push(entry);
    this.#running.set(account, count - 1);
  }
}

@ExclusiveProcessor<Payment>("payments", { key: "accountId", resource: "account:", concurrency: 8, withoutKey: "fail" })
class PaymentsProcessor extends ExclusiveWorkerHost<Payment, number> {
  readonly locks: JobLock[] = [];
  readonly signals: AbortSignal[] = [];
  @Inject(Journal) readonly journal!: Journal;

  async process(
    job: Job<Payment, number>,
    _token: string | undefined,
    signal: AbortSignal,
    lock: JobLock,
  ): Promise<number> {
    this.locks.push(lock);
    this.signals.push(signal);
    await this.journal.work(job.data.accountId, `${job.data.accountId}:${job.data.amount}`);
    return job.data.amount;
  }

  @OnWorkerEvent("completed")
  onCompleted(job: Job<Payment, number>): void {
    this.journal.completed.push(`${job.name} ${job.returnvalue}`);
  }
}

@Processor("mails", { concurrency: 2 })
class MailsProcessor extends WorkerHost {
  readonly sent: string[] = [];

  async process(job: Job<{ readonly to: string }>): Promise<void> {
    this.sent.push(job.data.to);
  }
}

@Injectable()
class Accounts {
  @Inject(Journal) readonly journal!: Journal;

  @Locked((id: string) => `account:${id}`)
  async close(id: string): Promise<void> {
    await this.journal.work(id, `${id}:closed`);
  }
}

async function startApp(): Promise<App> {
  await server.flush();
  return await appWith(server, {
    imports: [
      BullModule.forRoot({ connection: connection(), prefix: "shop" }),
      BullModule.registerQueue({ name: "payments" }, { name: "mails" }),
    ],
    providers: [Journal, PaymentsProcessor, MailsProcessor, Accounts],
  });
}

async function queueOf(name: string): Promise<Queue & AsyncDisposable> {
  const queue = new Queue(name, { connection: connection(), prefix: "shop" });
  return Object.assign(queue, { [Symbol.asyncDispose]: async () => await queue.close() });
}

describe("the queues of @nestjs/bullmq", () => {
  it("are exclusive queues if the module is told to use this class", async () => {
    BullModule.queueClass = ExclusiveQueue;
    onTestFinished(() => {
      BullModule.queueClass = Queue;
    });
    await using app = await startApp();
    const payments = app.get<ExclusiveQueue<Payment>>(getQueueToken("payments") as never);
    expect(payments).toBeInstanceOf(ExclusiveQueue);
    expect(await payments.pauseKey("7", "unpaid")).toBe(true);
    await payments.add("charge", { accountId: "7", amount: 1 });
    await expect.poll(async () => (await payments.jobsOf("7")).parked).toHaveLength(1);
    await payments.resumeKey("7");
    await expect.poll(() => app.get(Journal).entries).toEqual(["7:1"]);
  });
});

describe("@ExclusiveProcessor", () => {
  it("runs one job per key at a time, in order, and excludes plain code with the same lock", async () => {
    await using app = await startApp();
    await using payments = await queueOf("payments");
    await using mails = await queueOf("mails");
    const { entries, completed } = app.get(Journal);
    const jobs = Array.from({ length: 30 }, (_, n) => ({
      name: "charge",
      data: { accountId: `${n % 3}`, amount: n },
    }));
    await payments.addBulk(jobs);
    await mails.add("mail", { to: "a@example.com" });
    await Promise.all(["0", "1", "2"].map((id) => app.get(Accounts).close(id)));
    await expect.poll(() => entries.length).toBe(33);
    await expect.poll(() => completed.length).toBe(30);
    await expect.poll(() => app.get(MailsProcessor).sent).toEqual(["a@example.com"]);
    expect(app.get(Journal).most).toBe(1);
    for (const account of ["0", "1", "2"]) {
      const own = entries.filter((entry) => entry.startsWith(`${account}:`) && !entry.endsWith("closed"));
      expect(own).toEqual(
        jobs.filter(({ data }) => data.accountId === account).map(({ data }) => `${account}:${data.amount}`),
      );
    }
    const { locks, signals, worker } = app.get(PaymentsProcessor);
    expect(locks.every(({ fencingToken, keys }) => fencingToken > 0 && keys.length === 1)).toBe(true);
    expect(signals.every((signal) => signal instanceof AbortSignal && !signal.aborted)).toBe(true);
    expect(worker).toBeInstanceOf(ExclusiveWorker);
    expect(worker.redlock).toBe(app.get(Redlock));
    expect(app.get(MailsProcessor).worker).not.toBeInstanceOf(ExclusiveWorker);
    expect(app.get(MailsProcessor).worker).toBeInstanceOf(Worker);
  });

  it("needs no @nestjs/bullmq if the connection is an option", async () => {
    @ExclusiveProcessor<Payment>("alone", { key: ({ data }) => data.accountId, connection: connection() })
    class Alone extends ExclusiveWorkerHost<Payment> {
      async process(job: Job<Payment>): Promise<string> {
        return job.data.accountId;
      }
    }
    await using app = await appWith(server, { providers: [Alone] });
    await using queue = new DisposableQueue("alone");
    const job = await queue.queue.add("charge", { accountId: "7", amount: 1 });
    await expect.poll(async () => await job.getState()).toBe("completed");
    expect(app.get(Alone).worker.name).toBe("alone");
  });

  it("acquires locks on the queue's own Redis with `locksOnQueue`, which exclude a Redlock on this Redis", async () => {
    const journal = new Journal();
    @ExclusiveProcessor<Payment>("on-queue", {
      key: "accountId",
      resource: "account:",
      connection: connection(),
      locksOnQueue: true,
      configKey: undefined,
    })
    class OnQueue extends ExclusiveWorkerHost<Payment> {
      async process(job: Job<Payment>): Promise<void> {
        await journal.work(job.data.accountId, `job ${job.data.amount}`);
      }
    }
    await using app = await appWith(server, {
      providers: [OnQueue, Accounts, { provide: Journal, useValue: journal }],
    });
    await using queue = new DisposableQueue("on-queue");
    await queue.queue.addBulk([1, 2, 3, 4].map((amount) => ({ name: "n", data: { accountId: "7", amount } })));
    await Promise.all([app.get(Accounts).close("7"), app.get(Accounts).close("7")]);
    await expect.poll(() => journal.entries.length).toBe(6);
    expect(journal.most).toBe(1);
    expect(app.get(OnQueue).worker.redlock).not.toBe(app.get(Redlock));
  });

  it("processes jobs with a class that extends WorkerHost of @nestjs/bullmq", async () => {
    const journal = new Journal();
    const locks: JobLock[] = [];
    @ExclusiveProcessor("moved", { key: "accountId", connection: connection(), concurrency: 8 })
    class Moved extends WorkerHost<ExclusiveWorker> {
      async process(job: Job<Payment>, _token?: string, signal?: AbortSignal, lock?: JobLock): Promise<void> {
        if (lock !== undefined && signal?.aborted === false) locks.push(lock);
        await journal.work(job.data.accountId, `${job.data.amount}`);
      }

      @OnWorkerEvent("completed")
      onCompleted({ data }: Job<Payment>): void {
        journal.completed.push(`${data.amount}`);
      }
    }
    await using app = await appWith(server, { providers: [Moved] });
    await using queue = new DisposableQueue("moved");
    await queue.queue.addBulk([1, 2, 3, 4].map((amount) => ({ name: "n", data: { accountId: "7", amount } })));
    await expect.poll(() => journal.completed).toEqual(["1", "2", "3", "4"]);
    expect(journal).toMatchObject({ most: 1, entries: ["1", "2", "3", "4"] });
    expect(locks.map(({ keys }) => keys)).toEqual([["7"], ["7"], ["7"], ["7"]]);
    expect(app.get(Moved).worker).toBeInstanceOf(ExclusiveWorker);
  });

  it("emits an error of the worker if an event's method fails, sync or async", async () => {
    const errors: string[] = [];
    @ExclusiveProcessor("eventful", { key: "accountId", connection: connection() })
    class Eventful extends ExclusiveWorkerHost<Payment> {
      async process(): Promise<void> {}

      @OnWorkerEvent("active")
      onActive(): void {
        throw new Error("sync");
      }

      @OnWorkerEvent("completed")
      async onCompleted(): Promise<void> {
        await Promise.reject(new Error("async"));
      }

      @OnWorkerEvent("error")
      onError(error: Error): void {
        errors.push(error.message);
      }
    }
    await using _app = await appWith(server, { providers: [Eventful] });
    await using queue = new DisposableQueue("eventful");
    await queue.queue.add("n", { accountId: "7", amount: 1 });
    await expect.poll(() => errors).toEqual(["sync", "async"]);
  });

  it("starts no worker with `autorun: false`", async () => {
    @ExclusiveProcessor("by-hand", { key: "accountId", connection: connection(), autorun: false })
    class ByHand extends ExclusiveWorkerHost {
      async process(): Promise<void> {}
    }
    await using app = await appWith(server, { providers: [ByHand] });
    expect(app.get(ByHand).worker.isRunning()).toBe(false);
  });
});

class DisposableQueue implements AsyncDisposable {
  readonly queue: Queue;

  constructor(name: string) {
    this.queue = new Queue(name, { connection: connection() });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.queue.close();
  }
}

describe("a wrong @ExclusiveProcessor stops the application at its start, and names the class", () => {
  it("for an unknown option", async () => {
    @ExclusiveProcessor("q", { key: "a", connection: connection(), resurce: "account:" } as never)
    class Misspelt extends ExclusiveWorkerHost {
      async process(): Promise<void> {}
    }
    await expect(appWith(server, { providers: [Misspelt] })).rejects.toThrow(
      'Misspelt: unknown option "resurce": did you mean "resource"?',
    );
  });

  it("for a missing connection", async () => {
    @ExclusiveProcessor("q", { key: "a" })
    class Nowhere extends ExclusiveWorkerHost {
      async process(): Promise<void> {}
    }
    await expect(appWith(server, { providers: [Nowhere] })).rejects.toThrow(
      'Nowhere: connection must be an option of @ExclusiveProcessor, of BullModule.registerQueue or of BullModule.forRoot for queue "q"',
    );
  });

  it("for a class that is not a host", async () => {
    @(ExclusiveProcessor("q", { key: "a", connection: connection() }) as ClassDecorator)
    class Hostless {
      async process(): Promise<void> {}
    }
    await expect(appWith(server, { providers: [Hostless] })).rejects.toThrow(
      "Hostless: an @ExclusiveProcessor must extend ExclusiveWorkerHost, or WorkerHost of @nestjs/bullmq",
    );
  });

  it("for a class that is also a plain @Processor", async () => {
    @Processor("q")
    @ExclusiveProcessor("q", { key: "a", connection: connection() })
    class Both extends WorkerHost {
      async process(): Promise<void> {}
    }
    await expect(appWith(server, { providers: [Both] })).rejects.toThrow(
      "Both: an @ExclusiveProcessor must not also be a @Processor",
    );
  });

  it("for a request-scoped class", async () => {
    @ExclusiveProcessor("q", { key: "a", connection: connection() })
    @Injectable({ scope: Scope.REQUEST })
    class PerRequest extends ExclusiveWorkerHost {
      async process(): Promise<void> {}
    }
    await expect(appWith(server, { providers: [PerRequest] })).rejects.toThrow(
      "PerRequest is @ExclusiveProcessor, but PerRequest is request-scoped",
    );
  });

  it("for a second import of the module", async () => {
    await using redlock = new Redlock(server.url);
    const again = CoordinationModule.forRoot({ redlock, keepOpen: true });
    await expect(appWith(server, { imports: [again] })).rejects.toThrow(
      "CoordinationModule must be imported once, got 2 imports",
    );
  });
});
