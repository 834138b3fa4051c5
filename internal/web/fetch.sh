#!/bin/sh
# Fetches the scripts in assets/vendor again, from npm packages in pinned versions, and writes their
# checksums. The program embeds them, so a build needs neither npm nor a network.
set -eu
cd "$(dirname "$0")/assets/vendor"
HTMX=4.0.1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm pack --silent --pack-destination "$work" "htmx.org@$HTMX" >/dev/null
tar -xzf "$work/htmx.org-$HTMX.tgz" -C "$work"
cp "$work/package/dist/htmx.min.js" "$work/package/dist/ext/hx-sse.min.js" .
cp "$work/package/LICENSE" htmx.LICENSE
{
  echo "# htmx.org@$HTMX; made by internal/web/fetch.sh"
  sha256sum htmx.LICENSE htmx.min.js hx-sse.min.js
} >SHA256SUMS
