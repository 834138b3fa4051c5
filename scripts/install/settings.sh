# ---------------------------------------------------------------- settings

# What is pinned. `make release` stamps the first four: RELEASE_KEYS are minisign
# public keys, separated by commas, one of which has to have signed another version, or
# as many as PIPEOPS_UPDATE_SIGNATURES says.
RELEASE_VERSION="dev"
RELEASE_SHA256SUMS=""
RELEASE_KEYS=""
RELEASE_CONTROL_PLANE_URL=""
RELEASE_K3S_VERSION="v1.36.4+k3s1"
# Kubernetes lets kubectl be one minor version newer or older than the cluster: those of kind and
# minikube below are 1.34, that of k3d is K3S_VERSION.
RELEASE_KUBECTL_VERSION="v1.35.5"
RELEASE_K3D_VERSION="v5.8.3"
RELEASE_KIND_VERSION="v0.30.0"
RELEASE_MINIKUBE_VERSION="v1.37.0"

RELEASES_URL="https://github.com/pipeops/pipeops-vm-agent/releases/download"
NEWEST_URL="https://github.com/pipeops/pipeops-vm-agent/releases/latest/download/version.txt"

# Exit codes, as docs/cluster-owner/install.md lists them.
EXIT_UNEXPECTED=1 EXIT_USAGE=2 EXIT_ROOT=3 EXIT_MACHINE=4 EXIT_NETWORK=5 EXIT_CHECKSUM=6
EXIT_CLUSTER=7 EXIT_DECISION=8 EXIT_AGENT=9 EXIT_BUSY=10 EXIT_REMAINS=11 EXIT_COMPONENTS=12 EXIT_CONTROL_PLANE=13

# The form of an enrolment token, as internal/controlapi has it.
TOKEN_FORM='^pipeops_[a-z2-7]{16}_[a-z2-7]{52}(\.[0-9a-f]{64})?(@.+)?$'

NAMESPACE="pipeops"
# Whether the control plane is on this machine, too: the command server.
with_control_plane=no

AGENT_SELECTOR="app.kubernetes.io/name=pipeops-agent"

# number TEXT sets REPLY to a number that arithmetic may read, without zeros before it; to 0,
# and answers 1, for what is none. Bash evaluates variables in (( )), and with them commands.
number() {
  REPLY=0
  [[ $1 =~ ^[0-9]{1,12}$ ]] || return 1
  REPLY="$((10#$1))"
}

# trimmed TEXT prints a text without the space around it.
trimmed() { sed '1s/^[[:space:]]*//; $s/[[:space:]]*$//' <<<"$1"; }

# without_cr NAME... removes a carriage return at the end of variables: files that were written on
# Windows leave one.
without_cr() {
  local setting
  for setting in "$@"; do
    [[ ${!setting:-} != *$'\r' ]] || printf -v "$setting" %s "${!setting%$'\r'}"
  done
}

# settings_load reads the environment. Secrets leave it again: what is started
# from here gets them only where it needs them.
settings_load() {
  without_cr "${!PIPEOPS_@}" K3S_VERSION CLUSTER_NAME CLUSTER_TYPE COMPONENTS PRESET KUBE_CONTEXT \
    NODE_TYPE K3S_URL K3S_TOKEN LOG_LEVEL AGENT_TOKEN AGENT_TOKEN_FILE
  RELEASE_KEYS="${RELEASE_KEYS:-${PIPEOPS_RELEASE_KEYS:-}}" # those of a release stay
  version_named="${PIPEOPS_VERSION:+yes}"
  PIPEOPS_VERSION="${PIPEOPS_VERSION:-$RELEASE_VERSION}"
  PIPEOPS_CONTROL_PLANE_URL="${PIPEOPS_CONTROL_PLANE_URL:-}"
  PIPEOPS_IMAGE="${PIPEOPS_IMAGE:-}"
  PIPEOPS_MANIFEST="${PIPEOPS_MANIFEST:-}"
  PIPEOPS_MIRROR="${PIPEOPS_MIRROR:-}"
  PIPEOPS_REGISTRY_MIRROR="${PIPEOPS_REGISTRY_MIRROR:-}"
  PIPEOPS_BUNDLE="${PIPEOPS_BUNDLE:-}"
  PIPEOPS_CA_FILE="${PIPEOPS_CA_FILE:-}"
  PIPEOPS_POLICY="${PIPEOPS_POLICY:-}"
  PIPEOPS_ADDRESS="${PIPEOPS_ADDRESS:-}"
  PIPEOPS_DOMAIN="${PIPEOPS_DOMAIN:-}"
  PIPEOPS_NAME_SERVICE="${PIPEOPS_NAME_SERVICE:-}"
  PIPEOPS_GATEWAY_CA="${PIPEOPS_GATEWAY_CA:-}"
  PIPEOPS_WAIT="${PIPEOPS_WAIT:-180}"
  # At once, and for each command: Bash would run what stands in a number.
  number "$PIPEOPS_WAIT" || fail "$EXIT_USAGE" PO-9002 "PIPEOPS_WAIT=$PIPEOPS_WAIT is not a number of seconds" \
    "it is how long to wait for Kubernetes and the agent" "unset PIPEOPS_WAIT"
  PIPEOPS_WAIT="$REPLY"
  if ! number "${PIPEOPS_UPDATE_SIGNATURES:-1}" || ((REPLY < 1)); then
    fail "$EXIT_USAGE" PO-9002 "PIPEOPS_UPDATE_SIGNATURES=$PIPEOPS_UPDATE_SIGNATURES is not a number of signatures" \
      "it is how many signatures another version needs" "unset PIPEOPS_UPDATE_SIGNATURES"
  fi
  PIPEOPS_UPDATE_SIGNATURES="$REPLY"
  K3S_VERSION="${K3S_VERSION:-$RELEASE_K3S_VERSION}"
  CLUSTER_NAME="${CLUSTER_NAME:-}"
  CLUSTER_TYPE="${CLUSTER_TYPE:-}"
  COMPONENTS="${COMPONENTS:-}"
  PRESET="${PRESET:-}"
  preset_named="${PRESET:+yes}"
  KUBE_CONTEXT="${KUBE_CONTEXT:-}"
  NODE_TYPE="${NODE_TYPE:-server}"
  K3S_URL="${K3S_URL:-}"
  LOG_LEVEL="${LOG_LEVEL:-}"
  AGENT_TOKEN="${AGENT_TOKEN:-}"
  K3S_TOKEN="${K3S_TOKEN:-}"
  AGENT_TOKEN_FILE="${AGENT_TOKEN_FILE:-}"
  if [[ -z $AGENT_TOKEN && -r $AGENT_TOKEN_FILE ]]; then
    AGENT_TOKEN="$(<"$AGENT_TOKEN_FILE")"
    without_cr AGENT_TOKEN
  fi
  export -n AGENT_TOKEN K3S_TOKEN K3S_URL K3S_VERSION
  # A token ends with the control plane's address: pipeops_ID_SECRET.FINGERPRINT@HOST:PORT
  if [[ -z $PIPEOPS_CONTROL_PLANE_URL && $AGENT_TOKEN == *@* ]]; then
    PIPEOPS_CONTROL_PLANE_URL="https://${AGENT_TOKEN##*@}"
    PIPEOPS_CONTROL_PLANE_URL="${PIPEOPS_CONTROL_PLANE_URL%%[[:space:]]*}"
  fi
  PIPEOPS_CONTROL_PLANE_URL="${PIPEOPS_CONTROL_PLANE_URL:-$RELEASE_CONTROL_PLANE_URL}"
  if ((EUID == 0)); then
    STATE_DIR="${PIPEOPS_INSTALL_STATE:-/var/lib/pipeops-install}"
    LOG_FILE="${PIPEOPS_INSTALL_LOG:-/var/log/pipeops-install.log}"
  else
    STATE_DIR="${PIPEOPS_INSTALL_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/pipeops-install}"
    LOG_FILE="${PIPEOPS_INSTALL_LOG:-$STATE_DIR/install.log}"
  fi
  # One of an earlier run stays.
  [[ -n $PRESET || ! -r $STATE_DIR/preset ]] || PRESET="$(<"$STATE_DIR/preset")"
  export KUBECACHEDIR="$STATE_DIR/kube-cache" # kubectl's, which would be in the user's home
}

# settings_check finds what is missing or malformed, all of it at once.
settings_check() {
  local wrong=()
  case "$NODE_TYPE" in
    server)
      [[ -n $AGENT_TOKEN || $with_control_plane == yes ]] || agent_token_kept || wrong+=("AGENT_TOKEN is not set (make one: pipeops-controlplane token create)")
      [[ -z $AGENT_TOKEN || $(trimmed "$AGENT_TOKEN") =~ $TOKEN_FORM ]] ||
        wrong+=("AGENT_TOKEN is not a token with a secret: it was cut off or changed, or is for a cluster that is there already (copy it again, or make one: pipeops-controlplane token create)")
      [[ -n $CLUSTER_NAME ]] || wrong+=("CLUSTER_NAME is not set (the name that the control plane lists, e.g. prod-1)")
      [[ -n $PIPEOPS_CONTROL_PLANE_URL ]] || wrong+=("PIPEOPS_CONTROL_PLANE_URL is not set, and no token carries it (https://HOST[:PORT])")
      ;;
    agent)
      [[ $K3S_URL == https://* ]] || wrong+=("K3S_URL is to be https://SERVER:6443")
      [[ -n $K3S_TOKEN ]] || wrong+=("K3S_TOKEN is not set (on the server: sudo cat /var/lib/rancher/k3s/server/node-token)")
      ;;
    *) wrong+=("NODE_TYPE=$NODE_TYPE is neither server nor agent") ;;
  esac
  [[ -z $CLUSTER_NAME || $CLUSTER_NAME =~ ^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$ ]] ||
    wrong+=("CLUSTER_NAME=$CLUSTER_NAME: use a-z, 0-9 and -, at most 63")
  [[ -z $PIPEOPS_CONTROL_PLANE_URL || $PIPEOPS_CONTROL_PLANE_URL =~ ^https://[^/]+/?$ ]] ||
    wrong+=("PIPEOPS_CONTROL_PLANE_URL=$PIPEOPS_CONTROL_PLANE_URL: is to be https://HOST[:PORT]")
  [[ $with_control_plane == no ]] || mapfile -t -O "${#wrong[@]}" wrong < <(server_check)
  case "$CLUSTER_TYPE" in
    "" | k3s | k3d | kind | minikube | existing) ;;
    *) wrong+=("CLUSTER_TYPE=$CLUSTER_TYPE: use k3s, k3d, kind, minikube or existing") ;;
  esac
  [[ $PIPEOPS_POLICY =~ ^(viewer|deploy|full)?$ ]] || wrong+=("PIPEOPS_POLICY=$PIPEOPS_POLICY: use viewer, deploy or full")
  preset_valid || wrong+=("PRESET=$PRESET: use one of ${PRESETS[*]}")
  components_valid || wrong+=("COMPONENTS=$COMPONENTS: use none, minimal, default or full, or some of ${COMPONENTS_KNOWN[*]}")
  local setting
  for setting in "${pinned_settings[@]}"; do
    [[ ${!setting:-} =~ ^([0-9a-f]{64})?$ ]] || wrong+=("$setting=${!setting}: is to be a SHA-256, 64 characters of 0-9 and a-f")
  done
  local file
  for file in "$AGENT_TOKEN_FILE" "$PIPEOPS_CA_FILE" "$PIPEOPS_MANIFEST"; do
    [[ -z $file || -r $file ]] || wrong+=("$file cannot be read")
  done
  ((${#wrong[@]} == 0)) || fail "$EXIT_USAGE" PO-9002 "the settings are not complete:$(printf '\n    - %s' "${wrong[@]}")" \
    "they come from the environment, which sudo does not pass on by itself" \
    "set them and run again; with sudo: sudo -E bash install.sh"
}
