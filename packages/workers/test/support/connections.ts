/**
 * The connections of a lab's queues and workers to their server: with ioredis' options, unless a test file has chosen a
 * client.
 */
/** Options of ioredis. Where BullMQ and a `Redlock` accept both, a client may replace the options. */
export interface LabConnection {
  readonly path: string;
  readonly maxRetriesPerRequest: null;
}

export interface OpenConnection {
  readonly connection: LabConnection;
  /** BullMQ does not close a client that it did not create. */
  readonly close: () => Promise<unknown>;
}

type Connect = (path: string) => OpenConnection;

const byOptions: Connect = (path) => ({
  connection: { path, maxRetriesPerRequest: null },
  close: () => Promise.resolve(),
});

let connect = byOptions;

export function connectBy(own: Connect): void {
  connect = own;
}

export function connectTo(path: string): OpenConnection {
  return connect(path);
}
