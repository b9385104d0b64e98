import { defineConfig } from "vitest/config";

/** The tests that `npm test` runs twice, for the test of the second look. */
export default defineConfig({ test: { include: ["test/integration/second-look/*.look.ts"], pool: "forks" } });
