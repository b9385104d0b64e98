/** The command line as a function, for scripts and tests. */
export { type ExitCode, runConsole } from "./program.ts";
export { processTerminal, type Terminal } from "./terminal.ts";
