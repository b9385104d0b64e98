export { type InstrumentOptions, instrument } from "./instrument.ts";
export type { ObservedQueue } from "./workers.ts";
