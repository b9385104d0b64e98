import { afterAll, beforeAll } from "vitest";
import { rememberTimerOrigins, watchForLeaks } from "./src/leaks.ts";

if (process.env["X_TEST_TIMER_ORIGINS"] !== undefined) rememberTimerOrigins();

// Registered before a file's own hooks, so that the check runs after all hooks.
let check: (() => Promise<void>) | undefined;

beforeAll(() => {
  check = watchForLeaks();
});

afterAll(async () => {
  await check?.();
});
