#!/usr/bin/env bash
# Joins this machine to a k3s server as a worker:
#
#   bash join-worker.sh SERVER TOKEN        SERVER is a name, an address or https://HOST:PORT
#   bash join-worker.sh SERVER - <token     the token from standard input, out of the process list
#
# Made from scripts/install/*.sh by `go generate ./scripts/install`. Do not edit.

set -euo pipefail
