/** Code that the compiler accepts; `tsc -b` fails for an `@ts-expect-error` without an error. */
import { ExclusiveWorker, type ExclusiveWorkerOptions, type KeyPath } from "@x/workers";
import type { Job } from "bullmq";
import { describe, expectTypeOf, it } from "vitest";

interface Payment {
  readonly accountId: string;
  readonly parties?: readonly number[];
  readonly customer: { readonly id: number; readonly address: { readonly zip: string } } | null;
  readonly isUrgent: boolean;
  readonly notes: unknown;
}

type Paths = KeyPath<Payment>;

describe("the path of a key", () => {
  it("leads to a field of the job's data that may be a key", () => {
    expectTypeOf<"accountId">().toExtend<Paths>();
    expectTypeOf<"parties" | "parties.0">().toExtend<Paths>();
    expectTypeOf<"customer.id" | "customer.address.zip">().toExtend<Paths>();
    expectTypeOf<"notes" | "notes.owner">().toExtend<Paths>();
    expectTypeOf<"acountId">().not.toExtend<Paths>();
    expectTypeOf<"isUrgent">().not.toExtend<Paths>();
    expectTypeOf<"customer">().not.toExtend<Paths>();
    expectTypeOf<"customer.idd">().not.toExtend<Paths>();
    expectTypeOf<"data.accountId">().not.toExtend<Paths>();
    expectTypeOf<undefined>().not.toExtend<Paths>();
  });

  it("may lead into the data of any kind of job, if jobs are of several kinds", () => {
    type Either = KeyPath<{ readonly accountId: string } | { readonly userId: string }>;
    expectTypeOf<Either>().toEqualTypeOf<"accountId" | "userId">();
  });

  it("is any string if the data has no type", () => {
    // oxlint-disable-next-line typescript/no-explicit-any -- the default of BullMQ's Job
    expectTypeOf<KeyPath<any>>().toEqualTypeOf<string>();
    expectTypeOf<KeyPath<unknown>>().toEqualTypeOf<string>();
    expectTypeOf<"a" | "a.b.c">().toExtend<KeyPath<Readonly<Record<string, unknown>>>>();
    expectTypeOf<KeyPath<string>>().toBeNever();
  });

  it("ends at the third field of a type that contains itself", () => {
    interface Tree {
      readonly name: string;
      readonly parent?: Tree;
    }
    expectTypeOf<"name" | "parent.name" | "parent.parent.name">().toExtend<KeyPath<Tree>>();
    expectTypeOf<"parent.nam">().not.toExtend<KeyPath<Tree>>();
  });
});

describe("ExclusiveWorker", () => {
  it("infers its jobs from the processor, which receives the signal and the lock", () => {
    const process = async (job: Job<Payment, number>): Promise<number> => job.data.accountId.length;
    const make = (options: ExclusiveWorkerOptions<Payment>): ExclusiveWorker<Payment, number> =>
      new ExclusiveWorker("payments", process, options);
    const connection = {};
    void (() => [
      make({ connection, key: "accountId" }),
      make({ connection, key: ({ data }) => data.parties }),
      // @ts-expect-error -- a misspelt path
      make({ connection, key: "acountId" }),
      // @ts-expect-error -- no such field
      make({ connection, key: ({ data }) => data.acountId }),
      // @ts-expect-error -- a boolean is no key
      make({ connection, key: ({ data }) => data.isUrgent }),
      // @ts-expect-error -- no key at all
      make({ connection }),
      // @ts-expect-error -- a misspelt path, in a call without type arguments
      new ExclusiveWorker("payments", process, { connection, key: "acountId" }),
      new ExclusiveWorker("payments", process, { connection, key: "accountId" }),
      new ExclusiveWorker("untyped", async (job) => job.data.anything, { connection, key: "other" }),
      new ExclusiveWorker(
        "payments",
        async (job: Job<Payment>, token, signal, lock) => {
          expectTypeOf(token).toEqualTypeOf<string | undefined>();
          expectTypeOf(signal).toEqualTypeOf<AbortSignal>();
          expectTypeOf(lock.fencingToken).toBeNumber();
          return job.data;
        },
        { connection, key: "customer.id" },
      ),
    ]);
    expectTypeOf(make).returns.toEqualTypeOf<ExclusiveWorker<Payment, number>>();
  });
});
