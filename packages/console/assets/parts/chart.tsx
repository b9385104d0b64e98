/** The charts of an opened queue. */
import { signal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { ceilingOf } from "../figures.ts";
import { clock, count, shortClock } from "../words.ts";
import { type ChartSeries, MOST_POINTS, Paths } from "./spark.tsx";

const STEP_MS = 15_000;

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
