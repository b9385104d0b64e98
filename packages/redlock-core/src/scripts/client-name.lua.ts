import { defineScript, type NodeScript } from "../rules/script.ts";

/** Stores the name of a client. KEYS[1] is its key, ARGV[1] the name, ARGV[2] the lifetime in ms. Replies 1. */
export const keepNameScript: NodeScript = defineScript(
  "keep-client-name",
  /* lua */ `
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
`,
);

/** Reads the names of clients by their keys. Replies a list, with '' for unknown names. */
export const readNamesScript: NodeScript = defineScript(
  "read-client-names",
  /* lua */ `
local names = {}
for i, key in ipairs(KEYS) do names[i] = redis.call('GET', key) or '' end
return names
`,
);
