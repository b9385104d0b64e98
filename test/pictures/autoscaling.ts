/**
 * The number of worker slots that a queue with keys could use, and the queue's gauges, read from a real queue step by
 * step.
 */
import { escaped, startRedis, until } from "@x/test-support";
import { ExclusiveQueue, ExclusiveWorker } from "@x/workers";

export interface Step {
  /** Unfinished jobs that do not run. */
  readonly waiting: number;
  /** Jobs that run while there are more free slots than jobs. */
  readonly active: number;
  /** The gauge before the jobs of the step were started, plus the jobs that ran at that time. */
  readonly usable: number;
}

/** 60 jobs of one customer, then three jobs of each of six other customers. */
const KEYS: readonly string[] = [
  ...Array.from({ length: 60 }, () => "hot"),
  ...Array.from({ length: 18 }, (_, index) => `customer-${index % 6}`),
];

/** Returns the steps. Each job takes one step. There are more free slots than jobs, so every job that can run runs. */
export async function steps(): Promise<readonly Step[]> {
  await using server = await startRedis();
  const connection = { host: server.host, port: server.port };
  const queue = new ExclusiveQueue("imports", { connection, key: "customerId" });
  const ends = new Set<() => void>();
  const worker = new ExclusiveWorker<{ readonly customerId: string }>(
    "imports",
    () => new Promise<void>((resolve) => ends.add(resolve)),
    { connection, key: "customerId", concurrency: 2 * KEYS.length, autorun: false },
  );
  try {
    await queue.addBulk(KEYS.map((customerId) => ({ name: "import", data: { customerId } })));
    const { runnableKeys } = await queue.counts();
    const found: Step[] = [{ waiting: KEYS.length, active: 0, usable: runnableKeys }];
    void worker.run();
    for (let done = 0; done < KEYS.length; ) {
      await until(async () => {
        const [active, waiting] = [await queue.getActiveCount(), await queue.getWaitingCount()];
        return active > 0 && active === ends.size && waiting === 0;
      });
      const counts = await queue.counts();
      const { active, parked } = counts;
      found.push({ waiting: parked, active, usable: active + counts.runnableKeys });
      const running = [...ends];
      ends.clear();
      for (const end of running) end();
      done += running.length;
      await until(async () => (await queue.getCompletedCount()) === done);
    }
    return found;
  } finally {
    await worker.close(true);
    await queue.close();
  }
}

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [900, 300, 60, 24, 70, 44];
/** The usual setting of a scaler on waiting jobs: one slot for this number of jobs. */
const JOBS_PER_SLOT = 5;

interface Series {
  readonly name: string;
  readonly color: string;
  readonly values: readonly number[];
}

export function stepsSvg(found: readonly Step[]): string {
  const series: readonly Series[] = [
    {
      name: `slots for waiting jobs, one for ${JOBS_PER_SLOT}`,
      color: "#c2410c",
      values: found.map(({ waiting, active }) => Math.ceil((waiting + active) / JOBS_PER_SLOT)),
    },
    { name: "slots for active jobs and runnable keys", color: "#2f6f8f", values: found.map(({ usable }) => usable) },
  ];
  const top = Math.max(...series.flatMap(({ values }) => values));
  const x = (index: number): number => LEFT + (index / found.length) * (WIDTH - LEFT - RIGHT);
  const y = (value: number): number => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
  const points = ({ values }: Series): string =>
    values
      .flatMap((value, index) => [
        `${x(index).toFixed(1)},${y(value).toFixed(1)}`,
        `${x(index + 1).toFixed(1)},${y(value).toFixed(1)}`,
      ])
      .join(" ");
  const bars = found.map(
    ({ active }, index) =>
      `<rect x="${x(index).toFixed(1)}" y="${y(active).toFixed(1)}" width="${(x(1) - x(0) - 1).toFixed(1)}" height="${(y(0) - y(active)).toFixed(1)}" fill="#b9d3df"/>`,
  );
  const legend = ["#b9d3df", ...series.map(({ color }) => color)].map((color, index) => {
    const name = ["jobs that run, with free slots for all", ...series.map((each) => each.name)][index] ?? "";
    return `<rect x="${LEFT + index * 285}" y="40" width="12" height="12" fill="${color}"/><text x="${LEFT + 18 + index * 285}" y="50">${escaped(name)}</text>`;
  });
  const ticks = [0, Math.round(top / 2), top].map(
    (value) =>
      `<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(value).toFixed(1)}" y2="${y(value).toFixed(1)}" stroke="#d5dae1"/><text x="${LEFT - 8}" y="${(y(value) + 4).toFixed(1)}" text-anchor="end" fill="#5b6675">${value}</text>`,
  );
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" font-family="sans-serif" font-size="12">`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#ffffff"/>`,
    '<text x="12" y="24" font-size="14" font-weight="bold">60 jobs of one customer and 3 of each of six others: slots that the queue can use</text>',
    ...legend,
    ...ticks,
    ...bars,
    ...series.map((each) => `<polyline points="${points(each)}" fill="none" stroke="${each.color}" stroke-width="2"/>`),
    `<text x="${LEFT}" y="${HEIGHT - 16}" fill="#5b6675">all jobs wait</text>`,
    `<text x="${WIDTH - RIGHT}" y="${HEIGHT - 16}" text-anchor="end" fill="#5b6675">each step is the length of a job: ${found.length - 1} steps</text>`,
    "</svg>",
    "",
  ].join("\n");
}
