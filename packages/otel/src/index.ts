export { type InstrumentOptions, instrument, type ObservedWorker } from "./instrument.ts";
