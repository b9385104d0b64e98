/**
 * Programs that some tests need and `npm test` does not install, because they are large. Without such a program its
 * tests are skipped, and a line reports this. If `REQUIRE_TOOLS` is set, as in CI, the tests fail instead.
 */

/** Returns whether the program of `debianPackage` is missing, for `skipIf`, and reports which tests are skipped. */
export function isMissing(debianPackage: string, isThere: boolean, untested: string): boolean {
  if (isThere) return false;
  const missing = `${untested}: ${debianPackage} is missing`;
  if ((process.env["REQUIRE_TOOLS"] ?? "") !== "") throw new Error(missing);
  process.stderr.write(`SKIPPED: ${missing} (apt-get install ${debianPackage})\n`);
  return true;
}
