import { rememberTimerOrigins, watchForLeaks } from "@x/test-support";

rememberTimerOrigins();
const check = watchForLeaks();
setForgotten();
await check().catch((error: unknown) => process.send?.(String(error)));
process.exit();

function setForgotten(): void {
  setTimeout(() => undefined, 60_000);
}
