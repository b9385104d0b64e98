/**
 * Pure: all SQL of this package, for PostgreSQL 13 and later.
 *
 * Each statement uses each parameter once and in order, as text or a number with a cast. So every client can send the
 * statement, even a client with other placeholders.
 */

export interface TableNames {
  readonly schema: string | undefined;
  readonly prefix: string;
}

/** All statements. */
export interface Statements {
  /** Creates tables and indexes, one statement each. */
  readonly create: readonly string[];
  /** Begins without a claim. Parameters: inbox ID, idle bound. A row: run the function. */
  readonly beginWithoutClaim: string;
  /** Claims one resource, then begins. Parameters: resource, token, idle bound, inbox ID. A row: run the function. */
  readonly beginWithClaim: string;
  /** Claims several resources, given as a JSON array, then begins. */
  readonly beginWithClaims: string;
  /** Reads the stored result. Parameter: inbox ID. */
  readonly result: string;
  /** Finds the newest claim above a token. Parameters: token, resources as a JSON array. */
  readonly newerClaim: string;
  /** Stores the result. Parameters: result, inbox ID. No row: the function has ended the transaction. */
  readonly finish: string;
  /** Begins a transaction without an inbox row. Parameter: idle bound. */
  readonly beginPlain: string;
  /** Returns a row if the open transaction has this ID. Parameter: the ID. */
  readonly finishPlain: string;
  /** Asks for the outcome of a transaction. Parameter: the transaction's ID. */
  readonly outcome: string;
  /** Stores outbox rows. Parameter: a JSON array of `[queue, name, data, opts]`. */
  readonly insertRows: string;
  /** Lists the queues that have rows to relay, by jumps along the partial index. */
  readonly openQueues: string;
  /** Reads the oldest rows of a queue. Parameters: queue, number of rows. */
  readonly head: string;
  readonly deleteRows: string;
  readonly markRows: string;
  /** Deletes kept rows. Parameters: age in ms, number of rows. */
  readonly forgetRows: string;
  /** Counts open rows. Parameter: the largest number that is counted. */
  readonly backlog: string;
  /** Parameters: queue, time in ms since the epoch. */
  readonly replay: string;
  /** Deletes old inbox rows. Parameters: age in ms, number of rows. */
  readonly cleanup: string;
}

export function statementsOf({ schema, prefix }: TableNames): Statements {
  const at = schema === undefined ? "" : `"${schema}".`;
  const [fence, inbox, outbox] = [`${at}${prefix}fence`, `${at}${prefix}inbox`, `${at}${prefix}outbox`];
  const setIdleBound = "set_config('idle_in_transaction_session_timeout', $IDLE::text, true)";
  const claim = (idle: string): string => `
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE f.token <= excluded.token
    RETURNING ${setIdleBound.replace("$IDLE", idle)})`;
  const older = (column: string): string =>
    `${column} < clock_timestamp() - $1::text::float8 * interval '1 millisecond'`;
  return {
    create: [
      `CREATE TABLE IF NOT EXISTS ${fence} (
  resource text COLLATE "C" PRIMARY KEY,
  token bigint NOT NULL
) WITH (fillfactor = 50)`,
      `CREATE TABLE IF NOT EXISTS ${inbox} (
  id text COLLATE "C" PRIMARY KEY,
  result text,
  created_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 90)`,
      `CREATE INDEX IF NOT EXISTS ${prefix}inbox_age ON ${inbox} (created_at)`,
      `CREATE TABLE IF NOT EXISTS ${outbox} (
  seq bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  queue text NOT NULL,
  name text NOT NULL,
  data text NOT NULL,
  opts text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  relayed_at timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000)`,
      `CREATE INDEX IF NOT EXISTS ${prefix}outbox_open ON ${outbox} (queue, seq) WHERE relayed_at IS NULL`,
      `CREATE INDEX IF NOT EXISTS ${prefix}outbox_kept ON ${outbox} (relayed_at) WHERE relayed_at IS NOT NULL`,
    ],
    beginWithoutClaim: `INSERT INTO ${inbox} (id) VALUES ($1::text) ON CONFLICT (id) DO NOTHING
      RETURNING ${setIdleBound.replace("$IDLE", "$2")} AS ok`,
    // Postgres plans this statement in half the time of `beginWithClaims`.
    beginWithClaim: `WITH claim AS (
    INSERT INTO ${fence} AS f (resource, token) VALUES ($1::text, $2::bigint)${claim("$3")}
    INSERT INTO ${inbox} (id) SELECT $4::text FROM claim ON CONFLICT (id) DO NOTHING RETURNING 1 AS ok`,
    // Claims in one order cannot deadlock.
    beginWithClaims: `WITH names AS (SELECT json_array_elements_text($1::text::json) AS r), claim AS (
    INSERT INTO ${fence} AS f (resource, token) SELECT r, $2::bigint FROM names ORDER BY r COLLATE "C"${claim("$3")}
    INSERT INTO ${inbox} (id) SELECT $4::text
    FROM (SELECT count(*) AS n FROM claim) c, (SELECT count(*) AS m FROM names) x WHERE n = m
    ON CONFLICT (id) DO NOTHING RETURNING 1 AS ok`,
    result: `SELECT result FROM ${inbox} WHERE id = $1::text`,
    newerClaim: `SELECT resource, token::text AS token FROM ${fence} f WHERE token > $1::bigint
      AND resource = ANY(ARRAY(SELECT json_array_elements_text($2::text::json))) ORDER BY f.token DESC LIMIT 1`,
    finish: `UPDATE ${inbox} SET result = $1::text
      WHERE id = $2::text AND xmin = pg_current_xact_id()::xid RETURNING 1 AS ok`,
    beginPlain: `SELECT pg_current_xact_id()::text AS xid, ${setIdleBound.replace("$IDLE", "$1")} AS idle`,
    finishPlain: "SELECT 1 AS ok WHERE pg_current_xact_id_if_assigned()::text = $1::text",
    outcome: "SELECT pg_xact_status($1::text::xid8) AS status",
    insertRows: `INSERT INTO ${outbox} (queue, name, data, opts)
      SELECT r->>0, r->>1, r->>2, r->>3 FROM json_array_elements($1::text::json) WITH ORDINALITY AS t(r, n) ORDER BY n`,
    openQueues: `WITH RECURSIVE q AS (
      (SELECT queue FROM ${outbox} WHERE relayed_at IS NULL ORDER BY queue LIMIT 1) UNION ALL
      SELECT (SELECT o.queue FROM ${outbox} o WHERE relayed_at IS NULL AND o.queue > q.queue ORDER BY queue LIMIT 1)
      FROM q WHERE q.queue IS NOT NULL) SELECT queue FROM q WHERE queue IS NOT NULL`,
    // `ORDER BY seq` would sort by the text in the result.
    head: `SELECT seq::text AS seq, id::text AS id, name, data, opts,
      (extract(epoch FROM created_at) * 1000)::bigint::text AS ms
      FROM ${outbox} o WHERE relayed_at IS NULL AND queue = $1::text ORDER BY o.seq LIMIT $2::int`,
    deleteRows: `DELETE FROM ${outbox} WHERE seq = ANY(string_to_array($1::text, ',')::bigint[])`,
    markRows: `UPDATE ${outbox} SET relayed_at = now() WHERE seq = ANY(string_to_array($1::text, ',')::bigint[])`,
    // The places of the rows make every plan short, even with wrong statistics of the table.
    forgetRows: `DELETE FROM ${outbox} WHERE ctid = ANY(ARRAY(
      SELECT ctid FROM ${outbox} WHERE relayed_at IS NOT NULL AND ${older("relayed_at")}
      ORDER BY relayed_at LIMIT $2::int))`,
    backlog: `SELECT count(*)::text AS rows,
      coalesce((extract(epoch FROM clock_timestamp() - min(created_at)) * 1000)::bigint, 0)::text AS ms
      FROM (SELECT created_at FROM ${outbox} WHERE relayed_at IS NULL LIMIT $1::int) o`,
    replay: `UPDATE ${outbox} SET relayed_at = NULL WHERE queue = $1::text
      AND relayed_at >= to_timestamp($2::text::float8 / 1000) RETURNING 1 AS ok`,
    cleanup: `DELETE FROM ${inbox} WHERE ctid = ANY(ARRAY(
      SELECT ctid FROM ${inbox} WHERE ${older("created_at")} ORDER BY created_at LIMIT $2::int)) RETURNING 1 AS ok`,
  };
}
