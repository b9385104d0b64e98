/** How a lab's queues and workers reach their server: by ioredis' options, unless a test file has chosen a client. */
/** Options of ioredis. A client stands for them where BullMQ and a `Redlock` take either. */
export interface LabConnection {
  readonly path: string;
  readonly maxRetriesPerRequest: null;
}

export interface OpenConnection {
  readonly connection: LabConnection;
  /** BullMQ leaves a client to its owner. */
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
