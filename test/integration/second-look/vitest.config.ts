import { defineConfig } from "vitest/config";

/** The tests that `npm test` looks at twice, for the test of that. */
export default defineConfig({ test: { include: ["test/integration/second-look/*.look.ts"], pool: "forks" } });
