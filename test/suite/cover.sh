#!/usr/bin/env bash
# The share of production code that tests run: in their own processes, and in the programs that they
# start (go help build, -cover). Which tests `make test` leaves out depends on what they cost, and must
# not change the share: the product's packages and the journeys run all of their tests.
set -euo pipefail
module=$(go list -m)
out=$PWD/bin/cover
whole="test/(e2e|demo|selfupdate|chart)(/|\$)"
rm -rf "$out"
mkdir -p "$out/tests" "$out/programs"
chmod 1777 "$out/programs" # pods, and services with their own users, write here as well

run() { # suite, packages
  PIPEOPS_TEST_SUITE=$1 GOCOVERDIR=$out/programs CGO_ENABLED=0 \
    go tool -modfile=internal/tools/gotestsum/go.mod gotestsum --format=pkgname-and-test-fails --format-hide-empty-pkg \
    --hide-summary=skipped --rerun-fails --packages="$2" -- -p 3 -trimpath -timeout=60m -vet=off -cover -coverpkg="$module/..." \
    -args -test.gocoverdir="$out/tests"
}
run all "$(go list ./... | grep -vE "^$module/test/" | xargs) $(go list ./test/... | grep -E "^$module/$whole" | xargs)"
run '' "$(go list ./test/... | grep -vE "^$module/$whole" | xargs)"

go tool covdata textfmt -i="$out/tests,$out/programs" -o="$out/all.txt"
grep -vE "^$module/(test|scripts|docs|internal/tools)/|/zz_generated" "$out/all.txt" >"$out/profile.txt"
# Lines, and not statements: a line that is in several blocks ran when one of them did.
total=$(awk -F '[:, ]' '/^mode:/ { next } {
  split($2, from, "."); split($3, to, ".")
  for (n = from[1]; n <= to[1]; n++) { at = $1 ":" n; lines[at] = lines[at] || $NF > 0 }
} END { for (at in lines) { all++; ran += lines[at] } printf "%.1f\n", 100 * ran / all }' "$out/profile.txt")
kept=$(grep -v '^#' test/suite/coverage.txt)
echo "line coverage of production code: $total % (test/suite/coverage.txt has $kept %)"
echo "line by line: go tool cover -html=$out/profile.txt"
# Which lines run depends on timing, a little.
awk -v now="$total" -v kept="$kept" 'BEGIN { exit !(now < kept - 0.1) }' || exit 0
echo "fix: test what is new, or say in test/suite/coverage.txt why it is lower"
exit 1
