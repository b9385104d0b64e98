/** The rights of Redis users, as the guide states them. */
import { readFileSync } from "node:fs";

export const rightsGuide: URL = new URL("../../../docs/locks/rights.md", import.meta.url);

/** Names of the users in the guide. */
export function usersInGuide(): readonly string[] {
  return [...text().matchAll(/^ACL SETUSER (\w+) /gm)].map(([, user = ""]) => user);
}

/**
 * Returns the arguments of `ACL SETUSER` after the name of a user: its block in the guide, which has the prefix `app:`.
 * With `isWithoutPrefix`, the patterns of the guide's row without a prefix replace the patterns of the block.
 */
export function rightsInGuide(
  user: string,
  { isWithoutPrefix = false }: { readonly isWithoutPrefix?: boolean } = {},
): readonly string[] {
  const [, block = ""] = new RegExp(`^ACL SETUSER ${user} ([^\`]+)\``, "m").exec(text()) ?? [];
  const rights = block.trim().split(/\s+/);
  if (!isWithoutPrefix) return rights;
  const [, row = ""] = new RegExp(`^\\| ${user} +\\| \`([^\`]+)\``, "m").exec(text()) ?? [];
  return [...rights.filter((right) => !/^[~&]/.test(right)), ...row.split(" ")];
}

function text(): string {
  return readFileSync(rightsGuide, "utf8");
}
