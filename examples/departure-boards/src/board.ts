import { createHash } from "node:crypto";
import type { Flight } from "./flight.ts";

/** What an airport shows. Each flight changes it in a way that depends on the flights before, so a lost or swapped update shows. */
export interface Board {
  readonly flights: number;
  /** Flights that arrived 15 minutes late or later. */
  readonly late: number;
  readonly miles: number;
  readonly delayMinutes: number;
  readonly longestDelayMinutes: number;
  /** Moving average of the delay, each flight with weight 1/8, rounded to 1/1000. */
  readonly recentDelayMinutes: number;
  /** The last five departures, newest first: `06:20 MCI +12`. */
  readonly departures: readonly string[];
  /** Hash of every flight so far, in order. */
  readonly digest: string;
}

const lateFromMinutes = 15;
const shownDepartures = 5;

export const emptyBoard: Board = {
  flights: 0,
  late: 0,
  miles: 0,
  delayMinutes: 0,
  longestDelayMinutes: 0,
  recentDelayMinutes: 0,
  departures: [],
  digest: "",
};

/** The board after one more departure. */
export function depart(board: Board, flight: Flight): Board {
  const { date, destination, delayMinutes } = flight;
  const recent = board.recentDelayMinutes + (delayMinutes - board.recentDelayMinutes) / 8;
  const departure = `${date.slice(11)} ${destination} ${delayMinutes < 0 ? "" : "+"}${delayMinutes}`;
  return {
    flights: board.flights + 1,
    late: board.late + (delayMinutes >= lateFromMinutes ? 1 : 0),
    miles: board.miles + flight.distanceMiles,
    delayMinutes: board.delayMinutes + delayMinutes,
    longestDelayMinutes: Math.max(board.longestDelayMinutes, delayMinutes),
    recentDelayMinutes: Math.round(recent * 1000) / 1000,
    departures: [departure, ...board.departures].slice(0, shownDepartures),
    digest: createHash("sha256")
      .update(`${board.digest}|${JSON.stringify(flight)}`)
      .digest("hex")
      .slice(0, 16),
  };
}

/** Every airport's board after a plain pass over the flights in their order: what the distributed run must arrive at. */
export function boardsOf(flights: readonly Flight[]): Map<string, Board> {
  const boards = new Map<string, Board>();
  for (const flight of flights) boards.set(flight.origin, depart(boards.get(flight.origin) ?? emptyBoard, flight));
  return boards;
}
