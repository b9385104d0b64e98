/** Pure: a terminal as SVG, with the text of each command and its answer in their colors. */
import { escaped } from "@x/test-support";

const FONT_SIZE = 13;
const CHAR = 7.8;
const LINE = 18;
const PADDING = 16;
const INKS: Readonly<Record<string, string>> = { 31: "#ff8a8a", 32: "#5fd394", 33: "#f0b95a", 90: "#8b95a3" };
const INK = "#e8ebf0";
const FRAME = "#5b6675";

/** Returns the picture of `text`, which contains line ends and ANSI color codes. */
export function terminalSvg(text: string): string {
  const lines = text.trimEnd().split("\n").map(runsOf);
  const columns = Math.max(...lines.map((runs) => runs.reduce((sum, run) => sum + run.text.length, 0)));
  const width = Math.ceil(columns * CHAR + 2 * PADDING);
  const height = lines.length * LINE + 2 * PADDING;
  const drawn = lines.flatMap((runs, row) => {
    const y = PADDING + (row + 0.75) * LINE;
    let column = 0;
    return runs.flatMap(({ text, ink }) => {
      const x = PADDING + column * CHAR;
      column += text.length;
      // Fonts differ, so each run gets the length that it has in a terminal.
      const length = `textLength="${(text.length * CHAR).toFixed(1)}" lengthAdjust="spacingAndGlyphs"`;
      return text.trim() === ""
        ? []
        : [`<text x="${x.toFixed(1)}" y="${y}" fill="${ink}" ${length} xml:space="preserve">${escaped(text)}</text>`];
    });
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="ui-monospace, monospace" font-size="${FONT_SIZE}">`,
    `<rect width="${width}" height="${height}" rx="6" fill="#101318"/>`,
    ...drawn,
    "</svg>",
    "",
  ].join("\n");
}

interface Run {
  readonly text: string;
  readonly ink: string;
}

/** Divides a line at changes of color, and separates frames from their content. */
function runsOf(line: string): readonly Run[] {
  let ink = INK;
  // oxlint-disable-next-line no-control-regex -- ANSI's codes begin with one
  return line.split(/(\u001b\[\d+m)/).flatMap((part) => {
    const [, code] = /^\u001b\[(\d+)m$/.exec(part) ?? []; // oxlint-disable-line no-control-regex
    if (code === undefined) return framed(part, ink);
    ink = INKS[code] ?? INK;
    return [];
  });
}

function framed(text: string, ink: string): readonly Run[] {
  return [...text.matchAll(/[\u2500-\u257f]+|[^\u2500-\u257f]+/g)].map(([part]) => ({
    text: part,
    ink: /[\u2500-\u257f]/.test(part) ? FRAME : ink,
  }));
}
