import { parse } from "csv-parse/sync";

/** One departure of the log; `index` is its place in it, from 0. */
export interface Flight {
  readonly index: number;
  /** Local time of departure, as the log has it. */
  readonly date: string;
  readonly origin: string;
  readonly destination: string;
  readonly distanceMiles: number;
  /** Negative when the flight arrived early. */
  readonly delayMinutes: number;
}

/**
 * Reads the log in `data/flights.csv`'s form.
 * @throws Error naming the line that is not a flight.
 */
export function parseFlights(csv: string): Flight[] {
  const rows: unknown[] = parse(csv, { columns: true, skip_empty_lines: true });
  return rows.map((row, index) => {
    const flight = toFlight(row, index);
    if (flight === undefined) throw new Error(`line ${index + 2} is not a flight: ${JSON.stringify(row)}`);
    return flight;
  });
}

function toFlight(row: unknown, index: number): Flight | undefined {
  if (typeof row !== "object" || row === null) return undefined;
  const { date, origin, destination, distance_miles, delay_minutes } = row as Partial<Record<string, string>>;
  const [distanceMiles, delayMinutes] = [Number(distance_miles), Number(delay_minutes)];
  if (date === undefined || !isAirport(origin) || !isAirport(destination)) return undefined;
  if (!distance_miles || !delay_minutes || !Number.isInteger(distanceMiles) || !Number.isInteger(delayMinutes))
    return undefined;
  return { index, date, origin, destination, distanceMiles, delayMinutes };
}

function isAirport(code: string | undefined): code is string {
  return code !== undefined && /^[A-Z]{3}$/.test(code);
}
