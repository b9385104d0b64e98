/** The sources of the production scripts, for the conformance test. */

import { READ_RECORD } from "../../../packages/leader/src/record/scripts/read-record.lua.ts";
import { REQUEST_RESIGN } from "../../../packages/leader/src/record/scripts/request-resign.lua.ts";
import { WRITE_RECORD } from "../../../packages/leader/src/record/scripts/write-record.lua.ts";
import { CLAIM_TICKS } from "../../../packages/leader/src/scheduler/scripts/claim-ticks.lua.ts";
import { ORDER } from "../../../packages/leader/src/scheduler/scripts/order.lua.ts";
import { READ_TICKS } from "../../../packages/leader/src/scheduler/scripts/read-ticks.lua.ts";
import { REPEAT_REQUESTS } from "../../../packages/leader/src/scheduler/scripts/repeat-requests.lua.ts";
import { SETTLE_ENTRIES } from "../../../packages/leader/src/scheduler/scripts/settle-entries.lua.ts";
import { batchScript } from "../../../packages/redlock-core/src/scripts/batch.lua.ts";
import { forceReleaseScript } from "../../../packages/redlock-core/src/scripts/force-release.lua.ts";
import { inspectScript } from "../../../packages/redlock-core/src/scripts/inspect.lua.ts";

export const SCRIPTS = {
  batch: batchScript.source,
  forceRelease: forceReleaseScript.source,
  inspect: inspectScript.source,
  leader: {
    read: READ_RECORD.source,
    write: WRITE_RECORD.source,
    resign: REQUEST_RESIGN.source,
    claim: CLAIM_TICKS.source,
    order: ORDER.source,
    ticks: READ_TICKS.source,
    repeat: REPEAT_REQUESTS.source,
    settle: SETTLE_ENTRIES.source,
  },
} as const;
