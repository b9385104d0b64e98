import cliProgress from "cli-progress";
import Table from "cli-table3";
import { createLogUpdate } from "log-update";
import pico from "picocolors";
import type { CursorState } from "./cursor.ts";
import type { AirportProgress } from "./rules/progress.ts";

export interface Snapshot {
  readonly seconds: number;
  readonly done: number;
  readonly total: number;
  /** Flights per second, over the last few. */
  readonly rate: number;
  readonly cursor: CursorState;
  readonly busiest: readonly AirportProgress[];
  readonly staleRefused: number;
}

export interface View {
  update(snapshot: Snapshot): void;
  /** Something happened: a fault, a new leader. */
  tell(seconds: number, text: string): void;
  /** Leaves the last picture; lines may be written below it then. */
  close(): void;
}

const barWidth = 40;
const plainIntervalSeconds = 5;

/** A live picture on a terminal, lines elsewhere. */
export function openView(stream: NodeJS.WriteStream, headline: string): View {
  // A terminal that does not know its size cannot be drawn on.
  const isDrawable = stream.isTTY && stream.columns > 0 && stream.rows > 0;
  return isDrawable ? liveView(stream, headline) : plainView(stream, headline);
}

function liveView(stream: NodeJS.WriteStream, headline: string): View {
  const draw = createLogUpdate(stream);
  const events: string[] = [];
  let latest: Snapshot | undefined;
  const redraw = (): void => {
    if (latest === undefined) return;
    draw(
      [pico.bold(headline), progressLine(latest), leaderLine(latest), airportTable(latest.busiest), ...events].join(
        "\n",
      ),
    );
  };
  return {
    update(snapshot) {
      latest = snapshot;
      redraw();
    },
    tell(seconds, text) {
      events.push(`${pico.dim(clock(seconds))}  ${text}`);
      redraw();
    },
    close() {
      draw.done();
    },
  };
}

function plainView(stream: NodeJS.WriteStream, headline: string): View {
  let nextSeconds = 0;
  const print = (seconds: number, text: string): void => {
    stream.write(`${clock(seconds)}  ${text}\n`);
  };
  stream.write(`${headline}\n`);
  return {
    update(snapshot) {
      if (snapshot.seconds < nextSeconds) return;
      nextSeconds = snapshot.seconds + plainIntervalSeconds;
      const [first] = snapshot.busiest;
      const busiest = first === undefined ? "" : `, busiest ${first.airport} (${first.backlog} waiting)`;
      print(
        snapshot.seconds,
        `${number(snapshot.done)} of ${number(snapshot.total)} flights, ${number(snapshot.rate)}/s, leader ${snapshot.cursor.leader ?? "none yet"}${busiest}`,
      );
    },
    tell: print,
    close() {},
  };
}

function progressLine({ done, total, rate }: Snapshot): string {
  const bar = cliProgress.Format.BarFormat(done / total, {
    barsize: barWidth,
    barCompleteString: "█".repeat(barWidth),
    barIncompleteString: "░".repeat(barWidth),
    barGlue: "",
  });
  const left = rate > 0 && done < total ? `, ${Math.ceil((total - done) / rate)} s left` : "";
  return `${pico.cyan(bar)} ${Math.floor((100 * done) / total)} %  ${number(done)} of ${number(total)} flights, ${number(rate)}/s${left}`;
}

function leaderLine({ cursor, staleRefused }: Snapshot): string {
  const leader =
    cursor.leader === undefined ? "no leader yet" : `leader ${pico.bold(cursor.leader)} term ${cursor.term}`;
  return `${leader}, ${number(cursor.next)} flights enqueued, ${number(staleRefused)} stale writes refused`;
}

function airportTable(airports: readonly AirportProgress[]): string {
  const table = new Table({
    head: ["airport", "holder", "backlog", "done"],
    colAligns: ["left", "left", "right", "right"],
    colWidths: [9, 12, 9, 8],
    style: { head: [], border: [], compact: true },
  });
  for (const { airport, holder, backlog, done } of airports)
    table.push([airport, holder ?? "", number(backlog), number(done)]);
  return table.toString();
}

function clock(seconds: number): string {
  return `${seconds.toFixed(1).padStart(6)} s`;
}

function number(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}
