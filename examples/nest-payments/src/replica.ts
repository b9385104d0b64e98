/** One replica of the service. Start as many as you like. */
import "reflect-metadata";
import type { AddressInfo } from "node:net";
import { BullModule, InjectQueue } from "@nestjs/bullmq";
import { BadRequestException, Body, Controller, Get, HttpCode, Inject, Module, Param, Post } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { CoordinationHealth, CoordinationModule } from "@x/nestjs";
import { logTo, Redlock } from "@x/redlock-core";
import type { Queue } from "bullmq";
import { pino } from "pino";
import { type Account, Accounts, type Change } from "./accounts.ts";
import { Books, Payments } from "./payments.ts";
import { redisUrl } from "./settings.ts";

@Controller("accounts/:accountId")
class AccountsController {
  @Inject(Accounts) private readonly accounts!: Accounts;
  @InjectQueue("payments") private readonly payments!: Queue<Change>;

  @Get()
  async read(@Param("accountId") accountId: string): Promise<Account> {
    return await this.accounts.read(accountId);
  }

  /** Answers when the payment is sure to be made; the same id is taken once. */
  @Post("payments")
  @HttpCode(202)
  async pay(@Param("accountId") accountId: string, @Body() body: unknown): Promise<void> {
    const change = changeOf(accountId, body);
    await this.payments.add("payment", change, { jobId: change.id });
  }

  /** Answers when it is made. */
  @Post("withdrawals")
  @HttpCode(204)
  async withdraw(@Param("accountId") accountId: string, @Body() body: unknown): Promise<void> {
    const { amount, ...change } = changeOf(accountId, body);
    await this.accounts.withdraw({ ...change, amount: -amount });
  }
}

@Controller("health")
class HealthController {
  @Inject(CoordinationHealth) private readonly health!: CoordinationHealth;

  @Get()
  async read(): Promise<object> {
    return { ...(await this.health.redlock()), ...this.health.workers(), ...this.health.election() };
  }
}

@Module({
  imports: [
    BullModule.forRoot({ connection: { url: redisUrl } }),
    BullModule.registerQueue({ name: "payments" }),
    CoordinationModule.forRoot({
      redlock: new Redlock(redisUrl),
      election: { name: "payments", leaseDuration: 2_000 },
    }),
  ],
  controllers: [AccountsController, HealthController],
  providers: [Accounts, Payments, Books],
})
class AppModule {}

function changeOf(accountId: string, body: unknown): Change {
  const { id, amount } = (body ?? {}) as Record<string, unknown>;
  if (typeof id !== "string" || id === "" || typeof amount !== "number" || !Number.isSafeInteger(amount))
    throw new BadRequestException("a change must have an id, and an amount in cents");
  return { id, accountId, amount };
}

// Without this line, the log of the module is Nest's.
logTo(pino(pino.destination(process.stderr.fd)));
const app = await NestFactory.create(AppModule, { logger: ["warn", "error", "fatal"] });
app.enableShutdownHooks();
await app.listen(Number(process.env["PORT"] ?? 0), "127.0.0.1");
const { port } = app.getHttpServer().address() as AddressInfo;
process.send?.({ url: `http://127.0.0.1:${port}` });
// Without the process that started it, it has no work.
process.once("disconnect", () => void app.close());
