/** Small charts: SVG paths of at most 61 points, the newest on the right. */
import { signal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { ceilingOf } from "../figures.ts";
import { clock, count, shortClock } from "../words.ts";

const MOST_POINTS = 61;
const STEP_MS = 15_000;

export interface ChartSeries {
  readonly name: string;
  /** The class with the colour. */
  readonly colour: string;
  /** The newest first. */
  readonly points: readonly (number | null)[];
}

/** Returns the path of a line, and of the area below it. A point that is not known interrupts both. */
function pathsOf(
  points: readonly (number | null)[],
  top: number,
  width: number,
  height: number,
): readonly [line: string, area: string] {
  const lines: string[][] = [];
  let run: string[] | undefined;
  const areas: string[] = [];
  points.forEach((value, at) => {
    if (value === null) {
      run = undefined;
      return;
    }
    const x = (width - (at / (MOST_POINTS - 1)) * width).toFixed(1);
    const y = (height - (value / top) * height).toFixed(1);
    if (run === undefined) lines.push((run = []));
    run.push(`${x} ${y}`);
  });
  for (const line of lines) {
    const [first = "", last = ""] = [line[0], line.at(-1)];
    areas.push(`M${line.join("L")}L${last.split(" ")[0]} ${height}L${first.split(" ")[0]} ${height}Z`);
  }
  return [lines.map((line) => `M${line.join("L")}`).join(""), areas.join("")];
}

const Paths = ({
  series,
  top,
  width,
  height,
}: {
  readonly series: readonly ChartSeries[];
  readonly top: number;
  readonly width: number;
  readonly height: number;
}) => (
  <>
    {series.map(({ name, colour, points }, at) => {
      // A second series without a figure would only draw over the base line.
      if (at > 0 && !points.some((each) => each !== null && each > 0)) return null;
      const [line, area] = pathsOf(points, top, width, height);
      return (
        <g key={name} class={colour}>
          <path class="area" d={area} />
          <path class="line" d={line} vector-effect="non-scaling-stroke" />
        </g>
      );
    })}
  </>
);

/** A chart of a row, without scales. */
export function Spark({ label, series }: { readonly label: string; readonly series: readonly ChartSeries[] }) {
  const top = Math.max(1, ...series.flatMap(({ points }) => points.map((each) => each ?? 0)));
  return (
    <svg class="spark" viewBox="0 0 150 34" preserveAspectRatio="none" role="img" aria-label={label}>
      <path class="base" d="M0 33.5H150" vector-effect="non-scaling-stroke" />
      <Paths series={series} top={top} width={150} height={33} />
    </svg>
  );
}

/** The point under the pointer, for all charts of the page: a shared cursor. */
const cursor = signal<number | undefined>(undefined);

interface ChartProps {
  readonly title: string;
  readonly label: string;
  readonly series: readonly ChartSeries[];
  /** The time of the newest point. */
  readonly at: number;
}

/** A chart with scales. The pointer shows the values of a moment, in all charts alike. */
export function Chart({ title, label, series, at }: ChartProps) {
  const top = ceilingOf(series.flatMap(({ points }) => points.map((each) => each ?? 0)));
  const shown = cursor.value;
  const times = useMemo(() => {
    const minutes = Math.floor(at / 180_000) * 180_000;
    return [0, 1, 2, 3, 4].map((each) => minutes - each * 180_000);
  }, [Math.floor(at / 180_000)]);
  const left = (time: number): string => `${100 - ((at - time) / ((MOST_POINTS - 1) * STEP_MS)) * 100}%`;
  const move = (event: PointerEvent & { readonly currentTarget: Element }): void => {
    const { left, width } = event.currentTarget.getBoundingClientRect();
    const place = Math.round((1 - (event.clientX - left) / width) * (MOST_POINTS - 1));
    cursor.value = place >= 0 && place < MOST_POINTS ? place : undefined;
  };
  return (
    <figure>
      <figcaption>
        <b>{title}</b>
        {shown !== undefined && <span>{clock(at - shown * STEP_MS)}:</span>}
        {series.map(({ name, colour, points }) => {
          const value = points[shown ?? 0];
          return (
            <span key={name} class="key">
              <i class={colour} />
              {value === null || value === undefined ? "not known" : count(value)} {name}
            </span>
          );
        })}
      </figcaption>
      <div
        class="plot"
        role="img"
        aria-label={label}
        onPointerMove={move}
        onPointerLeave={() => (cursor.value = undefined)}
      >
        {[0, 1, 2, 3].map((each) => (
          <span key={each}>
            <i class="yl" style={{ top: `${100 - (each / 3) * 100}%` }} />
            <span class="y" style={{ top: `${100 - (each / 3) * 100}%` }}>
              {count((top / 3) * each)}
            </span>
          </span>
        ))}
        <svg viewBox="0 0 500 116" preserveAspectRatio="none" aria-hidden="true">
          <Paths series={series} top={top} width={500} height={116} />
        </svg>
        {times.map((time) => (
          <span key={time} class="x" style={{ left: left(time) }}>
            {shortClock(time)}
          </span>
        ))}
        {shown !== undefined && <i class="cursor" style={{ left: `${100 - (shown / (MOST_POINTS - 1)) * 100}%` }} />}
      </div>
    </figure>
  );
}
