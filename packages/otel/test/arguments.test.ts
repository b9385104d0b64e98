import { instrument } from "@x/otel";
import { expect, it } from "vitest";

it.each([
  [null, TypeError, "options must be an object"],
  [{ names: String }, TypeError, 'unknown option "names": did you mean "name"?'],
  [{ name: "x" }, TypeError, "name must be a function"],
  [{ tracer: {} }, TypeError, "tracer must be a Tracer"],
  [{ meter: null }, TypeError, "meter must be a Meter"],
  [{ queues: [{}] }, TypeError, "queues must be an array of ExclusiveQueues"],
  [{ topKeys: "3" }, TypeError, 'topKeys must be an integer from 0 to 100, got "3"'],
  [{ topKeys: 1.5 }, RangeError, "topKeys must be an integer from 0 to 100, got 1.5"],
  [{ topKeys: 101 }, RangeError, "topKeys must be an integer from 0 to 100, got 101"],
])("refuses %j by name", (options, kind, message) => {
  expect(() => instrument(options as never)).toThrow(kind);
  expect(() => instrument(options as never)).toThrow(message);
});
