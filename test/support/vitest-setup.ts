import { afterAll, beforeAll } from "vitest";
import { watchForLeaks } from "./src/leaks.ts";

// Registered before a file's own hooks, so the check runs after all of them.
let check: (() => Promise<void>) | undefined;

beforeAll(() => {
  check = watchForLeaks();
});

afterAll(async () => {
  await check?.();
});
