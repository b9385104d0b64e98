export type {
  DivisionOptions,
  NewJob,
  PartitionedQueueOptions,
  PartitionedWorkerOptions,
  ProducerKey,
} from "./options.ts";
export { PartitionedQueue } from "./partitioned-queue.ts";
export { PartitionedWorker } from "./partitioned-worker.ts";
export type { BulkJob } from "./producer.ts";
export type { MoveOptions } from "./repartition.ts";
export { partitionOf, queueName, serverOf } from "./rules/partition.ts";
