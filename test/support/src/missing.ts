/**
 * Programs that some tests need and `npm test` does not install, because they are large. Without one its tests are
 * skipped, and a line says so. Where `REQUIRE_TOOLS` is set, as in CI, they fail instead.
 */

/** Returns whether what `debianPackage` has is missing, for `skipIf`, and says what is not tested then. */
export function isMissing(debianPackage: string, isThere: boolean, untested: string): boolean {
  if (isThere) return false;
  const missing = `${untested}: ${debianPackage} is missing`;
  if ((process.env["REQUIRE_TOOLS"] ?? "") !== "") throw new Error(missing);
  process.stderr.write(`SKIPPED: ${missing} (apt-get install ${debianPackage})\n`);
  return true;
}
