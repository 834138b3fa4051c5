#!/bin/sh
# Installs pipeops-runner in a CI job, and runs a command of it with the job's ID token. action.yml and
# the GitLab component set its environment; nothing is put into its text.
#
#   PIPEOPS_VERSION             version to install, such as v1.2.3
#   PIPEOPS_RELEASE_KEYS        with PIPEOPS_INSTALLER: public keys of the maintainers
#   PIPEOPS_INSTALLER           install.sh, if the job has it
#   PIPEOPS_INSTALL_SHA256      if it has not: checksum of the version's install.sh
#   PIPEOPS_RUNNER, PIPEOPS_CONTROL_PLANE_URL, PIPEOPS_CA_FINGERPRINT, PIPEOPS_OIDC_AUDIENCE
#                               where to exchange the token, as pipeops-runner reads them
#   PIPEOPS_COMMAND             words of the command; empty only installs
#   PIPEOPS_SUMMARY             true: the output goes to the job's summary, as Markdown
set -eu

fail() {
  printf 'error: %s\n  fix: %s\n' "$1" "$2" >&2
  exit 2
}

newline='
'
for name in PIPEOPS_VERSION PIPEOPS_RUNNER PIPEOPS_CONTROL_PLANE_URL PIPEOPS_CA_FINGERPRINT PIPEOPS_OIDC_AUDIENCE; do
  eval "value=\${$name:-}"
  case "$name=$value" in
    *"$newline"*) fail "$name has several lines" "give it one value" ;;
    PIPEOPS_VERSION= | PIPEOPS_RUNNER= | PIPEOPS_CONTROL_PLANE_URL=) fail "$name is empty" "set the input: docs/deployer/ci.md" ;;
  esac
done

# On GitHub, the folder is removed with the job. Elsewhere, its shell removes it.
dir=$(mktemp -d "${RUNNER_TEMP:-${TMPDIR:-/tmp}}/pipeops.XXXXXX")
[ -n "${GITHUB_PATH:-}" ] || trap 'rm -rf "$dir"' EXIT

if [ -n "${PIPEOPS_INSTALLER:-}" ]; then
  [ -n "${PIPEOPS_RELEASE_KEYS:-}" ] || fail "PIPEOPS_RELEASE_KEYS is empty" "set release-keys to the maintainers' public keys: docs/contributing/publishing.md"
else
  PIPEOPS_INSTALLER="$dir/install.sh"
  site="${PIPEOPS_MIRROR:-https://}"
  curl --proto '=https' --tlsv1.2 -fsSL --retry 2 --connect-timeout 10 --max-time 120 -o "$PIPEOPS_INSTALLER" \
    "${site%/}/github.com/pipeops/pipeops-vm-agent/releases/download/$PIPEOPS_VERSION/install.sh"
  printf '%s  %s\n' "${PIPEOPS_INSTALL_SHA256:-}" "$PIPEOPS_INSTALLER" | sha256sum -c - >&2 ||
    fail "install.sh of $PIPEOPS_VERSION does not have the checksum that install-sha256 gives" "set install-sha256 to its line in the version's SHA256SUMS"
fi
PIPEOPS_BIN_DIR="$dir" PIPEOPS_INSTALL_LOG="$dir/install.log" bash "$PIPEOPS_INSTALLER" runner >&2
PATH="$dir:$PATH"

if [ -n "${GITHUB_PATH:-}" ]; then # later steps of the job
  echo "$dir" >>"$GITHUB_PATH"
  for name in PIPEOPS_RUNNER PIPEOPS_CONTROL_PLANE_URL PIPEOPS_CA_FINGERPRINT PIPEOPS_OIDC_AUDIENCE; do
    eval "value=\${$name:-}"
    [ -z "$value" ] || printf '%s=%s\n' "$name" "$value" >>"$GITHUB_ENV"
  done
fi

# GitHub gives each command its own token. One token for all commands is exchanged once.
if [ -n "${PIPEOPS_OIDC_TOKEN:-}" ]; then
  export XDG_CONFIG_HOME="$dir" PIPEOPS_CONTEXT=ci
  pipeops-runner login --oidc --context ci >&2
fi

set -f # words are no patterns of file names
summary=''
[ "${PIPEOPS_SUMMARY:-}" != true ] || summary="${GITHUB_STEP_SUMMARY:-}"
format="$summary"
set --
for word in ${PIPEOPS_COMMAND:-}; do
  if [ "$word" = -- ] && [ -n "$format" ]; then
    set -- "$@" -o markdown
    format=''
  fi
  set -- "$@" "$word"
done
[ $# -gt 0 ] || exit 0
[ -z "$format" ] || set -- "$@" -o markdown
if [ -n "$summary" ]; then
  pipeops-runner "$@" >>"$summary"
else
  pipeops-runner "$@"
fi
