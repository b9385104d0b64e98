import { Inject } from "@nestjs/common";
import type { Tick } from "@x/leader/scheduler";
import { ExclusiveProcessor, ExclusiveWorkerHost, LeaderCron } from "@x/nestjs";
import type { JobLock } from "@x/workers";
import type { Job } from "bullmq";
import { Accounts, type Change } from "./accounts.ts";
import { replicaName } from "./settings.ts";

/** One job of an account at a time, in the order in which they were added, whichever replicas are alive. */
@ExclusiveProcessor<Change>("payments", {
  key: "accountId",
  resource: "account:",
  concurrency: 20,
  lockDuration: 2_000,
  stalledInterval: 1_000,
})
export class Payments extends ExclusiveWorkerHost<Change> {
  @Inject(Accounts) private readonly accounts!: Accounts;

  async process(job: Job<Change>, _token: string | undefined, _signal: AbortSignal, lock: JobLock): Promise<void> {
    await this.accounts.change(job.data, lock.fencingToken);
  }
}

/** At each second once, in one replica; the next leader makes up for what was missed. */
export class Books {
  @Inject(Accounts) private readonly accounts!: Accounts;

  @LeaderCron("* * * * * *", { name: "close-books", catchup: "all", catchupWindow: 60_000 })
  async close({ scheduledAt }: Tick): Promise<void> {
    await this.accounts.closeBooks(`${scheduledAt.toISOString()} ${replicaName}`);
  }
}
