/** What the compiler accepts; `tsc -b` fails for an `@ts-expect-error` without an error. */
import { WorkerHost } from "@nestjs/bullmq";
import { ExclusiveProcessor, ExclusiveWorkerHost } from "@x/nestjs";
import type { ExclusiveWorker, JobLock } from "@x/workers";
import type { Job } from "bullmq";
import { describe, expectTypeOf, it } from "vitest";

interface Payment {
  readonly accountId: string;
  readonly customer: { readonly id: number };
  readonly isUrgent: boolean;
}

abstract class Host extends ExclusiveWorkerHost<Payment, number> {
  async process(job: Job<Payment, number>): Promise<number> {
    return job.data.customer.id;
  }
}

describe("@ExclusiveProcessor", () => {
  it("accepts a path into the data of the class's jobs, or a function of the stored job", () => {
    @ExclusiveProcessor("payments", { key: "accountId" })
    class Path extends Host {}

    @ExclusiveProcessor<Payment>("payments", { key: "customer.id" })
    class Declared extends Host {}

    @ExclusiveProcessor("payments", { key: ({ data }) => data.accountId })
    class ByFunction extends Host {}

    @ExclusiveProcessor<Payment>("payments", {
      key: ({ data }) => {
        expectTypeOf(data).toEqualTypeOf<Payment>();
        return [data.accountId, data.customer.id];
      },
    })
    class ByDeclaredFunction extends Host {}

    @ExclusiveProcessor("untyped", { key: "whatever" })
    class Untyped extends ExclusiveWorkerHost {
      async process(job: Job): Promise<unknown> {
        return job.data.whatever;
      }
    }

    expectTypeOf([Path, Declared, ByFunction, ByDeclaredFunction, Untyped]).toBeArray();
  });

  it("refuses a path without a key, and a function of other data", () => {
    // @ts-expect-error -- a misspelt path
    @ExclusiveProcessor("payments", { key: "acountId" })
    class Misspelt extends Host {}

    // @ts-expect-error -- a misspelt path
    @ExclusiveProcessor<Payment>("payments", { key: "acountId" })
    class MisspeltOfDeclared extends Host {}

    // @ts-expect-error -- a boolean is no key
    @ExclusiveProcessor("payments", { key: "isUrgent" })
    class NoKey extends Host {}

    // @ts-expect-error -- no such field
    @ExclusiveProcessor<Payment>("payments", { key: ({ data }) => data.acountId })
    class OtherField extends Host {}

    // @ts-expect-error -- the class has jobs with other data
    @ExclusiveProcessor<{ readonly room: string }>("payments", { key: "room" })
    class OtherData extends Host {}

    // @ts-expect-error -- no key at all
    @ExclusiveProcessor("payments", { concurrency: 2 })
    class Keyless extends Host {}

    expectTypeOf([Misspelt, MisspeltOfDeclared, NoKey, OtherField, OtherData, Keyless]).toBeArray();
  });

  it("accepts only hosts", () => {
    // @ts-expect-error -- it has no worker
    @ExclusiveProcessor("payments", { key: "accountId" })
    class Hostless {
      async process(): Promise<void> {}
    }
    expectTypeOf(Hostless).instance.not.toExtend<ExclusiveWorkerHost>();
  });
});

describe("process()", () => {
  it("receives the signal and the lock, and must return the declared result", () => {
    abstract class Typed extends ExclusiveWorkerHost<Payment, number, "charge"> {
      override async process(
        ...[job, token, signal, lock]: Parameters<ExclusiveWorkerHost["process"]>
      ): Promise<number> {
        expectTypeOf(token).toEqualTypeOf<string | undefined>();
        expectTypeOf(signal).toEqualTypeOf<AbortSignal>();
        expectTypeOf(lock).toEqualTypeOf<JobLock>();
        return job.attemptsMade;
      }
    }
    expectTypeOf<Parameters<ExclusiveWorkerHost<Payment, number, "charge">["process"]>[0]>().toEqualTypeOf<
      Job<Payment, number, "charge">
    >();
    expectTypeOf<Typed["worker"]>().toEqualTypeOf<ExclusiveWorker<Payment, number, "charge">>();

    abstract class Wrong extends ExclusiveWorkerHost<Payment, number> {
      // @ts-expect-error -- the result is a number
      override async process(): Promise<string> {
        return "";
      }
    }
    expectTypeOf<Wrong>().not.toBeAny();
  });

  it("may declare signal and lock in a WorkerHost of @nestjs/bullmq, with a checked path", () => {
    @ExclusiveProcessor("payments", { key: "accountId" })
    class Plain extends WorkerHost<ExclusiveWorker<Payment>> {
      async process(job: Job<Payment>, _token?: string, signal?: AbortSignal, lock?: JobLock): Promise<void> {
        signal?.throwIfAborted();
        lock?.assertHeld();
        await job.updateProgress(1);
      }
    }

    // @ts-expect-error -- a misspelt path
    @ExclusiveProcessor("payments", { key: "acountId" })
    class Misspelt extends WorkerHost {
      async process(job: Job<Payment>): Promise<unknown> {
        return job.data.accountId;
      }
    }

    class Strict extends WorkerHost {
      // @ts-expect-error -- whoever extends Nest's class cannot demand what Nest does not promise: ExclusiveWorkerHost does
      async process(_job: Job, _token: string | undefined, _signal: AbortSignal, _lock: JobLock): Promise<void> {}
    }
    expectTypeOf<Plain["worker"]>().toEqualTypeOf<ExclusiveWorker<Payment>>();
    expectTypeOf<Misspelt | Strict>().toHaveProperty("worker");
  });
});
