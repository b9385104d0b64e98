import { LockLostError, QuorumUnreachableError, RedlockClosedError } from "@x/redlock-core";
import { describe, expect, it } from "vitest";
import { errorOf, failureOf } from "../src/term/worker/shared.ts";

const QUORUM = new QuorumUnreachableError({
  resources: ["leader:x"],
  votes: [{ node: "a", vote: "failed", tookMs: 3, error: "no answer within 300 ms" }],
  nodeCount: 1,
  quorum: 1,
  attempts: 2,
  elapsedMs: 7,
});

describe("an error of the renewal thread", () => {
  it.each([
    QUORUM,
    new RedlockClosedError(["leader:x"]),
    new LockLostError({ resources: ["leader:x"], reason: "forced", fencingToken: 7, heldMs: 1, votes: [] }),
  ])("keeps its class, its fields and its cause: $name", (thrown) => {
    const error = errorOf(structuredClone(failureOf(thrown)));
    expect(error).toBeInstanceOf(thrown.constructor);
    expect(Object.entries(error)).toEqual(Object.entries(thrown));
    expect([error.message, error.stack]).toEqual([thrown.message, thrown.stack]);
    expect((error.cause as Error | undefined)?.message).toBe((thrown.cause as Error | undefined)?.message);
  });

  it("is passed on unchanged if it is not of a class of this package", () => {
    const strange = Object.assign(new TypeError("no such option"), { fn: () => undefined });
    const error = errorOf(structuredClone(failureOf(strange)));
    expect([error.constructor, error.message]).toEqual([TypeError, "no such option"]);
    expect(errorOf(structuredClone(failureOf("text"))).message).toBe("text");
  });
});
