/**
 * Loaded when a renewal thread starts, and apart: it alone has `import.meta`, which CommonJS, as of Jest, cannot even
 * parse.
 */

/** In the package `.js`; from source, under a loader for TypeScript, `.ts`. */
export const THREAD_URL: URL = new URL(
  import.meta.url.endsWith(".ts") ? "./renewal-thread.ts" : "./renewal-thread.js",
  import.meta.url,
);
