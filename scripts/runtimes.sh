#!/bin/sh
# Runs the smoke tests in Bun and Deno too. They come from the npm registry, into a folder that is thrown away: 200 MB that
# nobody else needs.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --prefix "$folder" --no-save --no-audit --no-fund --silent bun@1.4.5 deno@2.9.6
PATH="$folder/node_modules/.bin:$PATH" npx vitest run test/integration/runtimes.test.ts
