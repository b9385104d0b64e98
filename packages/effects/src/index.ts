/** This entry exports `Effects`, whose effects happen once, and `OutboxRelay`, which relays the outbox. */

export type { Database, DatabaseTransaction, PgPool, PostgresClient, Query, Rows } from "./database.ts";
export { type EffectFunction, Effects, type Transaction } from "./effects.ts";
export { EffectsError, type EffectsErrorCode, OutcomeUnknownError, TransactionEndedError } from "./errors.ts";
export type { EffectsEvents, OutboxBacklog, RelayEvents, StopListening } from "./events.ts";
export type {
  CleanupOptions,
  EffectLock,
  EffectsOptions,
  OnceOptions,
  OutboxRelayOptions,
  RelayElection,
  RelayTerm,
  ReplayOptions,
} from "./options.ts";
export { OutboxRelay } from "./outbox-relay.ts";
export type { EffectJob } from "./rules/inbox-id.ts";
export type { OutboxJobOptions } from "./rules/outbox-row.ts";
