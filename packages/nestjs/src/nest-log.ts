/** The lines of `logTo` in Nest's log, while an application with the module runs. */
import { Logger as NestLogger } from "@nestjs/common";
import { type Logger, logTo, type StopLogging } from "@x/redlock-core";
import { isLogging } from "@x/redlock-core/kit";
import { logLine, stackIn } from "./rules/log-line.ts";

const log = new NestLogger("Coordination");

/** Nest writes lines of all levels by default, so this logger leaves out the lines of each lock and job. */
const nestLogger: Logger = {
  isLevelEnabled: (level) => level !== "debug",
  debug: () => undefined,
  info: (fields, message) => log.log(logLine(fields, message)),
  warn: (fields, message) => log.warn(logLine(fields, message)),
  error: (fields, message) => log.error(logLine(fields, message), stackIn(fields)),
};

let applications = 0;
let stop: StopLogging | undefined;

/**
 * Logs until the returned function is called. The applications of a process share the lines. Does nothing if the
 * process already logs with a logger of its own.
 */
export function logToNest(): () => void {
  if (applications === 0 && !isLogging()) stop = logTo(nestLogger);
  applications += 1;
  let isOpen = true;
  return () => {
    if (!isOpen) return;
    isOpen = false;
    applications -= 1;
    if (applications > 0) return;
    stop?.();
    stop = undefined;
  };
}
