import { placesOf } from "@x/test-support";
import { expect, it } from "vitest";

const secret = "pä55/word";

class Hiding extends Error {
  get told(): string {
    return secret;
  }
}

const hidden = Object.defineProperty(new Error("m"), "hidden", { value: secret });

const rejected = Promise.reject(new Error(secret));
rejected.catch(() => undefined);

it.each<[string, unknown]>([
  ["its text", secret],
  ["a message", new Error(`AUTH ${secret}`)],
  ["a cause", new Error("m", { cause: new Error("n", { cause: secret }) })],
  ["one of many errors", new AggregateError([new Error("m"), new Error(secret)])],
  ["the arguments of a command", Object.assign(new Error("m"), { command: { args: ["AUTH", secret] } })],
  ["a property that is not enumerable", hidden],
  ["a symbol", { [Symbol("s")]: secret }],
  ["the name of a property", { [secret]: 1 }],
  ["a getter of the class", new Hiding("m")],
  ["what is written as JSON", { toJSON: () => ({ secret }) }],
  ["a key of a map", new Map([[{ secret }, 1]])],
  ["bytes", Buffer.from("pa55word")],
  ["an encoded URL", `redis://:${encodeURIComponent(secret)}@host`],
  ["what a promise rejects with", [rejected]],
])("finds a secret in %s", async (_place, value) => {
  expect(await placesOf(Buffer.isBuffer(value) ? "pa55word" : secret, value)).not.toEqual([]);
});

it("names the place of a secret, and stops at values that it has seen or that belong to the caller", async () => {
  const client = { options: { password: secret } };
  const error = Object.assign(new Error("m"), { client, self: {} });
  error.self = error;
  expect(await placesOf(secret, error)).toEqual(["it.client.options.password"]);
  expect(await placesOf(secret, error, [client])).toEqual([]);
});
