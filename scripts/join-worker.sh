#!/usr/bin/env bash
# Joins this machine to a k3s server as a worker:
#
#   bash join-worker.sh SERVER TOKEN        SERVER is a name, an address or https://HOST:PORT
#   bash join-worker.sh SERVER - <token     the token from standard input, out of the process list
#
# Made from scripts/install/*.sh by `go generate ./scripts/install`. Do not edit.

set -euo pipefail

RELEASE_VERSION="dev"
RELEASE_INSTALL_SHA256=""

# installer prints the path of install.sh: the one beside this script, or that of
# this release, downloaded into DIR and verified.
installer() {
  local here dir="$1" version="${PIPEOPS_VERSION:-$RELEASE_VERSION}"
  here="$(cd "$(dirname "${BASH_SOURCE[0]:-.}")" && pwd)"
  if [[ -f $here/install.sh ]]; then
    echo "$here/install.sh"
    return
  fi
  local path="github.com/pipeops/pipeops-vm-agent/releases/download/$version" name
  local wanted=(install.sh)
  [[ -n $RELEASE_INSTALL_SHA256 && $version == "$RELEASE_VERSION" ]] || wanted+=(SHA256SUMS)
  for name in "${wanted[@]}"; do
    curl --proto '=https' -fsSL --retry 2 -o "$dir/$name" "${PIPEOPS_MIRROR:-https:/}/$path/$name" || {
      echo "error: $name of $version cannot be downloaded (fix: put install.sh beside this script)" >&2
      return 5
    }
  done
  [[ ${#wanted[@]} -gt 1 ]] || echo "$RELEASE_INSTALL_SHA256  install.sh" >"$dir/SHA256SUMS"
  (cd "$dir" && grep ' install.sh$' SHA256SUMS | sha256sum -c --quiet) >&2 || {
    echo "error: install.sh is not what its publisher made (fix: run it again; if it stays, do not use this source)" >&2
    return 6
  }
  echo "$dir/install.sh"
}

main() {
  if [[ $# -ne 2 ]]; then
    echo "usage: join-worker.sh SERVER TOKEN    (on the server: sudo cat /var/lib/rancher/k3s/server/node-token)" >&2
    return 2
  fi
  local server="$1" token="$2" dir script code=0
  [[ $token != - ]] || IFS= read -r token
  [[ $server == https://* ]] || server="https://$server:6443"
  dir="$(mktemp -d)"
  script="$(installer "$dir")" || code=$?
  # The token goes on through the environment.
  ((code != 0)) || NODE_TYPE=agent K3S_URL="$server" K3S_TOKEN="$token" bash "$script" install || code=$?
  rm -rf "$dir"
  return "$code"
}

main "$@"
