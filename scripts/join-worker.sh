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

# Empty when the script comes through a pipe: inside a function Bash would name a file
# that there is not, and "beside it" would be the current directory, which any user may have written.
own_file="${BASH_SOURCE[0]:-}"

# beside prints the path of install.sh beside this script, if it is a file at all.
beside() {
  [[ -n $own_file && $own_file == "$0" && -f $0 && -r $0 ]] || return 1
  grep -q '^# Made from scripts/install/\*\.sh by ' "$0" || return 1
  local here
  here="$(cd "$(dirname "$0")" && pwd)" && [[ -f $here/install.sh ]] && echo "$here/install.sh"
}

# error_say CODE WHAT FIX prints an error as install.sh does.
error_say() {
  local page=https://github.com/pipeops/pipeops-vm-agent/blob/main/docs/reference/errors.md
  printf 'error: %s\n  fix: %s\n  code: %s %s#%s\n' "$2" "$3" "$1" "$page" "$(tr PO po <<<"$1")" >&2
}

# installer prints the path of install.sh: the one beside this script, or that of
# this release, had by fetch into DIR and verified.
installer() {
  local dir="$1" version="${PIPEOPS_VERSION:-$RELEASE_VERSION}"
  ! beside || return 0
  if [[ -n $RELEASE_INSTALL_SHA256 && $version != "$RELEASE_VERSION" && -z ${PIPEOPS_BUNDLE:-} && ${PIPEOPS_ALLOW_UNSIGNED:-} != yes ]]; then
    error_say PO-9111 "this script knows install.sh of $RELEASE_VERSION alone, not of $version" \
      "use this script of $version; PIPEOPS_ALLOW_UNSIGNED=yes goes by an unsigned checksum"
    return 6
  fi
  local path="github.com/pipeops/pipeops-vm-agent/releases/download/$version" name
  local wanted=(install.sh)
  [[ -n $RELEASE_INSTALL_SHA256 && $version == "$RELEASE_VERSION" ]] || wanted+=(SHA256SUMS)
  for name in "${wanted[@]}"; do
    fetch "$path/$name" "$dir/$name" || return 5
  done
  [[ ${#wanted[@]} -gt 1 ]] || echo "$RELEASE_INSTALL_SHA256  install.sh" >"$dir/SHA256SUMS"
  (cd "$dir" && grep ' install.sh$' SHA256SUMS | sha256sum -c --quiet) >&2 || {
    error_say PO-9112 "install.sh is not what its publisher made" "run it again; if it stays, do not use this source"
    return 6
  }
  echo "$dir/install.sh"
}

# fetch PATH FILE gets https://PATH where install.sh gets things: from the bundle,
# which has the scripts at its top, the mirror or the site itself. The CA that was
# given is trusted beside the system's.
fetch() {
  local from="https://$1" ca=() system
  if [[ -n ${PIPEOPS_BUNDLE:-} ]]; then
    cp "$PIPEOPS_BUNDLE/${1##*/}" "$2" && return
    error_say PO-9110 "the bundle $PIPEOPS_BUNDLE has no ${1##*/}" "PIPEOPS_BUNDLE is the folder that its archive unpacks to"
    return 1
  fi
  [[ -z ${PIPEOPS_MIRROR:-} ]] || from="${PIPEOPS_MIRROR%/}/$1"
  if [[ -n ${PIPEOPS_CA_FILE:-} ]]; then
    for system in "${CURL_CA_BUNDLE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem /dev/null; do
      [[ -z $system || ! -r $system ]] || break
    done
    cat "$system" "$PIPEOPS_CA_FILE" >"${2%/*}/ca.pem" || {
      error_say PO-9002 "PIPEOPS_CA_FILE=$PIPEOPS_CA_FILE cannot be read" "name a file of CA certificates, in PEM"
      return 1
    }
    ca=(--cacert "${2%/*}/ca.pem")
  fi
  curl --proto '=https' --tlsv1.2 -fsSL --retry 2 --connect-timeout 10 --speed-limit 1000 --speed-time 30 \
    ${ca[@]+"${ca[@]}"} -o "$2" "$from" || {
    error_say PO-9102 "$from cannot be downloaded" "put install.sh beside this script; if the certificate is not trusted, set PIPEOPS_CA_FILE"
    return 1
  }
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
  # The token continues through the environment.
  ((code != 0)) || NODE_TYPE=agent K3S_URL="$server" K3S_TOKEN="$token" bash "$script" install || code=$?
  rm -rf "$dir"
  return "$code"
}

main "$@"
