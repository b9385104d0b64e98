/** Logs of a test, written by pino and read back. */
import { type Logger, pino } from "pino";

export type LogRecord = Readonly<Record<string, unknown>> & { readonly level: number; readonly msg: string };

/** Returns a logger of pino and the lines that it has written so far. */
export function pinoLines(level = "debug"): { readonly logger: Logger; readonly lines: readonly LogRecord[] } {
  const lines: LogRecord[] = [];
  const logger = pino({ level, base: null }, { write: (line: string) => lines.push(JSON.parse(line) as LogRecord) });
  return { logger, lines };
}
