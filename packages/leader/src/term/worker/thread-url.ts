/**
 * Location of the renewal thread's file. Loaded only when a thread starts, because CommonJS, for example in Jest,
 * cannot parse `import.meta`.
 */

/** The thread's file ends in `.js` in the package, and in `.ts` from source, under a loader for TypeScript. */
export const THREAD_URL: URL = new URL(
  import.meta.url.endsWith(".ts") ? "./renewal-thread.ts" : "./renewal-thread.js",
  import.meta.url,
);
