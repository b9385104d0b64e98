/** The sources of the production scripts, for the conformance test. */

import { READ_RECORD } from "../../../packages/leader/src/record/scripts/read-record.lua.ts";
import { REQUEST_RESIGN } from "../../../packages/leader/src/record/scripts/request-resign.lua.ts";
import { WRITE_RECORD } from "../../../packages/leader/src/record/scripts/write-record.lua.ts";
import { ORDER } from "../../../packages/leader/src/scheduler/scripts/order.lua.ts";
import { READ_HISTORY } from "../../../packages/leader/src/scheduler/scripts/read-history.lua.ts";
import { READ_REGISTER } from "../../../packages/leader/src/scheduler/scripts/read-register.lua.ts";
import { WRITE_HISTORY } from "../../../packages/leader/src/scheduler/scripts/write-history.lua.ts";
import { WRITE_REGISTER } from "../../../packages/leader/src/scheduler/scripts/write-register.lua.ts";
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
    order: ORDER.source,
    readRegister: READ_REGISTER.source,
    writeRegister: WRITE_REGISTER.source,
    readHistory: READ_HISTORY.source,
    writeHistory: WRITE_HISTORY.source,
  },
} as const;
