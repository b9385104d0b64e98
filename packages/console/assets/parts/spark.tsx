/** Small charts: SVG paths of at most 61 points, the newest on the right. */

export const MOST_POINTS = 61;

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

export const Paths = ({
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
