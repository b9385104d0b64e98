/**
 * This is loaded when a renewal thread starts, and apart: it alone has `import.meta`, which CommonJS, as of Jest,
 * cannot even parse.
 */

/** The thread's file ends in `.js` in the package, and in `.ts` from source, under a loader for TypeScript. */
export const THREAD_URL: URL = new URL(
  import.meta.url.endsWith(".ts") ? "./renewal-thread.ts" : "./renewal-thread.js",
  import.meta.url,
);
