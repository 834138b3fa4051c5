#!/bin/sh
# Fetches the scripts in assets/vendor again, from npm packages in pinned versions, and writes their
# checksums. The site has them, so a build needs neither npm nor a network.
set -eu
cd "$(dirname "$0")/assets/vendor"
MERMAID=11.17.2
MINISEARCH=7.2.0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# fetch PACKAGE ARCHIVE
fetch() {
  npm pack --silent --pack-destination "$work" "$1" >/dev/null
  tar -xzf "$work/$2" -C "$work"
}
fetch "@mermaid-js/tiny@$MERMAID" "mermaid-js-tiny-$MERMAID.tgz"
cp "$work/package/dist/mermaid.tiny.js" mermaid.js
cp "$work/package/LICENSE" mermaid.LICENSE
fetch "minisearch@$MINISEARCH" "minisearch-$MINISEARCH.tgz"
grep -v '^//# sourceMappingURL=' "$work/package/dist/umd/index.js" >minisearch.js
cp "$work/package/LICENSE.txt" minisearch.LICENSE
{
  echo "# @mermaid-js/tiny@$MERMAID, minisearch@$MINISEARCH; made by docs/site/fetch.sh"
  sha256sum mermaid.LICENSE mermaid.js minisearch.LICENSE minisearch.js
} >SHA256SUMS
