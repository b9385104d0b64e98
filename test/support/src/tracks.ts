/**
 * Pure: a run as a picture. Tracks with bars and dots, one below the other, marks across all tracks, and a scale of
 * seconds.
 */
import { escaped } from "./markup.ts";

export interface TrackBar {
  readonly fromMs: number;
  readonly toMs: number;
  readonly colour: string;
  /** Text inside the bar. */
  readonly text?: string;
  /** Text under the mouse pointer. */
  readonly title?: string;
  /** The height of the bar as a share of the track's height, from below: 0 to 1. Default: 1. */
  readonly share?: number;
}

export interface TrackDot {
  readonly atMs: number;
  readonly colour: string;
  readonly title: string;
}

export interface Track {
  readonly label: string;
  /** Text below the label, such as the value of a full bar. */
  readonly note?: string;
  readonly height: number;
  readonly bars: readonly TrackBar[];
  readonly dots?: readonly TrackDot[];
}

export interface Tracks {
  readonly title: string;
  readonly fromMs: number;
  readonly toMs: number;
  readonly tracks: readonly Track[];
  /** Lines across all tracks, each with its text in a separate line. */
  readonly marks?: readonly { readonly atMs: number; readonly text: string }[];
  readonly legend?: readonly { readonly colour: string; readonly text: string }[];
  /** Lines below the picture. */
  readonly notes?: readonly string[];
}

const WIDTH = 1_000;
const LEFT = 130;
const RIGHT = 20;
const LINE = 16;
const GAP = 6;
const RED = "#b3141d";
const STEPS_MS = [1_000, 2_000, 5_000, 10_000, 30_000, 60_000];
/** Width of a letter in pixels, for texts that would be wider than their bar. */
const LETTER = 6.5;

export function tracksSvg(given: Tracks): string {
  const { title, fromMs, tracks, marks = [], legend = [], notes = [] } = given;
  const toMs = Math.max(given.toMs, fromMs + 1);
  const x = (atMs: number): number => LEFT + ((atMs - fromMs) / (toMs - fromMs)) * (WIDTH - LEFT - RIGHT);
  let y = 40 + marks.length * LINE;
  const drawn = tracks.flatMap((track) => {
    const top = y;
    y += track.height + GAP;
    return drawTrack(track, top, x);
  });
  const bottom = y;
  const lines = marks.map(({ atMs, text }, at) => drawMark(text, { x: x(atMs), y: 42 + at * LINE, bottom }));
  const entries = legend.map(({ colour, text }, at) => {
    const left = LEFT + (at % 6) * 145;
    const top = bottom + 34 + Math.floor(at / 6) * LINE;
    return `<rect x="${left}" y="${top}" width="11" height="11" fill="${colour}"/><text x="${left + 16}" y="${top + 10}">${escaped(text)}</text>`;
  });
  const below = bottom + 34 + Math.ceil(legend.length / 6) * LINE;
  const said = notes.map(
    (note, at) => `<text x="12" y="${below + 16 + at * LINE}" fill="#5b6675">${escaped(note)}</text>`,
  );
  const height = below + (notes.length + 1) * LINE;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="system-ui, sans-serif" font-size="12">`,
    `<rect width="100%" height="100%" fill="#ffffff"/>`,
    `<text x="12" y="22" font-size="15" font-weight="600">${escaped(title)}</text>`,
    ...drawn,
    ...lines,
    drawScale({ fromMs, toMs, bottom, x }),
    ...entries,
    ...said,
    "</svg>",
    "",
  ].join("\n");
}

function drawTrack({ label, note, height, bars, dots = [] }: Track, y: number, x: (atMs: number) => number): string[] {
  const rects = bars.map(({ fromMs, toMs, colour, text = "", title, share = 1 }) => {
    const [start, end] = [x(fromMs), x(toMs)];
    const own = height * share;
    const told = title === undefined ? "" : `<title>${escaped(title)}</title>`;
    const fits = text.length * LETTER < end - start;
    const written = fits
      ? `<text x="${round(start + 4)}" y="${y + height / 2 + 4}" fill="#ffffff">${escaped(text)}</text>`
      : "";
    return (
      `<rect x="${round(start)}" y="${round(y + height - own)}" width="${round(Math.max(1, end - start))}" height="${round(own)}" fill="${colour}">${told}</rect>` +
      (text === "" ? "" : written)
    );
  });
  const points = dots.map(
    ({ atMs, colour, title }) =>
      `<circle cx="${round(x(atMs))}" cy="${y + height}" r="3" fill="${colour}"><title>${escaped(title)}</title></circle>`,
  );
  const middle = y + height / 2 + (note === undefined ? 4 : -3);
  const below =
    note === undefined ? "" : `<text x="12" y="${middle + 14}" font-size="11" fill="#5b6675">${escaped(note)}</text>`;
  return [`<text x="12" y="${middle}">${escaped(label)}</text>${below}`, ...rects, ...points];
}

function drawMark(text: string, at: { readonly x: number; readonly y: number; readonly bottom: number }): string {
  const isLate = at.x > WIDTH * 0.7;
  return (
    `<line x1="${round(at.x)}" x2="${round(at.x)}" y1="${at.y - 8}" y2="${at.bottom}" stroke="${RED}" stroke-dasharray="3 3"/>` +
    `<text x="${round(isLate ? at.x - 4 : at.x + 4)}" y="${at.y}" fill="${RED}" text-anchor="${isLate ? "end" : "start"}">${escaped(text)}</text>`
  );
}

function drawScale(parts: {
  readonly fromMs: number;
  readonly toMs: number;
  readonly bottom: number;
  readonly x: (atMs: number) => number;
}): string {
  const { fromMs, toMs, bottom, x } = parts;
  const stepMs = STEPS_MS.find((ms) => (toMs - fromMs) / ms <= 12) ?? 300_000;
  const texts: string[] = [];
  for (let atMs = fromMs; atMs <= toMs; atMs += stepMs) {
    texts.push(
      `<text x="${round(x(atMs))}" y="${bottom + 20}" text-anchor="middle">${Math.round((atMs - fromMs) / 1_000)} s</text>`,
    );
  }
  return `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${bottom + 4}" y2="${bottom + 4}" stroke="#575f6b"/>${texts.join("")}`;
}

function round(value: number): string {
  return value.toFixed(1);
}
