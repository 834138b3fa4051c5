#!/usr/bin/env bash
# Puts the PipeOps agent on this machine: into a Kubernetes that it sets up (k3s,
# or k3d, kind, minikube), or into one that is there. `install.sh help` tells the
# rest; docs/cluster-owner/install.md has the rules and every setting.
#
# Made from scripts/install/*.sh by `go generate ./scripts/install`. Do not edit.
# Nothing happens before the last line, so half a download does nothing.

[ -n "${BASH_VERSION:-}" ] || {
  echo "install.sh: run it with bash: curl ... | bash" >&2
  exit 2
}
[ "${BASH_VERSINFO[0]}" -ge 4 ] || {
  echo "install.sh: bash $BASH_VERSION is too old, 4 or newer is needed (fix on macOS: brew install bash)" >&2
  exit 2
}

set -Eeuo pipefail
