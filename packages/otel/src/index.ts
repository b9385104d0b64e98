export { type InstrumentOptions, instrument } from "./instrument.ts";
export type { ObservedWorker } from "./workers.ts";
