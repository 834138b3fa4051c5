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

# ---------------------------------------------------------------- presets
# Resources of the agent and components by one word (docs/production/sizing.md). A test compares them
# with those of the agent's chart. The choice is kept for the next run.

PRESETS=(default minimum production full-monitoring)
# Less memory than this is remarked: a machine of 4 GiB, and one of 8 GiB, which show somewhat less.
MEMORY_PRODUCTION_MB=3700 MEMORY_FULL_MB=7500

preset_valid() { [[ -z $PRESET || " ${PRESETS[*]} " == *" $PRESET "* ]]; }

# preset_keep: settings_load reads it.
preset_keep() {
  [[ -z $PRESET ]] || printf '%s\n' "$PRESET" >"$STATE_DIR/preset"
}

# preset_components prints the set of components of the preset.
preset_components() {
  case "$PRESET" in
    minimum) echo minimal ;;
    full-monitoring) echo full ;;
    *) echo default ;;
  esac
}

# preset_resources prints the agent's CPU and memory requests, its memory limit and GOMEMLIMIT;
# nothing for those of the manifest.
preset_resources() {
  case "$PRESET" in
    minimum) echo 10m 32Mi 160Mi 116MiB ;;
    production | full-monitoring) echo 50m 64Mi 256Mi 192MiB ;;
  esac
}

# preset_apply puts the resources into the agent's manifest.
preset_apply() {
  local cpu request limit soft
  read -r cpu request limit soft < <(preset_resources) || return 0
  awk -v cpu="$cpu" -v request="$request" -v limit="$limit" -v soft="$soft" '
    /^          resources:$/ {inside = 1}
    inside && !/^           / && !/^          resources:$/ {inside = 0}
    inside && /^            limits:$/ {request = limit}
    inside && /^              cpu: / {sub(/cpu: .*/, "cpu: " cpu)}
    inside && /^              memory: / {sub(/memory: .*/, "memory: " request)}
    named {sub(/value: .*/, "value: " soft); named = 0}
    /^            - name: GOMEMLIMIT$/ {named = 1}
    {print}' "$1" >"$1.new"
  mv -f "$1.new" "$1"
}

# ---------------------------------------------------------------- log, errors

log_to="" # empty until log_open
AGENT_TOKEN="${AGENT_TOKEN:-}" K3S_TOKEN="${K3S_TOKEN:-}"
dry_run=no

# log_open starts this run's part of the log file.
log_open() {
  local dir="${LOG_FILE%/*}"
  if mkdir -p "$dir" 2>/dev/null && (umask 077 && : >>"$LOG_FILE") 2>/dev/null; then
    log_to="$LOG_FILE"
    log "---- $command $PIPEOPS_VERSION, as $(id -un), bash $BASH_VERSION"
  else
    say "note: $LOG_FILE cannot be written, so there is no log" >&2
  fi
}

# redact sets REPLY to a text without secrets.
redact() {
  REPLY="$*"
  ((${#AGENT_TOKEN} < 8)) || REPLY="${REPLY//"$AGENT_TOKEN"/[AGENT_TOKEN]}"
  ((${#K3S_TOKEN} < 8)) || REPLY="${REPLY//"$K3S_TOKEN"/[K3S_TOKEN]}"
}

# log writes to the log file alone.
log() {
  [[ -n $log_to ]] || return 0
  redact "$*"
  printf '%(%Y-%m-%dT%H:%M:%S%z)T %4ss  %s\n' -1 "$SECONDS" "$REPLY" >>"$log_to"
}

# say tells the person, and the log.
say() {
  redact "$*"
  printf '%s\n' "$REPLY"
  log "$REPLY"
}

step() { say "==> $*"; }

# would says what a dry run leaves out; it answers whether this is one.
would() {
  [[ $dry_run == yes ]] || return 1
  say "  would $*"
}

# ERRORS is the page about every code, which internal/problem/catalog makes.
ERRORS=https://github.com/pipeops/pipeops-vm-agent/blob/main/docs/reference/errors.md

# fail EXIT CODE WHAT WHY FIX ends the script.
fail() {
  local text="error: $3
  why: $4
  fix: $5
  code: $2 $ERRORS#${2,,}"
  [[ -z $log_to ]] || text+="
  log: $log_to"
  say "$text" >&2
  failed=yes
  exit "$1"
}

# logged runs a command with all that it prints going into the log, and answers
# its exit code. The end of what it printed is in last_output.
last_output=""
logged() {
  log "+ $*"
  local line code=0 text
  text="$("$@" 2>&1 </dev/null)" || code=$?
  last_output=""
  [[ -n $text ]] || return "$code"
  while IFS= read -r line; do
    log "  | $line"
  done <<<"$text"
  redact "$(tail -n 5 <<<"$text")"
  last_output="$REPLY"
  return "$code"
}

# on_error is for failures without their own message.
on_error() {
  fail "$EXIT_UNEXPECTED" PO-9001 "line $1: \`$2\` failed unexpectedly" "this is a bug, or a machine that was not tried yet" \
    "run it again, and if it stays: report it with the log"
}

failed=no
tmp_dir=""
on_exit() {
  local code=$?
  [[ ${components_running:-no} == no ]] || components_end # its rights end with this run
  [[ -z $tmp_dir ]] || rm -rf "$tmp_dir"
  lock_release
  log "---- ends with exit code $code"
}

on_signal() {
  say "interrupted; run it again to go on where it stopped" >&2
  failed=yes
  exit "$1"
}

traps_set() {
  trap on_exit EXIT
  trap '[[ $failed == yes || $BASH_SUBSHELL -gt 0 ]] || on_error "$LINENO" "$BASH_COMMAND"' ERR
  trap 'on_signal 130' INT
  trap 'on_signal 143' TERM HUP
}

# ask puts a yes-or-no question, which only a terminal can answer.
ask() {
  local answer=""
  [[ $assume_yes == no ]] || return 0
  [[ ${facts[TERMINAL]:-no} == yes ]] || return 1
  printf '%s [y/N] ' "$1" >/dev/tty
  read -r answer </dev/tty
  log "asked: $1 answered: $answer"
  [[ $answer == [yY]* ]]
}
assume_yes=no

# ---------------------------------------------------------------- facts
# What this machine is, as KEY=value. Whatever decides looks at nothing else, so
# a machine can be recorded with `cluster-info -o env` and replayed with --facts.

declare -A facts=()

# FACTS_ROOT lets tests look at the files of another machine.
FACTS_ROOT="${FACTS_ROOT:-}"

fact() { facts[$1]="$2"; }

facts_collect() {
  facts=()
  facts_system
  facts_init
  facts_virtualization
  facts_confinement
  facts_resources
  facts_network
  facts_kubernetes
  facts_wanted
}

facts_system() {
  case "${FACTS_UNAME:-$(uname -s)}" in
    Linux) fact OS linux ;;
    Darwin) fact OS macos ;;
    *) fact OS other ;;
  esac
  case "${FACTS_MACHINE:-$(uname -m)}" in
    x86_64 | amd64) fact ARCH amd64 ;;
    aarch64 | arm64) fact ARCH arm64 ;;
    *) fact ARCH "$(uname -m)" ;;
  esac
  fact DISTRO unknown
  fact DISTRO_VERSION ""
  local key value
  if [[ -r $FACTS_ROOT/etc/os-release ]]; then
    while IFS='=' read -r key value; do
      value="${value%\"}" value="${value#\"}"
      case "$key" in
        ID) fact DISTRO "$value" ;;
        VERSION_ID) fact DISTRO_VERSION "$value" ;;
      esac
    done <"$FACTS_ROOT/etc/os-release"
  elif [[ ${facts[OS]} == macos ]]; then
    fact DISTRO macos
    fact DISTRO_VERSION "$(sw_vers -productVersion 2>/dev/null || true)"
  fi
  fact PACKAGE_MANAGER none
  local manager
  for manager in apt-get dnf yum zypper apk brew; do
    if at_root "$manager"; then
      fact PACKAGE_MANAGER "$manager"
      break
    fi
  done
}

# at_root finds a program, on this machine or below FACTS_ROOT.
at_root() {
  [[ -n $FACTS_ROOT ]] || {
    command -v "$1" >/dev/null 2>&1
    return
  }
  [[ -e $FACTS_ROOT/usr/bin/$1 || -e $FACTS_ROOT/sbin/$1 || -e $FACTS_ROOT/usr/local/bin/$1 ]]
}

facts_init() {
  fact INIT none
  if [[ -d $FACTS_ROOT/run/systemd/system ]]; then
    fact INIT systemd
  elif [[ -e $FACTS_ROOT/sbin/openrc-run && -d $FACTS_ROOT/run/openrc ]]; then
    fact INIT openrc
  elif [[ ${facts[OS]} == macos ]]; then
    fact INIT launchd
  fi
}

# facts_virtualization tells which hypervisor is below, by systemd's names for them.
facts_virtualization() {
  local found=""
  if [[ ${facts[OS]} == macos ]]; then
    fact VIRTUALIZATION none
    [[ $(sysctl -n kern.hv_vmm_present 2>/dev/null) != 1 ]] || fact VIRTUALIZATION vm-other
    return 0
  fi
  if [[ -z $FACTS_ROOT ]] && command -v systemd-detect-virt >/dev/null 2>&1; then
    found="$(systemd-detect-virt --vm 2>/dev/null || true)" # it answers 1 for "none"
  fi
  fact VIRTUALIZATION "${found:-$(virtualization_by_hardware)}"
}

# virtualization_by_hardware goes by what the firmware calls the machine, as
# systemd's src/basic/virt.c does, and then by the processor.
virtualization_by_hardware() {
  local file name=""
  for file in sys_vendor product_name; do
    [[ ! -r $FACTS_ROOT/sys/class/dmi/id/$file ]] || name+="$(tr -d '\0' <"$FACTS_ROOT/sys/class/dmi/id/$file")/"
  done
  case "$name" in
    "Amazon EC2/"*.metal*) echo none ;; # the vendor's name is on its bare machines too
    "Amazon EC2/"*) echo amazon ;;
    *"Google Compute Engine"*) echo google ;;
    *KVM* | *OpenStack* | *KubeVirt*) echo kvm ;;
    *QEMU*) echo qemu ;;
    *VMware* | VMW*) echo vmware ;;
    *VirtualBox* | "innotek GmbH"*) echo oracle ;;
    *Xen*) echo xen ;;
    *Bochs*) echo bochs ;;
    *Parallels*) echo parallels ;;
    *BHYVE*) echo bhyve ;;
    *"Apple Virtualization"*) echo apple ;;
    "Microsoft Corporation/Virtual Machine"*) echo microsoft ;;
    *) if grep -qw '^flags.* hypervisor' "$FACTS_ROOT/proc/cpuinfo" 2>/dev/null; then echo vm-other; else echo none; fi ;;
  esac
}

# facts_confinement tells what is around: WSL, a container, SELinux.
facts_confinement() {
  fact WSL no
  fact CONTAINER none
  fact USER_NAMESPACE no
  fact PRIVILEGED yes
  fact SELINUX disabled
  [[ ${facts[OS]} == linux ]] || return 0
  if grep -qi microsoft "$FACTS_ROOT/proc/sys/kernel/osrelease" 2>/dev/null; then
    fact WSL 1
    ! grep -qi wsl2 "$FACTS_ROOT/proc/sys/kernel/osrelease" || fact WSL 2
  fi
  if [[ -e $FACTS_ROOT/.dockerenv ]]; then
    fact CONTAINER docker
  elif [[ -e $FACTS_ROOT/run/.containerenv ]]; then
    fact CONTAINER podman
  elif [[ -r $FACTS_ROOT/run/systemd/container ]]; then
    fact CONTAINER "$(<"$FACTS_ROOT/run/systemd/container")"
  elif [[ -r $FACTS_ROOT/proc/1/environ ]]; then
    local entry
    while IFS= read -r -d '' entry; do
      [[ $entry != container=?* ]] || fact CONTAINER "${entry#container=}"
    done <"$FACTS_ROOT/proc/1/environ"
  fi
  [[ ${facts[CONTAINER]} != wsl ]] || fact CONTAINER none
  local map=""
  [[ ! -r $FACTS_ROOT/proc/self/uid_map ]] || read -r map <"$FACTS_ROOT/proc/self/uid_map"
  [[ -z $map || $map =~ ^[[:space:]]*0[[:space:]]+0[[:space:]]+4294967295 ]] || fact USER_NAMESPACE yes
  local capabilities
  capabilities="$(sed -n 's/^CapBnd:[[:space:]]*//p' "$FACTS_ROOT/proc/1/status" 2>/dev/null || true)"
  [[ ! $capabilities =~ ^[0-9a-f]{1,16}$ ]] || (((16#$capabilities >> 21) & 1)) || fact PRIVILEGED no # CAP_SYS_ADMIN
  if [[ -r $FACTS_ROOT/sys/fs/selinux/enforce ]]; then
    fact SELINUX permissive
    [[ $(<"$FACTS_ROOT/sys/fs/selinux/enforce") != 1 ]] || fact SELINUX enforcing
  fi
}

facts_resources() {
  fact ROOT no
  ((EUID != 0)) || fact ROOT yes
  fact TERMINAL no
  if [[ -t 1 ]] && (: </dev/tty) 2>/dev/null; then fact TERMINAL yes; fi
  if [[ ${facts[OS]} == macos ]]; then
    number "$(sysctl -n hw.memsize)" || true # 12 digits are a terabyte
    fact MEMORY_MB "$((REPLY / 1048576))"
    fact CPUS "$(sysctl -n hw.ncpu)"
  else
    fact MEMORY_MB "$(awk '/^MemTotal:/ {print int($2 / 1024)}' "$FACTS_ROOT/proc/meminfo" 2>/dev/null || echo 0)"
    fact CPUS "$(awk '/^processor/ {n++} END {print n + 0}' "$FACTS_ROOT/proc/cpuinfo" 2>/dev/null || echo 0)"
  fi
  local dir="$FACTS_ROOT/var/lib"
  [[ -d $dir ]] || dir=/
  fact DISK_FREE_MB "$(df -Pk "$dir" | awk 'NR == 2 {print int($4 / 1024)}')"
  fact CGROUPS none
  if [[ -r $FACTS_ROOT/sys/fs/cgroup/cgroup.controllers ]]; then
    fact CGROUPS v2
    grep -qw memory "$FACTS_ROOT/sys/fs/cgroup/cgroup.controllers" || fact CGROUPS v2-without-memory
  elif [[ -r $FACTS_ROOT/proc/cgroups ]]; then
    fact CGROUPS v1
    awk '$1 == "memory" && $4 == 1 {on = 1} END {exit !on}' "$FACTS_ROOT/proc/cgroups" || fact CGROUPS v1-without-memory
  fi
}

# facts_network records the address, which of the wanted ports are in use, and the proxy.
facts_network() {
  local used="" port hex
  fact ADDRESS "$(ip -o route get 192.0.2.1 2>/dev/null | sed -n 's/.* src \([^ ]*\).*/\1/p')"
  for port in $K3S_PORTS $CONTROL_PLANE_PORTS; do
    printf -v hex '%04X' "$port"
    # One of them is missing where there is no IPv6, or nothing else.
    if { cat "$FACTS_ROOT"/proc/net/tcp "$FACTS_ROOT"/proc/net/tcp6 2>/dev/null || true; } |
      awk -v port=":$hex" '$4 == "0A" && substr($2, length($2) - 4) == port {found = 1} END {exit !found}'; then
      used+="${used:+,}$port"
    fi
  done
  if [[ ,$used, != *,443,* ]] && { cat "$FACTS_ROOT"/proc/net/udp "$FACTS_ROOT"/proc/net/udp6 2>/dev/null || true; } |
    awk '$4 == "07" && substr($2, length($2) - 4) == ":01BB" {found = 1} END {exit !found}'; then
    used+="${used:+,}443" # HTTP/3
  fi
  fact PORTS_IN_USE "$used"
  local proxy="${HTTPS_PROXY:-${https_proxy:-}}"
  fact PROXY "${proxy##*@}" # without an account
}

facts_kubernetes() {
  local found="" name path
  for path in k3s:/usr/local/bin/k3s rke2:/usr/local/bin/rke2 kubeadm:/etc/kubernetes/kubelet.conf microk8s:/snap/bin/microk8s k0s:/usr/local/bin/k0s; do
    name="${path%%:*}"
    [[ ! -e $FACTS_ROOT${path#*:} ]] || found+="${found:+,}$name"
  done
  fact KUBERNETES "$found"
  fact K3S_OURS no
  ! state_has k3s server || fact K3S_OURS server
  ! state_has k3s agent || fact K3S_OURS agent
  # What root has installed, an ordinary user cannot read of.
  [[ ${facts[ROOT]} == yes || ! -d $FACTS_ROOT/var/lib/pipeops-install ]] || fact K3S_OURS server
  fact CONTROL_PLANE no
  [[ ! -e $FACTS_ROOT/var/lib/pipeops-controlplane ]] || fact CONTROL_PLANE other
  ! state_has controlplane service || fact CONTROL_PLANE yes
  fact K3S_RUNS no
  [[ ${facts[K3S_OURS]} == no ]] || ! k3s_active "${facts[K3S_OURS]}" || fact K3S_RUNS yes
  fact KUBECONFIG_CONTEXT ""
  local file="${KUBECONFIG:-${HOME:-/root}/.kube/config}"
  if [[ -r ${file%%:*} ]]; then
    fact KUBECONFIG_CONTEXT "$(sed -n 's/^current-context:[[:space:]]*"\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "${file%%:*}")"
  fi
  fact DOCKER no
  if at_root docker; then
    fact DOCKER stopped
    [[ ! -S $FACTS_ROOT/var/run/docker.sock ]] || fact DOCKER running
    [[ ${facts[OS]} != macos ]] || ! docker info >/dev/null 2>&1 || fact DOCKER running
  fi
  local tools="" tool
  for tool in k3d kind minikube kubectl; do
    ! at_root "$tool" || tools+="${tools:+,}$tool"
  done
  fact TOOLS "$tools"
}

# facts_wanted is what the user has said.
facts_wanted() {
  fact WANT_TYPE "$CLUSTER_TYPE"
  fact WANT_ROLE "$NODE_TYPE"
  fact WANT_CONTEXT "$KUBE_CONTEXT"
  fact WANT_PRESET "$PRESET"
  fact WANT_CONTROL_PLANE "$with_control_plane"
}

facts_keys=(OS ARCH DISTRO DISTRO_VERSION PACKAGE_MANAGER INIT VIRTUALIZATION WSL CONTAINER USER_NAMESPACE PRIVILEGED SELINUX ROOT TERMINAL
  MEMORY_MB CPUS DISK_FREE_MB CGROUPS ADDRESS PORTS_IN_USE PROXY KUBERNETES K3S_OURS K3S_RUNS CONTROL_PLANE KUBECONFIG_CONTEXT DOCKER TOOLS
  WANT_TYPE WANT_ROLE WANT_CONTEXT WANT_PRESET WANT_CONTROL_PLANE)

# fact_sound KEY VALUE says whether a recorded value is one that this script could have written.
fact_sound() {
  local words='^[A-Za-z0-9 ._:/,@+=%()~-]{0,512}$'
  case "$1" in
    MEMORY_MB | DISK_FREE_MB | CPUS) [[ $2 =~ ^[0-9]{1,12}$ ]] ;;
    PORTS_IN_USE) [[ $2 =~ ^[0-9,]{0,64}$ ]] ;;
    USER_NAMESPACE | PRIVILEGED | ROOT | TERMINAL | K3S_RUNS | WANT_CONTROL_PLANE) [[ $2 == yes || $2 == no ]] ;;
    *) [[ " ${facts_keys[*]} " == *" $1 "* && $2 =~ $words ]] ;;
  esac
}

# facts_replay reads recorded facts instead of looking. Any user may have written the file.
facts_replay() {
  local key value line=0
  facts=()
  while IFS='=' read -r key value; do
    line=$((line + 1))
    [[ -n $key && $key != '#'* ]] || continue
    if ! [[ $key =~ ^[A-Z0-9_]+$ ]] || ! fact_sound "$key" "$value"; then
      usage_error "line $line of $1 is not a fact: record it with install.sh cluster-info -o env"
    fi
    fact "$key" "$value"
  done <"$1"
  facts_wanted_override
}

# facts_wanted_override: what is said now goes before what was recorded.
facts_wanted_override() {
  [[ -z $CLUSTER_TYPE ]] || fact WANT_TYPE "$CLUSTER_TYPE"
  [[ -z $KUBE_CONTEXT ]] || fact WANT_CONTEXT "$KUBE_CONTEXT"
  [[ -z $PRESET ]] || fact WANT_PRESET "$PRESET"
  [[ $with_control_plane == no ]] || fact WANT_CONTROL_PLANE yes
  [[ $NODE_TYPE == server ]] || fact WANT_ROLE "$NODE_TYPE"
}

# json_string sets REPLY to a text as JSON has it, in one line.
json_string() {
  local text="${1//\\/\\\\}"
  text="${text//\"/\\\"}" text="${text//$'\n'/\\n}"
  REPLY="\"${text//[[:cntrl:]]/ }\""
}

facts_print() {
  local key separator=""
  case "$1" in
    env) for key in "${facts_keys[@]}"; do printf '%s=%s\n' "$key" "${facts[$key]:-}"; done ;;
    json)
      printf '{'
      for key in "${facts_keys[@]}"; do
        json_string "${facts[$key]:-}"
        printf '%s\n  "%s": %s' "$separator" "$key" "$REPLY"
        separator=","
      done
      printf '\n}\n'
      ;;
    table) for key in "${facts_keys[@]}"; do printf '%-20s %s\n' "$key" "${facts[$key]:--}"; done ;;
  esac
}

# ---------------------------------------------------------------- decision
# Which Kubernetes, and why. A function of the facts alone; the rules are written
# down in docs/cluster-owner/install.md, and test/install/testdata/facts holds them to it.

decided="" because=""
k3s_flags=()
obstacles=() # EXIT|CODE|WHAT|WHY|FIX
remarks=()

MEMORY_SERVER_MB=900 MEMORY_WORKER_MB=450 MEMORY_GOOD_MB=1900
DISK_SERVER_MB=5000 DISK_WORKER_MB=3000

# obstacle EXIT CODE WHAT WHY FIX
obstacle() { obstacles+=("$1|$2|$3|$4|$5"); }

decide() {
  decided="" because="" k3s_flags=() obstacles=() remarks=()
  decide_type
  case "$decided" in
    k3s) decide_k3s ;;
    k3d | kind | minikube) decide_in_docker ;;
    existing) decide_existing ;;
  esac
  [[ ${facts[ARCH]} == amd64 || ${facts[ARCH]} == arm64 ]] ||
    obstacle "$EXIT_MACHINE" PO-9004 "the architecture ${facts[ARCH]} is not supported" "there is no agent for it" "use an amd64 or arm64 machine"
}

decided_by() { decided="$1" because="$2"; }

# decide_type goes through the rules in their order: the first that fits decides.
decide_type() {
  if [[ -n ${facts[WANT_TYPE]:-} ]]; then
    decided_by "${facts[WANT_TYPE]}" "CLUSTER_TYPE says so"
  elif [[ ${facts[WANT_ROLE]:-server} == agent ]]; then
    decided_by k3s "NODE_TYPE=agent joins a k3s server"
  elif [[ -n ${facts[WANT_CONTEXT]:-} ]]; then
    decided_by existing "a kubectl context was named"
  elif [[ ${facts[K3S_OURS]:-no} == server ]]; then
    decided_by k3s "this installer has set it up before"
  elif [[ -n ${facts[KUBERNETES]:-} ]]; then
    decided_by existing "this machine runs Kubernetes already (${facts[KUBERNETES]})"
  elif [[ ${facts[OS]} == linux && ${facts[WSL]:-no} == 1 ]]; then
    decided_by none "WSL 1 has no Linux kernel"
    obstacle "$EXIT_MACHINE" PO-9004 "this is WSL 1" "Kubernetes needs a Linux kernel" "in PowerShell: wsl --set-version ${facts[DISTRO]} 2"
  elif can_run_k3s; then
    decided_by k3s "Linux with ${facts[INIT]}: the lightest that is whole"
  else
    decide_in_docker_type
  fi
}

can_run_k3s() {
  [[ ${facts[OS]} == linux && ${facts[PRIVILEGED]:-yes} == yes ]] &&
    [[ ${facts[INIT]} == systemd || ${facts[INIT]} == openrc ]]
}

# why_no_k3s is for where k3s is the usual choice.
why_no_k3s() {
  if [[ ${facts[OS]} == macos ]]; then
    echo "macOS (for development only)"
  elif [[ ${facts[PRIVILEGED]:-yes} == no ]]; then
    echo "a container without the rights that k3s needs"
  else
    echo "no systemd or OpenRC to keep k3s running"
  fi
}

decide_in_docker_type() {
  local why tool
  why="$(why_no_k3s)"
  for tool in k3d kind minikube; do
    if [[ ",${facts[TOOLS]:-}," == *",$tool,"* && ${facts[DOCKER]:-no} == running ]]; then
      decided_by "$tool" "$why; Docker runs, and $tool is there"
      return
    fi
  done
  if [[ ${facts[DOCKER]:-no} == running ]]; then
    decided_by k3d "$why; Docker runs"
    return
  fi
  decided_by none "$why, and no Docker"
  local fix="start Docker, or name a cluster: --context NAME"
  [[ ${facts[OS]} == macos || ${facts[WSL]:-no} != 2 ]] ||
    fix="put [boot] systemd=true into /etc/wsl.conf, then in PowerShell: wsl --shutdown"
  [[ ${facts[CONTAINER]:-none} == none ]] || fix="run it on the container's host, or give the container --privileged and an init"
  obstacle "$EXIT_MACHINE" PO-9005 "no Kubernetes can be set up here" "$why, and Docker does not run" "$fix"
}

# decide_k3s: flags for where it runs, and what stands in its way.
decide_k3s() {
  [[ ${facts[OS]} == linux ]] || obstacle "$EXIT_MACHINE" PO-9004 "k3s does not run on ${facts[OS]}" "it needs Linux" "unset CLUSTER_TYPE, or use k3d"
  [[ ${facts[ROOT]:-no} == yes ]] || obstacle "$EXIT_ROOT" PO-9003 "root is needed to install k3s" \
    "this runs as an ordinary user" "sudo -E bash install.sh"
  [[ ${facts[INIT]} == systemd || ${facts[INIT]} == openrc ]] || obstacle "$EXIT_MACHINE" PO-9006 "nothing could keep k3s running" \
    "neither systemd nor OpenRC runs (INIT=${facts[INIT]})" "boot with an init system, or use CLUSTER_TYPE=k3d with Docker"
  decide_k3s_flags
  decide_control_plane
  decide_k3s_resources
  decide_k3s_cgroups
  decide_k3s_conflicts
}

decide_k3s_flags() {
  if [[ ${facts[USER_NAMESPACE]:-no} == yes ]]; then
    # In an unprivileged LXC or LXD container the kubelet may not set the kernel's values.
    k3s_flags+=("kubelet-arg=feature-gates=KubeletInUserNamespace=true")
  fi
  if [[ ${facts[USER_NAMESPACE]:-no} == yes || ${facts[CONTAINER]:-none} != none ]]; then
    k3s_flags+=("kube-proxy-arg=conntrack-max-per-core=0")
    remarks+=("in a container (${facts[CONTAINER]:-none}): the kernel's values are left to the host, which needs the modules overlay and br_netfilter")
  fi
  if [[ ${facts[CGROUPS]:-none} == v1 ]]; then
    # Of Kubernetes 1.35 and newer the kubelet does not start without it.
    k3s_flags+=("kubelet-arg=fail-cgroupv1=false")
    remarks+=("cgroup v1: Kubernetes is about to drop it; cgroup v2 comes with a newer system, or systemd.unified_cgroup_hierarchy=1 on the kernel's command line")
  fi
  if [[ ${facts[WSL]:-no} == 2 && ${facts[WANT_ROLE]:-server} == server ]]; then
    # Its address changes at each start; one node needs no tunnel between nodes.
    k3s_flags+=("flannel-backend=host-gw" "tls-san=127.0.0.1")
    remarks+=("WSL2: workers cannot join, and it runs while Windows keeps WSL running")
  fi
}

# decide_control_plane: the machine's ports are the gateway's. k3s' Traefik would take 80 and 443, and
# its load balancer any port that a Service names.
decide_control_plane() {
  [[ ${facts[WANT_CONTROL_PLANE]:-no} == yes ]] || return 0
  k3s_flags+=("disable=traefik" "disable=servicelb")
  remarks+=("the gateway serves ports 80 and 443 of this machine, so k3s comes without Traefik and its load balancer")
  [[ ${facts[CONTROL_PLANE]:-no} != other ]] || obstacle "$EXIT_DECISION" PO-9014 "this machine has a control plane already, and not from this installer" \
    "its data are in /var/lib/pipeops-controlplane, and uninstall would delete them" "use it: pipeops-controlplane token create, then install.sh; or move that directory away"
  [[ ${facts[INIT]} == systemd ]] || obstacle "$EXIT_MACHINE" PO-9006 "nothing could keep the control plane running" \
    "its service is for systemd (INIT=${facts[INIT]})" "use a machine with systemd, or the chart pipeops-controlplane"
  ! address_private "${facts[ADDRESS]:-}" || [[ -n $PIPEOPS_ADDRESS && $PIPEOPS_ADDRESS != "${facts[ADDRESS]}" ]] ||
    remarks+=("${facts[ADDRESS]} is a private address: if the machine has a public one, name it: --address")
}

decide_k3s_resources() {
  local memory="$MEMORY_SERVER_MB" disk="$DISK_SERVER_MB"
  if [[ ${facts[WANT_ROLE]:-server} == agent ]]; then
    memory="$MEMORY_WORKER_MB" disk="$DISK_WORKER_MB"
  fi
  local has free
  number "${facts[MEMORY_MB]:-0}" || true
  has="$REPLY"
  number "${facts[DISK_FREE_MB]:-0}" || true
  free="$REPLY"
  if ((has < MEMORY_WORKER_MB)); then
    obstacle "$EXIT_MACHINE" PO-9007 "this machine has $has MB of memory" "k3s needs $memory MB, and would be killed again and again" \
      "use a larger machine"
  elif ((has < memory)); then
    remarks+=("WARNING: $has MB of memory are less than the $memory MB that a k3s server needs: Linux may kill it; a worker needs $MEMORY_WORKER_MB MB (NODE_TYPE=agent)")
  elif ((has < MEMORY_GOOD_MB)) && [[ ${facts[WANT_ROLE]:-server} == server ]]; then
    remarks+=("$has MB of memory leave little for apps; 2 GB are better")
  fi
  decide_preset "$has"
  if [[ ${facts[K3S_OURS]:-no} == no ]] && ((free < disk)); then
    obstacle "$EXIT_MACHINE" PO-9008 "$free MB are free below /var/lib" "k3s and images need $disk MB, and the kubelet evicts pods on a full disk" \
      "make room: du -xh -d2 /var | sort -h | tail"
  fi
}

# decide_preset remarks a machine that is smaller than its preset is meant for.
decide_preset() {
  local has="$1" memory=0 size=""
  case "${facts[WANT_PRESET]:-}" in
    production) memory="$MEMORY_PRODUCTION_MB" size="4 GiB" ;;
    full-monitoring) memory="$MEMORY_FULL_MB" size="8 GiB" ;;
  esac
  [[ ${facts[WANT_ROLE]:-server} == agent ]] || ((has >= memory)) ||
    remarks+=("WARNING: the preset ${facts[WANT_PRESET]} is for machines with $size of memory, and this one has $has MB")
}

decide_k3s_cgroups() {
  local fix="boot with cgroup_enable=memory cgroup_memory=1 on the kernel's command line"
  [[ ${facts[INIT]} != openrc ]] || fix="rc-update add cgroups && rc-service cgroups start"
  case "${facts[CGROUPS]:-none}" in
    v1 | v2) ;;
    *) obstacle "$EXIT_MACHINE" PO-9009 "the memory cgroup is not there (CGROUPS=${facts[CGROUPS]:-none})" "the kubelet cannot limit pods without it" "$fix" ;;
  esac
}

decide_k3s_conflicts() {
  local other="${facts[KUBERNETES]:-}" taken
  taken="$(ports_taken)"
  if [[ ${facts[K3S_OURS]:-no} == no && -n $other ]]; then
    obstacle "$EXIT_DECISION" PO-9014 "this machine has $other already, and not from this installer" "a second Kubernetes would fight with it over ports and iptables" \
      "use it: --context NAME with its KUBECONFIG; or remove it first"
  elif [[ -n $taken ]]; then
    obstacle "$EXIT_MACHINE" PO-9010 "port $taken is in use" "another program listens where ${ports_for[${taken%%,*}]:-k3s} has to" \
      "see which: ss -ltnp '( sport = :${taken%%,*} )', and stop it"
  fi
  local role="${facts[WANT_ROLE]:-server}"
  [[ ${facts[K3S_OURS]:-no} == no || ${facts[K3S_OURS]} == "$role" ]] ||
    obstacle "$EXIT_DECISION" PO-9014 "this machine is a k3s ${facts[K3S_OURS]} already" "it cannot be a $role too" "uninstall first: install.sh uninstall"
}

K3S_PORTS="6443 10250"
declare -A ports_for=([80]="the gateway" [443]="the gateway" [7000]="the control plane" [8443]="the control plane" [8444]="the control plane")

# ports_taken prints the ports that others use of those that are wanted, with commas.
ports_taken() {
  local wanted="" port taken=""
  [[ ${facts[K3S_RUNS]:-no} == yes ]] || wanted="$K3S_PORTS"
  [[ ${facts[WANT_CONTROL_PLANE]:-no} == no || ${facts[CONTROL_PLANE]:-no} == yes ]] || wanted+=" $CONTROL_PLANE_PORTS"
  for port in $wanted; do
    [[ ,${facts[PORTS_IN_USE]:-}, != *",$port,"* ]] || taken+="${taken:+,}$port"
  done
  echo "$taken"
}

decide_in_docker() {
  [[ ${facts[DOCKER]:-no} == running ]] || obstacle "$EXIT_MACHINE" PO-9011 "Docker does not run" "$decided runs inside it" "start Docker, then run this again"
  remarks+=("$decided is for development: it ends with Docker")
}

decide_existing() {
  [[ -z ${facts[WANT_CONTEXT]:-} ]] || return 0
  local context="${facts[KUBECONFIG_CONTEXT]:-}"
  if [[ ${facts[TERMINAL]:-no} == yes && -n $context ]]; then
    return 0 # it will be asked about
  fi
  obstacle "$EXIT_DECISION" PO-9013 "which cluster is not said" "a kubectl context is used only when it is named${context:+ (the current one is $context)}" \
    "name it: install.sh install --context ${context:-NAME}    (kubectl config get-contexts lists them)"
}

# machine_described says in a line what was found.
machine_described() {
  local words="${facts[DISTRO]:-unknown} ${facts[DISTRO_VERSION]:-}"
  words="${words% }, ${facts[ARCH]:-}"
  case "${facts[VIRTUALIZATION]:-}" in
    "") ;; # recorded before there was this fact
    none) words+=", not virtual" ;;
    *) words+=", a virtual machine (${facts[VIRTUALIZATION]})" ;;
  esac
  [[ ${facts[WSL]:-no} == no ]] || words+=", WSL ${facts[WSL]}"
  [[ ${facts[CONTAINER]:-none} == none ]] || words+=", in a container (${facts[CONTAINER]})"
  echo "$words"
}

# decision_print explains.
decision_print() {
  step "machine: $(machine_described)"
  step "decision: $decided, because: $because"
  local remark flag
  for flag in "${k3s_flags[@]}"; do say "    k3s setting $flag"; done
  for remark in "${remarks[@]}"; do say "    note: $remark"; done
}

# decision_require ends with the first obstacle, and tells of the others.
decision_require() {
  ((${#obstacles[@]} > 0)) || return 0
  local exit code what why fix i
  for ((i = ${#obstacles[@]} - 1; i > 0; i--)); do
    IFS='|' read -r exit code what why fix <<<"${obstacles[i]}"
    say "also: $what (fix: $fix)" >&2
  done
  IFS='|' read -r exit code what why fix <<<"${obstacles[0]}"
  fail "$exit" "$code" "$what" "$why" "$fix"
}

# ---------------------------------------------------------------- state
# What was installed, one thing a line, so that uninstall removes that and
# nothing else. Written before the thing is made: a run that dies leaves no orphan.

locked=no

state_open() {
  [[ $dry_run == no ]] || return 0
  (umask 077 && mkdir -p "$STATE_DIR/backups") 2>/dev/null || fail "$EXIT_ROOT" PO-9003 "$STATE_DIR cannot be made" "it belongs to another user" "sudo -E bash install.sh"
  lock_take
  tmp_dir="$STATE_DIR/tmp" # here, so that the next run removes what a killed one has left
  rm -rf "$tmp_dir"
  mkdir "$tmp_dir"
}

lock_take() {
  local holder
  if ! ln -s "$$" "$STATE_DIR/lock" 2>/dev/null; then
    holder="$(readlink "$STATE_DIR/lock" || true)"
    if [[ -n $holder ]] && kill -0 "$holder" 2>/dev/null && [[ $holder != "$$" ]] && runs_installer "$holder"; then
      fail "$EXIT_BUSY" PO-9016 "another run (process $holder) is at work" "two would get in each other's way" "wait for it: tail -f $LOG_FILE"
    fi
    ln -sfn "$$" "$STATE_DIR/lock" # of a run that was killed
  fi
  locked=yes
}

# runs_installer tells an installer from a process that got its number later.
runs_installer() {
  [[ ! -r /proc/$1/comm ]] || [[ $(<"/proc/$1/comm") == *sh ]]
}

lock_release() {
  [[ $locked == no ]] || rm -f "$STATE_DIR/lock"
}

# record KIND NAME...
record() {
  state_has "$@" || printf '%s\n' "$*" >>"$STATE_DIR/installed"
}

# state_replace KIND NAME: of a kind there is one.
state_replace() {
  [[ ! -r $STATE_DIR/installed ]] || sed -i "/^$1 /d" "$STATE_DIR/installed"
  record "$@"
}

state_has() {
  [[ -r $STATE_DIR/installed ]] && grep -qxF -- "$*" "$STATE_DIR/installed"
}

# state_names KIND prints the names of what was recorded of a kind.
state_names() {
  [[ -r $STATE_DIR/installed ]] || return 0
  sed -n "s|^$1 ||p" "$STATE_DIR/installed"
}

agent_token_kept() { [[ -n $(state_names agent) ]]; }

# make_dir makes a folder, and notes down which of those on the way there are new.
make_dir() {
  local path="$1" new=()
  while [[ ! -d $path ]]; do
    new+=("$path")
    path="${path%/*}"
    [[ -n $path ]] || break
  done
  for path in "${new[@]}"; do record dir "$path"; done
  mkdir -p "$1"
}

# put FILE MODE writes standard input to a file, when that is not what it holds.
# What was there before and is not ours is kept.
put() {
  local path="$1" mode="$2" new
  new="$(cat && printf .)" && new="${new%.}"
  if [[ -f $path ]] && [[ $new == "$(cat "$path" && printf .)" || $new. == "$(cat "$path" && printf .)" ]]; then
    return 0
  fi
  ! would "write $path" || return 0
  backup "$path"
  record file "$path"
  make_dir "${path%/*}"
  (umask 077 && printf '%s' "$new" >"$path.pipeops-new")
  chmod "$mode" "$path.pipeops-new"
  mv -f "$path.pipeops-new" "$path"
  say "    wrote $path"
}

# backup keeps a file that is not ours; uninstall puts it back.
backup() {
  [[ -e $1 ]] && ! state_has file "$1" || return 0
  local copy
  copy="$STATE_DIR/backups/$(tr / _ <<<"${1#/}")"
  cp -a "$1" "$copy"
  record backup "$1" "$copy"
  say "    kept a copy of $1 in $copy"
}

# ---------------------------------------------------------------- downloads
# A mirror and an offline bundle have one form: https://HOST/PATH is at
# MIRROR/HOST/PATH, or in the file BUNDLE/HOST/PATH.

tmp_open() {
  [[ -n $tmp_dir ]] || tmp_dir="$(mktemp -d "${TMPDIR:-/tmp}/pipeops-install.XXXXXX")"
}

# ca_arguments sets ca_args for curl: the system's CAs and the one that was given.
ca_args=()
ca_arguments() {
  [[ -n $PIPEOPS_CA_FILE && ${#ca_args[@]} -eq 0 ]] || return 0
  local system
  for system in "${CURL_CA_BUNDLE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
    [[ -n $system && -r $system ]] || continue
    cat "$system" "$PIPEOPS_CA_FILE" >"$tmp_dir/ca.pem"
    ca_args=(--cacert "$tmp_dir/ca.pem")
    return 0
  done
  ca_args=(--cacert "$PIPEOPS_CA_FILE")
}

# fetch URL FILE: FILE is there whole, or the script ends.
fetch() {
  local url="$1" file="$2" from="$1" code=0
  tmp_open
  if [[ -n $PIPEOPS_BUNDLE ]]; then
    from="$PIPEOPS_BUNDLE/${url#https://}"
    [[ -r $from ]] || fail "$EXIT_NETWORK" PO-9110 "the bundle has no ${url#https://}" "it is of another version, or for another architecture" \
      "make one that fits: make bundle VERSION=$PIPEOPS_VERSION"
    cp "$from" "$file"
    return
  fi
  [[ -z $PIPEOPS_MIRROR ]] || from="${PIPEOPS_MIRROR%/}/${url#https://}"
  command -v curl >/dev/null || fail "$EXIT_MACHINE" PO-9012 "curl is not installed" "downloads need it" "$(install_hint curl)"
  ca_arguments
  log "fetch $from"
  # The system's own settings for proxies and CAs are curl's too.
  logged curl --proto '=https' --tlsv1.2 -fsSL --retry 2 --retry-delay 1 --connect-timeout 10 \
    --speed-limit 1000 --speed-time 30 "${ca_args[@]}" -o "$file.part" "$from" || code=$?
  ((code == 0)) || fetch_failed "$code" "$from"
  mv -f "$file.part" "$file"
}

# fetch_failed explains an exit code of curl.
fetch_failed() {
  local host="${2#https://}" number=PO-9102 why fix
  host="${host%%/*}"
  local code="$1"
  [[ $last_output != *"Resolving timed out"* ]] || code=6
  # What older and newer curls say of a proxy's answer to CONNECT.
  [[ $last_output != *"HTTP response code said error"* && $last_output != *CONNECT*response* ]] || code=proxy
  case "$code" in
    proxy) number=PO-9103 why="the proxy does not let it through: it wants an account, or forbids $host ($last_output)" fix="set HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT, or have $host allowed" ;;
    5) number=PO-9103 why="the proxy's name cannot be resolved" fix="check HTTPS_PROXY" ;;
    6) number=PO-9104 why="the name ${host%%:*} cannot be resolved: no DNS" fix="check: getent hosts ${host%%:*}; cat /etc/resolv.conf" ;;
    7 | 28) number=PO-9105 why="$host does not answer: a firewall, or a proxy is needed" fix="set HTTPS_PROXY, a mirror (PIPEOPS_MIRROR), or use an offline bundle" ;;
    18 | 56 | 92) number=PO-9106 why="the connection broke in the middle" fix="run it again" ;;
    22) number=PO-9107 why="$last_output" fix="check the version, and the mirror if there is one: curl -fI $2" ;;
    23) number=PO-9108 why="the disk is full, or it cannot be written" fix="df -h ${TMPDIR:-/tmp}" ;;
    35 | 60 | 77) number=PO-9109 why="the certificate of $host is not trusted: a wrong clock, or a proxy that looks into TLS" fix="check the clock (date), or set PIPEOPS_CA_FILE to the proxy's CA" ;;
    *) why="curl ended with $code: $last_output" fix="try it: curl -v -o /dev/null $2" ;;
  esac
  fail "$EXIT_NETWORK" "$number" "download of $2 failed" "$why" "$fix"
}

install_hint() {
  case "${facts[PACKAGE_MANAGER]:-none}" in
    apt-get) echo "apt-get update && apt-get install -y $1" ;;
    apk) echo "apk add $1" ;;
    none) echo "install $1" ;;
    zypper) echo "zypper --non-interactive install $1" ;;
    brew) echo "brew install $1" ;;
    *) echo "${facts[PACKAGE_MANAGER]} install -y $1" ;;
  esac
}

sha256_of() {
  if command -v sha256sum >/dev/null; then
    sha256sum "$1"
  else
    shasum -a 256 "$1"
  fi | cut -d ' ' -f 1
}

# verify FILE SUM NAME
verify() {
  local got
  [[ $2 =~ ^[0-9a-f]{64}$ ]] || fail "$EXIT_CHECKSUM" PO-9111 "there is no checksum for $3" "the list of checksums does not name it" "check the version"
  got="$(sha256_of "$1")"
  [[ $got == "$2" ]] || {
    rm -f "$1"
    fail "$EXIT_CHECKSUM" PO-9112 "$3 is not what its publisher made: its checksum is $got, not $2" \
      "the download was cut short or changed on its way (a proxy's page, a stale mirror)" "run it again; if it stays, do not use this source"
  }
  log "checksum of $3 is right: $got"
}

# sum_in LIST NAME prints the checksum that a list in sha256sum's format has. Some
# lists name files by the folder they were built in; some are one checksum without a name.
sum_in() {
  awk -v name="$2" 'NF == 1 {print $1; exit}
    {file = $2; sub(/^\*/, "", file); base = file; sub(/.*\//, "", base)}
    file == name || base == name {print $1; exit}' "$1"
}

# fetch_verified URL FILE LIST_URL NAME
fetch_verified() {
  local list
  tmp_open
  list="$tmp_dir/sums-$(tr -c 'a-zA-Z0-9.\n' _ <<<"$3")"
  [[ -s $list ]] || fetch "$3" "$list"
  fetch "$1" "$2"
  verify "$2" "$(sum_in "$list" "$4")" "$4"
}

# fetch_release NAME FILE gets a file of the release. Those of this script's own version are known by
# their checksums; of another version, the list of checksums has to be signed.
fetch_release() {
  local folder="$RELEASES_URL/$PIPEOPS_VERSION" known=""
  [[ $PIPEOPS_VERSION != "$RELEASE_VERSION" ]] || known="$(release_sum "$1")"
  tmp_open
  if [[ -z $known && $release_listed != "$PIPEOPS_VERSION" ]]; then
    fetch "$folder/SHA256SUMS" "$tmp_dir/SHA256SUMS"
    [[ -z $RELEASE_KEYS ]] || fetch "$folder/SHA256SUMS.minisig" "$tmp_dir/SHA256SUMS.minisig"
    signature_check "$tmp_dir/SHA256SUMS" "pipeops $PIPEOPS_VERSION SHA256SUMS"
    release_listed="$PIPEOPS_VERSION"
  fi
  [[ -n $known ]] || known="$(sum_in "$tmp_dir/SHA256SUMS" "$1")"
  fetch "$folder/$1" "$2"
  verify "$2" "$known" "$1"
}

# release_sum NAME prints the checksum that this script has for a file of its version, if it has one.
release_sum() { tr , '\n' <<<"$RELEASE_SHA256SUMS" | awk -v name="$1" '$2 == name {print $1}'; }
release_listed=""

# programs_fetch SYSTEM unpacks the release's programs for a system into tmp_dir/programs.
programs_fetch() {
  local archive="pipeops_${PIPEOPS_VERSION#v}_$1_${facts[ARCH]}"
  say "    downloading $archive"
  fetch_release "$archive.tar.gz" "$tmp_dir/programs.tar.gz"
  mkdir -p "$tmp_dir/programs"
  logged tar -xzf "$tmp_dir/programs.tar.gz" -C "$tmp_dir/programs" --strip-components=1 --no-same-owner ||
    fail "$EXIT_MACHINE" PO-9115 "$archive.tar.gz cannot be unpacked" "tar says: $last_output" "$(install_hint tar); df -h ${TMPDIR:-/tmp}"
}

# newest_version sets PIPEOPS_VERSION to what the release site calls the newest.
newest_version() {
  tmp_open
  fetch "$NEWEST_URL" "$tmp_dir/version.txt"
  PIPEOPS_VERSION="$(head -c 100 "$tmp_dir/version.txt" | head -n 1)"
  [[ $PIPEOPS_VERSION =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] ||
    fail "$EXIT_NETWORK" PO-9114 "the newest version cannot be found" "what is at $NEWEST_URL is not a version (a proxy's page?)" "name it: install.sh upgrade --version VERSION"
}

# older VERSION THAN, both vMAJOR.MINOR.PATCH[-PRERELEASE]; a prerelease comes before
# its release, and two of one release go by their letters.
older() {
  local one other part
  IFS=. read -r -a one <<<"${1%%-*}"
  IFS=. read -r -a other <<<"${2%%-*}"
  for part in 0 1 2; do
    local a="${one[part]#v}" b="${other[part]#v}"
    ((10#$a == 10#$b)) || return $((10#$a > 10#$b))
  done
  [[ $1 == *-* && ($2 != *-* || ${1#*-} < ${2#*-}) ]]
}

# program_install NAME FILE puts a verified program into its place.
program_install() {
  local path="$bin_dir/$1"
  backup "$path"
  record file "$path"
  make_dir "$bin_dir"
  chmod 0755 "$2"
  mv -f "$2" "$path.pipeops-new"
  mv -f "$path.pipeops-new" "$path"
  say "    installed $path"
  logged "$path" --version || logged "$path" version --client || (($? != 126)) || fail "$EXIT_MACHINE" PO-9115 "$path may not be executed" \
    "SELinux forbids it (SELINUX=${facts[SELINUX]}), or the file system is mounted noexec" \
    "restorecon -v $path; ausearch -m avc -ts recent; findmnt -T $path"
}

# ---------------------------------------------------------------- pinned programs
# The checksums that publishers list for the versions that settings.sh pins. A site that
# changes a download cannot change them. Replace them whenever you raise a version.

# pinned_sum FILE prints the SHA-256 of a pinned version's file; nothing where it is not known.
pinned_sum() {
  case "$1" in
    k3s-linux-amd64) echo 835873f37245fc615f547a2fe2af9402a347875f13fa64a1f136de644955ea3f ;;
    k3s-linux-arm64) echo c920706346d5ad4e5cd3c7bf1bb09ce71ebe07fec829e513e40f1caf98aed8bb ;;
    k3s-install.sh) echo 46177d4c99440b4c0311b67233823a8e8a2fc09693f6c89af1a7161e152fbfad ;;
    k3s-airgap-images-amd64) echo 9024613e2d468c51ba0e5ba21898604c41339354449fb3338cc6a7931189eb6a ;;
    k3s-airgap-images-arm64) echo 9d3c4c2197bcf857ca17633aa393bad683cc982ddd408620f93036a3cca953b5 ;;
    k3d-linux-amd64) echo dbaa79a76ace7f4ca230a1ff41dc7d8a5036a8ad0309e9c54f9bf3836dbe853e ;;
    k3d-linux-arm64) echo 0b8110f2229631af7402fb828259330985918b08fefd38b7f1b788a1c8687216 ;;
    k3d-darwin-amd64) echo fd0f8e9e8ea4d8bc3674572ca6ed0833b639bf57c43c708616d937377324cfea ;;
    k3d-darwin-arm64) echo 8da468daa7dc7cf7cdd4735f90a9bb05179fa27858250f62e3d8cdf5b5ca0698 ;;
    kind-linux-amd64) echo 517ab7fc89ddeed5fa65abf71530d90648d9638ef0c4cde22c2c11f8097b8889 ;;
    kind-linux-arm64) echo 7ea2de9d2d190022ed4a8a4e3ac0636c8a455e460b9a13ccf19f15d07f4f00eb ;;
    kind-darwin-amd64) echo 4f0b6e3b88bdc66d922c08469f05ef507d4903dd236e6319199bb9c868eed274 ;;
    kind-darwin-arm64) echo ceaf40df1d1551c481fb50e3deb5c3deecad5fd599df5469626b70ddf52a1518 ;;
    minikube-linux-amd64) echo d5cf561c71171152ff67d799f041ac0f65c235c87a1e9fc02a6a17b8226214d0 ;;
    minikube-darwin-amd64) echo 4c32b9e5fed64a311db9a40d6fdcc8fa794bc5bbc546545f4d187e9d416a74cb ;;
    minikube-darwin-arm64) echo 5e0914c3559f6713295119477a6f5dc29862596effbfc764a61757bb314901d2 ;;
    kubectl-linux-amd64) echo 90f75ea6ecc9ea5633262e1c0b83a40560003b30fc94a04cb099404fcef0c224 ;;
    kubectl-linux-arm64) echo ac69e06fd6860d69786692f5af1c3a1208ed54f8366a4d97ab15c172e99765ee ;;
    kubectl-darwin-amd64) echo d6af0a35e78865ab3352a3f76e7346041f6657d08641db1c1e93830210fce334 ;;
    kubectl-darwin-arm64) echo 4d79aa4ca3015d6c70ac593d8c387efe09f4000b5ff1098f42610e6030a8ccb3 ;;
  esac
}

# unpinned are files of pinned versions whose checksum is not filled in above yet. They go by the
# list of their own site, as versions do that the user named.
unpinned=(minikube-linux-arm64)

# pinned_settings are the user's own checksums, for versions and machines without one above.
pinned_settings=(PIPEOPS_K3S_SHA256 PIPEOPS_K3S_INSTALL_SHA256 PIPEOPS_K3S_IMAGES_SHA256 PIPEOPS_K3D_SHA256
  PIPEOPS_KIND_SHA256 PIPEOPS_MINIKUBE_SHA256 PIPEOPS_KUBECTL_SHA256)

# fetch_pinned URL FILE LIST_URL NAME SETTING PINNED: NAME at URL has the checksum that
# SETTING gives, or that of PINNED above. PINNED is empty for a version that the user named:
# that one goes by the list of its own site, and so do those of unpinned.
fetch_pinned() {
  local url="$1" file="$2" list="$3" name="$4" setting="$5" pinned="$6" wanted
  wanted="${!setting:-}"
  [[ -n $wanted || -z $pinned ]] || wanted="$(pinned_sum "$pinned")"
  if [[ -n $wanted ]]; then
    fetch "$url" "$file"
    verify "$file" "$wanted" "$name"
    return
  fi
  [[ -z $pinned || " ${unpinned[*]} " == *" $pinned "* || ${PIPEOPS_ALLOW_UNSIGNED:-} == yes ]] || fail "$EXIT_CHECKSUM" PO-9111 "this script has no checksum for $pinned" \
    "only its own site has one: $list" "check that list, and set $setting to the checksum; or set PIPEOPS_ALLOW_UNSIGNED=yes to go by the list alone"
  say "    note: $name is verified by the checksum of its own site alone; $setting sets yours"
  fetch_verified "$url" "$file" "$list" "$name"
}

# k3s_pinned FILE prints FILE, or nothing where the user named another version of k3s.
k3s_pinned() { [[ $K3S_VERSION != "$RELEASE_K3S_VERSION" ]] || echo "$1"; }

# ---------------------------------------------------------------- signatures
# Minisign's format, checked by minisign or by OpenSSL 3, whichever is there.

# signature_check FILE COMMENT: PIPEOPS_UPDATE_SIGNATURES of RELEASE_KEYS have signed FILE,
# and COMMENT beside it: the list of another version does not pass. FILE.minisig holds
# their signatures, four lines each.
signature_check() {
  local key keys signed=0
  IFS=, read -r -a keys <<<"$RELEASE_KEYS"
  ((${#keys[@]} > 0 || PIPEOPS_UPDATE_SIGNATURES > 1)) || return 0 # a script that no release stamped
  ((${#keys[@]} >= PIPEOPS_UPDATE_SIGNATURES)) || fail "$EXIT_USAGE" PO-9113 "$PIPEOPS_UPDATE_SIGNATURES signatures are more than the ${#keys[@]} keys of this script can make" \
    "PIPEOPS_UPDATE_SIGNATURES asks for them" "use install.sh of a release that trusts as many keys, or ask for fewer signatures"
  if ! signature_tool; then
    [[ ${PIPEOPS_ALLOW_UNSIGNED:-} == yes && $PIPEOPS_UPDATE_SIGNATURES == 1 ]] || fail "$EXIT_CHECKSUM" PO-9113 "the signature of $PIPEOPS_VERSION cannot be checked" \
      "neither minisign nor OpenSSL 3 is installed" "$(install_hint minisign); or set PIPEOPS_ALLOW_UNSIGNED=yes to go by its checksums alone"
    say "    note: the signature of $PIPEOPS_VERSION is not checked, only its checksums: PIPEOPS_ALLOW_UNSIGNED=yes"
    return 0
  fi
  signatures_split "$1.minisig"
  for key in "${keys[@]}"; do # a key counts once, however often it has signed
    signed_by "$1" "$key" "$2" || continue
    say "    signed by $key"
    ((++signed < PIPEOPS_UPDATE_SIGNATURES)) || return 0
  done
  ((signed == 0)) || fail "$EXIT_CHECKSUM" PO-9113 "the checksums of $PIPEOPS_VERSION have $signed of the $PIPEOPS_UPDATE_SIGNATURES signatures that PIPEOPS_UPDATE_SIGNATURES asks for" \
    "another maintainer has yet to sign them" "wait for that signature, or ask for fewer"
  fail "$EXIT_CHECKSUM" PO-9113 "the checksums of $PIPEOPS_VERSION are not signed by a key that this script trusts" \
    "they were changed on their way, or the maintainers have another key by now" "get install.sh of $PIPEOPS_VERSION from where you got this one; if it stays, do not use this source"
}

# signatures_split FILE puts each signature into its own file, below signatures_dir.
signatures_split() {
  signatures_dir="$tmp_dir/signatures"
  rm -rf "$signatures_dir"
  mkdir -p "$signatures_dir"
  head -n "$MAX_SIGNATURE_LINES" "$1" | awk -v dir="$signatures_dir" 'NR % 4 == 1 {n++} {print > (dir "/" n)}'
}
MAX_SIGNATURE_LINES=64 signatures_dir=""

# signed_by FILE KEY COMMENT
signed_by() {
  local signature
  for signature in "$signatures_dir"/*; do
    [[ -f $signature && $(trusted_comment "$signature") == "$3" ]] || continue
    ! "signature_by_$signature_tool" "$1" "$2" "$signature" || return 0
  done
  return 1
}

trusted_comment() { sed -n 's/^trusted comment: //p' "$1"; }

signature_tool=""
signature_tool() {
  if command -v minisign >/dev/null; then
    signature_tool=minisign
  elif [[ $(openssl version 2>/dev/null) == "OpenSSL "[3-9]* ]] && openssl dgst -blake2b512 /dev/null >/dev/null 2>&1; then # FIPS has no BLAKE2
    signature_tool=openssl
  else
    return 1
  fi
}

signature_by_minisign() { logged minisign -V -q -P "$2" -m "$1" -x "$3"; }

# signature_by_openssl FILE KEY SIGNATURE. Key and signature begin with 2 bytes for the
# algorithm and 8 for the key's number. The file's BLAKE2b digest is signed, and
# then the signature with the comment.
signature_by_openssl() {
  local dir="$tmp_dir/signature" comment
  rm -rf "$dir"
  mkdir -p "$dir"
  comment="$(trusted_comment "$3")"
  base64 -d <<<"$2" >"$dir/key" 2>/dev/null || return 1
  sed -n 2p "$3" | base64 -d >"$dir/signature" 2>/dev/null || return 1
  sed -n 4p "$3" | base64 -d >"$dir/global" 2>/dev/null || return 1
  [[ $(wc -c <"$dir/key") -eq 42 && $(wc -c <"$dir/signature") -eq 74 && $(head -c 2 "$dir/signature") == ED ]] || return 1
  cmp -s <(head -c 10 "$dir/key" | tail -c 8) <(head -c 10 "$dir/signature" | tail -c 8) || return 1
  { printf '\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00' && tail -c 32 "$dir/key"; } >"$dir/key.der"
  tail -c 64 "$dir/signature" >"$dir/bare"
  openssl dgst -blake2b512 -binary -out "$dir/digest" "$1" || return 1
  { cat "$dir/bare" && printf '%s' "$comment"; } >"$dir/commented"
  logged openssl pkeyutl -verify -pubin -inkey "$dir/key.der" -keyform DER -rawin -in "$dir/digest" -sigfile "$dir/bare" &&
    logged openssl pkeyutl -verify -pubin -inkey "$dir/key.der" -keyform DER -rawin -in "$dir/commented" -sigfile "$dir/global"
}

# ---------------------------------------------------------------- k3s

bin_dir=/usr/local/bin
K3S_CONFIG=/etc/rancher/k3s/config.yaml.d/pipeops.yaml
K3S_KUBECONFIG=/etc/rancher/k3s/k3s.yaml

# k3s_ensure brings k3s to the wanted version and settings, and starts it. What
# is right already stays untouched, and running.
k3s_ensure() {
  local role="$NODE_TYPE"
  step "k3s $K3S_VERSION as $role"
  ! k3s_right "$role" || {
    say "    it is installed and runs"
    return 0
  }
  k3s_keep_others "$role"
  k3s_config | put "$K3S_CONFIG" 0600
  k3s_registries
  k3s_program
  k3s_images
  ! would "run k3s' own installer for its service, and start it" || return 0
  k3s_service "$role"
}

# k3s_keep_others keeps what k3s' own scripts would replace or take away, and is
# not k3s' yet.
k3s_keep_others() {
  if [[ $dry_run == yes ]] || state_has k3s "$1"; then return 0; fi
  local path
  for path in "$bin_dir/kubectl" "$bin_dir/crictl" "$bin_dir/ctr" /etc/rancher/k3s; do backup "$path"; done
  # k3s makes these; its own scripts take away what is in them.
  make_dir /etc/rancher
  make_dir /var/lib/rancher
  record k3s "$1"
}

# k3s_right says whether there is nothing to do.
k3s_right() {
  state_has k3s "$1" && k3s_version_is "$K3S_VERSION" && k3s_active "$1" &&
    [[ -f $K3S_CONFIG && "$(k3s_config)" == "$(<"$K3S_CONFIG")" ]] && k3s_env_right "$1" && k3s_registries_right
}

k3s_version_is() { [[ -x $bin_dir/k3s ]] && [[ "$("$bin_dir/k3s" --version 2>/dev/null)" == *" $1 "* ]]; }

k3s_unit() { if [[ $1 == agent ]]; then echo k3s-agent; else echo k3s; fi; }

k3s_active() {
  case "${facts[INIT]}" in
    systemd) systemctl is-active --quiet "$(k3s_unit "$1")" ;;
    openrc) rc-service "$(k3s_unit "$1")" status >/dev/null 2>&1 ;;
    *) return 1 ;;
  esac
}

# k3s_env_right: a worker that is given another server or token is set up again.
k3s_env_right() {
  [[ $1 == agent ]] || return 0
  local file=/etc/systemd/system/k3s-agent.service.env
  [[ ${facts[INIT]} != openrc ]] || file=/etc/rancher/k3s/k3s-agent.env
  [[ -r $file ]] && grep -qF "$K3S_URL" "$file" && [[ "$(<"$file")" == *"$K3S_TOKEN"* ]]
}

# k3s_config is our part of k3s' configuration: config.yaml stays the user's.
k3s_config() {
  local flag key seen="" value
  echo "# Made by PipeOps' install.sh. Settings of your own go into /etc/rancher/k3s/config.yaml."
  [[ $NODE_TYPE != server ]] || echo 'write-kubeconfig-mode: "0600"'
  for flag in "${k3s_flags[@]}"; do
    key="${flag%%=*}"
    case "$key" in
      kubelet-arg | kube-proxy-arg | tls-san | disable)
        [[ $seen != *" $key "* ]] || continue
        seen+=" $key "
        echo "$key+:" # added to the user's own
        for value in "${k3s_flags[@]}"; do
          [[ ${value%%=*} != "$key" ]] || echo "  - \"${value#*=}\""
        done
        ;;
      *) echo "$key: \"${flag#*=}\"" ;;
    esac
  done
}

K3S_REGISTRIES=/etc/rancher/k3s/registries.yaml

# k3s_registries has images come from a mirror.
k3s_registries() {
  [[ -n $PIPEOPS_REGISTRY_MIRROR ]] || return 0
  k3s_mirrors | put "$K3S_REGISTRIES" 0600
}

k3s_registries_right() { [[ -z $PIPEOPS_REGISTRY_MIRROR ]] || [[ -f $K3S_REGISTRIES && "$(k3s_mirrors)" == "$(<"$K3S_REGISTRIES")" ]]; }

k3s_mirrors() { printf 'mirrors:\n  "*":\n    endpoint:\n      - "%s"\n' "$PIPEOPS_REGISTRY_MIRROR"; }

k3s_url() { echo "https://github.com/k3s-io/k3s/releases/download/${K3S_VERSION/+/%2B}/$1"; }

k3s_program() {
  ! k3s_version_is "$K3S_VERSION" || return 0
  ! would "download $(k3s_url "$(k3s_file)"), verify it, and put it at $bin_dir/k3s" || return 0
  k3s_download
  program_install k3s "$tmp_dir/k3s"
}

# k3s_file is the program's name on k3s' site.
k3s_file() { if [[ ${facts[ARCH]} == amd64 ]]; then echo k3s; else echo "k3s-${facts[ARCH]}"; fi; }

# k3s_download puts the verified program at $tmp_dir/k3s.
k3s_download() {
  local name
  name="$(k3s_file)"
  say "    downloading k3s $K3S_VERSION"
  fetch_pinned "$(k3s_url "$name")" "$tmp_dir/k3s" "$(k3s_url "sha256sum-${facts[ARCH]}.txt")" "$name" \
    PIPEOPS_K3S_SHA256 "$(k3s_pinned "k3s-linux-${facts[ARCH]}")"
}

# k3s_images: what an offline bundle has in images goes where k3s takes it from.
k3s_images() {
  [[ -n $PIPEOPS_BUNDLE && -d $PIPEOPS_BUNDLE/images ]] || return 0
  local image to=/var/lib/rancher/k3s/agent/images
  for image in "$PIPEOPS_BUNDLE"/images/*; do
    ! would "copy ${image##*/} to $to" || continue
    verify "$image" "$(sum_in "$PIPEOPS_BUNDLE/SHA256SUMS" "images/${image##*/}")" "images/${image##*/}"
    make_dir "$to"
    cp "$image" "$to/"
    say "    image archive ${image##*/}"
  done
}

# k3s_service has k3s' own installer, of the same version, make the service: it
# knows systemd, OpenRC and SELinux. The token goes through the environment.
k3s_service() {
  local no_proxy_all
  no_proxy_all="$(no_proxy_list)"
  local raw="https://raw.githubusercontent.com/k3s-io/k3s/${K3S_VERSION/+/%2B}" code=0 skip=binary
  [[ -z $PIPEOPS_BUNDLE ]] || skip=true
  fetch_pinned "$raw/install.sh" "$tmp_dir/k3s-install.sh" "$raw/install.sh.sha256sum" install.sh \
    PIPEOPS_K3S_INSTALL_SHA256 "$(k3s_pinned k3s-install.sh)"
  say "    starting k3s"
  (
    export INSTALL_K3S_SKIP_DOWNLOAD="$skip" INSTALL_K3S_EXEC="$1" INSTALL_K3S_BIN_DIR="$bin_dir" INSTALL_K3S_FORCE_RESTART=true
    if [[ $1 == agent ]]; then export K3S_URL K3S_TOKEN; fi
    # shellcheck disable=SC2030 # for k3s alone
    if [[ -n ${facts[PROXY]:-} ]]; then export NO_PROXY="$no_proxy_all"; fi
    # Without a bound it would wait for ever for a server that does not let it in.
    logged timeout "$((PIPEOPS_WAIT + 60))" sh "$tmp_dir/k3s-install.sh" || {
      printf '%s' "${last_output//$'\n'/ }" >"$tmp_dir/why"
      exit 1
    }
  ) || code=$?
  ((code == 0)) || k3s_failed "k3s' own installer failed: $(<"$tmp_dir/why")"
}

# no_proxy_list keeps a proxy out of the cluster's own traffic.
no_proxy_list() {
  # shellcheck disable=SC2031 # a subshell sets it, from here
  local own="127.0.0.0/8,10.42.0.0/16,10.43.0.0/16,localhost,.svc,.cluster.local" theirs="${NO_PROXY:-${no_proxy:-}}"
  echo "${theirs:+$theirs,}$own"
}

k3s_failed() {
  local unit
  unit="$(k3s_unit "$NODE_TYPE")"
  [[ ${facts[INIT]} != systemd ]] || logged journalctl -u "$unit" -n 15 --no-pager -o cat || true
  local fix="journalctl -u $unit -n 50 --no-pager"
  [[ ${facts[INIT]} == systemd ]] || fix="tail -n 50 /var/log/$unit.log"
  [[ ${facts[SELINUX]} != enforcing ]] || fix+="; ausearch -m avc -ts recent"
  fail "$EXIT_CLUSTER" PO-9201 "$1" "k3s says: ${last_output:-nothing}" "$fix"
}

# k3s_await waits until the API answers and the node is ready.
k3s_await() {
  local deadline=$((SECONDS + PIPEOPS_WAIT)) said=""
  while ! node_ready; do
    k3s_active "$NODE_TYPE" || k3s_failed "k3s does not run"
    ((SECONDS < deadline)) || k3s_failed "Kubernetes was not ready after $PIPEOPS_WAIT s"
    [[ -n $said ]] || say "    waiting for Kubernetes"
    said=yes
    sleep 1
  done
  say "    Kubernetes is ready"
}

# k3s_settled waits until k3s has brought what it brings itself, so that it counts as there.
k3s_settled() {
  local file name deadline=$((SECONDS + 60)) dir=/var/lib/rancher/k3s/server/manifests
  for file in local-storage traefik metrics-server/metrics-apiservice; do
    name="${file##*/}"
    [[ -e $dir/$file.yaml && ! -e $dir/$file.yaml.skip ]] || continue
    until kube_read -n kube-system get "addons.k3s.cattle.io/$name" -o name; do
      ((SECONDS < deadline)) || {
        say "    note: k3s has not brought $name yet"
        return 0
      }
      sleep 1
    done
  done
}

node_ready() {
  local out
  if [[ $NODE_TYPE == server ]]; then
    [[ -r $K3S_KUBECONFIG ]] || return 1
    out="$("${kube[@]}" get nodes -o "$NODE_TEMPLATE" 2>/dev/null)" || return 1
    [[ $out == *" True"* ]]
  else
    local config=/var/lib/rancher/k3s/agent/kubelet.kubeconfig
    [[ -r $config ]] || return 1
    out="$("$bin_dir/k3s" kubectl --kubeconfig "$config" get node "$(hostname | tr '[:upper:]' '[:lower:]')" -o "$NODE_TEMPLATE" 2>/dev/null)" || return 1
    [[ $out == *" True"* ]]
  fi
}
NODE_TEMPLATE='go-template={{define "n"}}{{.metadata.name}}{{range .status.conditions}}{{if eq .type "Ready"}} {{.status}}{{"\n"}}{{end}}{{end}}{{end}}{{if .items}}{{range .items}}{{template "n" .}}{{end}}{{else if .status}}{{template "n" .}}{{end}}'

# ---------------------------------------------------------------- k3d, kind, minikube
# For development. Their kubeconfig is kept beside the state: the user's own, and
# its current context, stay as they are.

docker_cluster_ensure() {
  local tool="$decided" config="$STATE_DIR/kubeconfig"
  step "$tool cluster \"pipeops\""
  docker_tools_dir
  "tool_$tool"
  tool_kubectl
  kube=(kubectl --kubeconfig "$config")
  if state_has cluster "$tool" && "${kube[@]}" get --raw /readyz >/dev/null 2>&1; then
    say "    it is there and runs"
    return 0
  fi
  ! would "create it, with its kubeconfig at $config" || return 0
  record cluster "$tool"
  record file "$config"
  "create_$tool" "$config" || fail "$EXIT_CLUSTER" PO-9202 "$tool could not create the cluster" "$tool says: $last_output" \
    "docker info; docker system df; then run this again"
}

create_k3d() {
  k3d cluster list pipeops >/dev/null 2>&1 ||
    logged k3d cluster create pipeops --image "rancher/k3s:${K3S_VERSION/+/-}" --wait --timeout "${PIPEOPS_WAIT}s" \
      --kubeconfig-update-default=false --kubeconfig-switch-context=false || return 1
  (umask 077 && k3d kubeconfig get pipeops >"$1")
}

create_kind() { logged kind create cluster --name pipeops --kubeconfig "$1" --wait "${PIPEOPS_WAIT}s"; }

create_minikube() { KUBECONFIG="$1" logged minikube start -p pipeops --driver docker; }

docker_tools_dir() {
  ((EUID == 0)) || bin_dir="$STATE_DIR/bin"
  export PATH="$bin_dir:$PATH"
}

# tool_get NAME URL LIST_URL NAME_IN_LIST PINNED
tool_get() {
  ! command -v "$1" >/dev/null || return 0
  ! would "download $2, verify it, and put it at $bin_dir/$1" || return 0
  say "    downloading $1"
  fetch_pinned "$2" "$tmp_dir/$1" "$3" "$4" "PIPEOPS_${1^^}_SHA256" "$5"
  program_install "$1" "$tmp_dir/$1"
}

tool_os() { if [[ ${facts[OS]} == macos ]]; then echo darwin; else echo linux; fi; }

tool_k3d() {
  local base="https://github.com/k3d-io/k3d/releases/download/$RELEASE_K3D_VERSION" name
  name="k3d-$(tool_os)-${facts[ARCH]}"
  tool_get k3d "$base/$name" "$base/checksums.txt" "$name" "$name"
}

tool_kind() {
  local base="https://github.com/kubernetes-sigs/kind/releases/download/$RELEASE_KIND_VERSION" name
  name="kind-$(tool_os)-${facts[ARCH]}"
  tool_get kind "$base/$name" "$base/$name.sha256sum" "$name" "$name"
}

tool_minikube() {
  local base="https://github.com/kubernetes/minikube/releases/download/$RELEASE_MINIKUBE_VERSION" name
  name="minikube-$(tool_os)-${facts[ARCH]}"
  tool_get minikube "$base/$name" "$base/$name.sha256" "$name" "$name"
}

tool_kubectl() {
  local base
  base="https://dl.k8s.io/release/$RELEASE_KUBECTL_VERSION/bin/$(tool_os)/${facts[ARCH]}"
  tool_get kubectl "$base/kubectl" "$base/kubectl.sha256" kubectl "kubectl-$(tool_os)-${facts[ARCH]}"
}

docker_cluster_delete() {
  docker_tools_dir
  case "$1" in
    k3d) logged k3d cluster delete pipeops ;;
    kind) logged kind delete cluster --name pipeops ;;
    minikube) logged minikube delete -p pipeops ;;
  esac
}

# ---------------------------------------------------------------- what goes into the cluster

kube=() # kubectl, with the cluster that was decided on

# kube_use points kubectl to the cluster.
kube_use() {
  case "$decided" in
    k3s) kube=("$bin_dir/k3s" kubectl --kubeconfig "$K3S_KUBECONFIG") ;;
    existing) kube_use_existing ;;
    *)
      docker_tools_dir
      kube=(kubectl --kubeconfig "$STATE_DIR/kubeconfig")
      ;;
  esac
}

# kube_use_existing takes the context that was named, or asks.
kube_use_existing() {
  local context="${facts[WANT_CONTEXT]:-}"
  if [[ -z $context ]]; then
    context="${facts[KUBECONFIG_CONTEXT]}"
    ask "Install PipeOps into the cluster of kubectl context \"$context\"?" ||
      fail "$EXIT_DECISION" PO-9013 "the context $context was not confirmed" "nothing is installed into a cluster that is not meant" \
        "name the right one: install.sh install --context NAME"
  fi
  [[ $dry_run == yes ]] || docker_tools_dir
  [[ $dry_run == yes ]] || tool_kubectl
  kube=(kubectl --context "$context")
  [[ -z ${KUBECONFIG:-} || ! -r ${KUBECONFIG:-} ]] || kube+=(--kubeconfig "$KUBECONFIG")
}

kube_reachable() {
  logged "${kube[@]}" get --raw /readyz --request-timeout 15s ||
    fail "$EXIT_CLUSTER" PO-9203 "the cluster does not answer: ${kube[*]}" "kubectl says: $last_output" "try it: ${kube[*]} get nodes"
}

# kube_read sets REPLY to what kubectl prints. It answers its exit code, with
# last_output what it complained of.
kube_read() {
  local code=0 out
  log "+ ${kube[*]} $*"
  out="$("${kube[@]}" "$@" 2>"$tmp_dir/kube_read" </dev/null)" || code=$?
  redact "$(tail -n 5 "$tmp_dir/kube_read")"
  last_output="$REPLY"
  ((code == 0)) || log "  | $last_output (exit code $code)"
  REPLY="$out"
  return "$code"
}

# kube_apply puts everything into the cluster in one go: the agent, its settings
# and the namespaces. An agent whose settings have changed restarts.
kube_apply() {
  local code=0
  step "the agent $PIPEOPS_VERSION into the cluster"
  ! would "apply the agent's manifest, its settings and token, and the namespace monitoring; the agent creates production and beta" || return 0
  manifest_get
  namespaces_known="$("${kube[@]}" get namespaces -o 'go-template={{range .items}}{{.metadata.name}}={{with .metadata.labels}}{{index . "app.kubernetes.io/managed-by"}}{{end}};{{end}}')" ||
    fail "$EXIT_CLUSTER" PO-9204 "the cluster's namespaces cannot be listed" "the account of this kubeconfig may not do so" "use an administrator's kubeconfig"
  settings_versions >"$tmp_dir/before"
  token_is_needed=yes
  ! agent_registered || token_is_needed=no
  agent_of_others
  record agent "${kube[*]}"
  preset_keep
  namespaces_record
  kube_apply_stdin < <(kube_objects) || code=$? # no pipe, which would lose last_output
  ((code == 0)) || fail "$EXIT_CLUSTER" PO-9204 "the cluster refused the agent's objects" "kubectl says: $last_output" \
    "Kubernetes 1.30 or newer is needed, and an administrator's rights: ${kube[*]} auth can-i '*' '*'"
  cp "$tmp_dir/agent.yaml" "$STATE_DIR/agent.yaml"
  policy_create
  # Lines that were not there before are settings that have changed.
  if [[ -s $tmp_dir/before ]] && grep -E '^(ConfigMap|Secret)/pipeops-agent(-ca|-proxy)? ' "$tmp_dir/apply.log" | grep -qvxFf "$tmp_dir/before"; then
    say "    settings have changed: the agent restarts"
    logged "${kube[@]}" -n "$NAMESPACE" rollout restart deployment/pipeops-agent || true
  fi
}

# policy_create sets what Runners may do, where the owner has not said it yet.
policy_create() {
  [[ -n $PIPEOPS_POLICY ]] || return 0
  kube_read -n "$NAMESPACE" get configmap/pipeops-policy --ignore-not-found -o name ||
    fail "$EXIT_CLUSTER" PO-9204 "the policy cannot be read" "kubectl says: $last_output" "run this again"
  if [[ -n $REPLY ]]; then
    say "    note: there is a policy already, which stays: ${kube[*]} -n $NAMESPACE get configmap pipeops-policy -o yaml"
    return 0
  fi
  logged "${kube[@]}" -n "$NAMESPACE" create configmap pipeops-policy --from-literal "preset=$PIPEOPS_POLICY" ||
    fail "$EXIT_CLUSTER" PO-9204 "the policy cannot be created" "kubectl says: $last_output" "run this again"
}

# agent_registered answers 0 if the agent is registered with this control plane: it is ready. It has
# no use for a token then, and has removed the one that it registered with.
agent_registered() {
  kube_read -n "$NAMESPACE" get deployment/pipeops-agent --ignore-not-found -o 'jsonpath={.status.readyReplicas}' || return 1
  [[ $REPLY =~ ^[1-9] ]] || return 1
  kube_read -n "$NAMESPACE" get configmap/pipeops-agent --ignore-not-found -o 'jsonpath={.data.PIPEOPS_CONTROL_PLANE_URL}' || return 1
  [[ $REPLY == "$PIPEOPS_CONTROL_PLANE_URL" ]]
}

# agent_of_others: one that was installed otherwise is taken over, with a copy of
# how it was; and one list is of one cluster.
agent_of_others() {
  local ours copy="$STATE_DIR/backups/agent-before.yaml"
  ours="$(state_names agent)"
  [[ -z $ours || $ours == "${kube[*]}" ]] || fail "$EXIT_DECISION" PO-9015 "$STATE_DIR is of another cluster: $ours" \
    "uninstall would not know which one is meant" "install.sh uninstall, or keep this one apart: PIPEOPS_INSTALL_STATE=DIR"
  [[ -z $ours && ";$namespaces_known" == *";$NAMESPACE="* ]] || return 0
  "${kube[@]}" -n "$NAMESPACE" get deployments,configmaps,serviceaccounts,roles,rolebindings,networkpolicies -o yaml >"$copy" 2>/dev/null || true
  say "    note: there is a namespace $NAMESPACE already; a copy of what is in it is in $copy"
}

# kube_apply_stdin: server-side, because kubectl's other way keeps a copy of a
# Secret in an annotation. What it prints has names only.
kube_apply_stdin() {
  local code=0
  "${kube[@]}" apply --server-side --force-conflicts --field-manager pipeops-install -o "$VERSION_TEMPLATE" -f - \
    >"$tmp_dir/apply.log" 2>&1 || code=$?
  local line
  while IFS= read -r line; do log "  | $line"; done <"$tmp_dir/apply.log"
  redact "$(tail -n 3 "$tmp_dir/apply.log")"
  last_output="$REPLY"
  return "$code"
}

VERSION_TEMPLATE='go-template={{define "v"}}{{.kind}}/{{.metadata.name}} {{.metadata.uid}}/{{.metadata.resourceVersion}}{{"\n"}}{{end}}{{if .items}}{{range .items}}{{template "v" .}}{{end}}{{else if .metadata.name}}{{template "v" .}}{{end}}'

settings_versions() {
  "${kube[@]}" -n "$NAMESPACE" get configmap/pipeops-agent secret/pipeops-agent secret/pipeops-agent-proxy configmap/pipeops-agent-ca --ignore-not-found \
    -o "$VERSION_TEMPLATE" 2>/dev/null || true
}

# manifest_get puts the agent's manifest into $tmp_dir/agent.yaml.
manifest_get() {
  if [[ -n $PIPEOPS_MANIFEST ]]; then
    cp "$PIPEOPS_MANIFEST" "$tmp_dir/agent.yaml"
  else
    fetch_release agent.yaml "$tmp_dir/agent.yaml"
  fi
  [[ -z $PIPEOPS_IMAGE ]] || {
    PIPEOPS_IMAGE="$PIPEOPS_IMAGE" awk '/^ +image: / {sub(/image: .*/, "image: " ENVIRON["PIPEOPS_IMAGE"])} {print}' \
      "$tmp_dir/agent.yaml" >"$tmp_dir/agent.yaml.new"
    mv -f "$tmp_dir/agent.yaml.new" "$tmp_dir/agent.yaml"
  }
  preset_apply "$tmp_dir/agent.yaml"
}

# kube_objects prints everything. It is only ever piped: the token is in it.
kube_objects() {
  cat "$tmp_dir/agent.yaml"
  object_settings
  object_token
  object_proxy
  object_ca
  [[ $namespaces_known == *";monitoring="* ]] || printf -- '---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: monitoring\n'
}

object_settings() {
  printf -- '---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: pipeops-agent\n  namespace: %s\ndata:\n' "$NAMESPACE"
  printf '  PIPEOPS_CONTROL_PLANE_URL: "%s"\n  CLUSTER_NAME: "%s"\n' "$PIPEOPS_CONTROL_PLANE_URL" "$CLUSTER_NAME"
  [[ -z $LOG_LEVEL ]] || printf '  LOG_LEVEL: "%s"\n' "$LOG_LEVEL"
  [[ -z $PIPEOPS_CA_FILE ]] || printf '  PIPEOPS_CA_FILE: /etc/pipeops/ca/ca.crt\n'
  [[ -z ${HTTPS_PROXY:-${https_proxy:-}} ]] || printf '  NO_PROXY: "%s"\n' "$(no_proxy_list)"
}

# object_proxy: an account may be in the URL. Without a proxy the Secret is empty,
# which takes away what an earlier run put there.
object_proxy() {
  local proxy="${HTTPS_PROXY:-${https_proxy:-}}"
  printf -- '---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: pipeops-agent-proxy\n  namespace: %s\ndata:' "$NAMESPACE"
  if [[ -z $proxy ]]; then
    echo ' {}'
    return
  fi
  printf '\n  HTTPS_PROXY: '
  printf '%s' "$proxy" | base64 | tr -d '\n'
  echo
}

object_token() {
  [[ -n $AGENT_TOKEN && $token_is_needed == yes ]] || return 0 # the Secret stays as it is
  printf -- '---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: pipeops-agent\n  namespace: %s\ndata:\n  AGENT_TOKEN: ' "$NAMESPACE"
  printf '%s' "$AGENT_TOKEN" | base64 | tr -d '\n'
  echo
}

object_ca() {
  [[ -n $PIPEOPS_CA_FILE ]] || return 0
  printf -- '---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: pipeops-agent-ca\n  namespace: %s\ndata:\n  ca.crt: |\n' "$NAMESPACE"
  sed 's/^/    /' "$PIPEOPS_CA_FILE"
}

# namespace_free returns whether a namespace does not exist, or is PipeOps' own. Others' namespaces
# are not taken over.
namespaces_known=""
namespace_free() {
  [[ ";$namespaces_known" != *";$1="* || ";$namespaces_known" == *";$1=pipeops;"* ]]
}

namespaces_record() {
  local name
  for name in "$NAMESPACE" production beta monitoring; do
    if [[ ";$namespaces_known" != *";$name="* ]]; then
      record namespace "$name"
    elif ! namespace_free "$name" && [[ $name == production || $name == beta ]]; then
      say "    note: the namespace $name is there and not PipeOps': it stays as it is"
    fi
  done
}

# ---------------------------------------------------------------- until the agent is registered

# What agent_look reads: of pods those that are not on their way out.
AGENT_TEMPLATE='go-template={{range .items}}{{if eq .kind "Deployment"}}deployment {{.metadata.generation}} {{or .status.observedGeneration 0}} {{.spec.replicas}} {{or .status.updatedReplicas 0}} {{or .status.readyReplicas 0}} {{or .status.replicas 0}} {{with .metadata.annotations}}{{or (index . "deployment.kubernetes.io/revision") 0}}{{else}}0{{end}}{{"\n"}}{{else if eq .kind "ReplicaSet"}}replicaset {{index .metadata.labels "pod-template-hash"}} {{with .metadata.annotations}}{{or (index . "deployment.kubernetes.io/revision") 0}}{{else}}0{{end}}{{"\n"}}{{else if not .metadata.deletionTimestamp}}pod {{.metadata.name}} {{index .metadata.labels "pod-template-hash"}} {{.status.phase}} {{range .status.containerStatuses}}{{.restartCount}} {{with .state.waiting}}{{.reason}}{{else}}-{{end}}{{else}}0 -{{end}}{{"\n"}}{{end}}{{end}}'

# agent_await waits until the agent is ready, which says that it is registered
# and its tunnel is up. It answers 1 with agent_trouble set when it will not be.
agent_trouble=""
agent_await() {
  local deadline=$((SECONDS + PIPEOPS_WAIT)) seen="" now=""
  agent_trouble=""
  step "waiting until the agent is registered and its tunnel is up"
  while :; do
    agent_look
    now="$agent_phase"
    if [[ $now != "$seen" ]]; then
      say "    $now (${SECONDS} s)"
      seen="$now"
    fi
    [[ $agent_ready == no ]] || return 0
    [[ -z $agent_trouble ]] || return 1
    if ((SECONDS >= deadline)); then
      agent_trouble="it was not ready after $PIPEOPS_WAIT s ($now)"
      return 1
    fi
    sleep 0.5
  done
}

# agent_look reads where the agent is. Its newest pods tell: in an update those from
# before go on beside them, and may be the very ones that are being replaced.
agent_ready=no agent_phase="" agent_pod=""
agent_look() {
  local kind a b c d e f g out newest="" revision=""
  agent_ready=no agent_phase="no pod yet" agent_pod=""
  out="$("${kube[@]}" -n "$NAMESPACE" get deployments,replicasets,pods -l "$AGENT_SELECTOR" -o "$AGENT_TEMPLATE" 2>/dev/null)" || {
    agent_phase="the cluster does not answer"
    return 0
  }
  while read -r kind a b c d e f g; do
    case "$kind" in
      deployment)
        [[ $a != "$b" ]] || revision="$g"
        [[ $a == "$b" && $c == "$d" && $c == "$e" && $c == "$f" ]] && agent_ready=yes agent_phase="registered, tunnel up"
        ;;
      replicaset) [[ $b != "$revision" ]] || newest="$a" ;;
      pod)
        [[ $b == "$newest" ]] || continue
        agent_pod="$a"
        [[ $agent_ready == yes ]] || agent_pod_look "$c" "$d" "$e"
        ;;
    esac
  done <<<"$out"
  return 0
}

# agent_pod_look PHASE RESTARTS WAITING
agent_pod_look() {
  case "$3" in
    ErrImagePull | ImagePullBackOff | InvalidImageName | ErrImageNeverPull)
      agent_phase="the image cannot be pulled"
      agent_trouble="its image cannot be pulled ($3)"
      ;;
    CreateContainerConfigError | CreateContainerError | RunContainerError)
      agent_phase="$3"
      agent_trouble="its container cannot be created ($3)"
      ;;
    CrashLoopBackOff)
      agent_phase="it ends again and again"
      agent_trouble="it ends again and again"
      ;;
    ContainerCreating | PodInitializing) agent_phase="pulling the image" ;;
    *)
      agent_phase="pod is $1"
      [[ $1 != Running ]] || agent_registering
      if (($2 >= 2)); then
        agent_trouble="it has ended $2 times"
      fi
      ;;
  esac
}

# agent_registering tells registering from waiting for an operator, by the agent's last log line of
# it: where the token was made with --approve, an operator decides.
HELD='"(approval_pending|enrolment_denied)"|identity issued and stored'
agent_registering() {
  local words command
  agent_phase="running, registering with the control plane"
  words="$("${kube[@]}" -n "$NAMESPACE" logs "$agent_pod" --tail 50 2>/dev/null | grep -E "$HELD" | tail -n 1)" || return 0
  command="$(held_command "$words")"
  case "$words" in
    *approval_pending*) agent_phase="waiting for approval${command:+: on the control plane, $command}" ;;
    *enrolment_denied*)
      agent_phase="denied by the operator"
      agent_trouble="the operator of the control plane has denied it"
      ;;
  esac
}

# held_command WORDS OTHERWISE is the command that ends the wait, as the agent has said it.
held_command() {
  local found
  found="$(grep -oE 'pipeops-controlplane agent approve [a-z2-7]+' <<<"$1" | tail -n 1)" || true
  printf '%s' "${found:-${2:-}}"
}

# agent_failed says what is wrong: the pod's state, and what the agent said last.
agent_failed() {
  local words="" number why fix
  if [[ -n $agent_pod ]]; then
    words="$("${kube[@]}" -n "$NAMESPACE" logs "$agent_pod" --tail 8 2>/dev/null)" || true
    [[ -n $words ]] || words="$("${kube[@]}" -n "$NAMESPACE" logs "$agent_pod" --previous --tail 8 2>/dev/null)" || true
    [[ -n $words ]] || words="$("${kube[@]}" -n "$NAMESPACE" get events --field-selector "involvedObject.name=$agent_pod" \
      -o 'go-template={{range .items}}{{.reason}}: {{.message}}{{"\n"}}{{end}}' 2>/dev/null | tail -n 4)" || true
  fi
  say "the agent's last words:" >&2
  say "${words:-    (none)}" >&2
  agent_explain "$words"
  fail "$EXIT_AGENT" "$number" "the agent is installed, but not registered: $agent_trouble" "$why" "$fix"
}

# agent_explain sets number, why and fix from what the agent said.
agent_explain() {
  number=PO-9301 why="see its last words above"
  fix="${kube[*]} -n $NAMESPACE describe pod -l $AGENT_SELECTOR"
  case "$1" in
    *enrolment_denied*)
      number=PO-4011 why="the operator of the control plane has denied this agent"
      fix="ask the operator, who can still do: $(held_command "$1" "pipeops-controlplane agent approve ID")"
      ;;
    *approval_pending*)
      number=PO-4010 why="its token is one whose registrations an operator approves"
      fix="on the control plane: $(held_command "$1" "pipeops-controlplane agent list"); the agent continues by itself then"
      ;;
    *"'s clock"*)
      number=PO-4009 why="this machine's clock and the control plane's do not agree" fix="timedatectl set-ntp true; date -u"
      ;;
    *"no such host"* | *"server misbehaving"*)
      number=PO-9302 why="the cluster's DNS does not know the control plane's name" fix="check PIPEOPS_CONTROL_PLANE_URL: getent hosts ${PIPEOPS_CONTROL_PLANE_URL#https://}"
      ;;
    *"connection refused"* | *"i/o timeout"* | *"no route"* | *"deadline exceeded"*)
      number=PO-9303 why="pods do not reach the control plane at $PIPEOPS_CONTROL_PLANE_URL" fix="open the firewall for it and its tunnel port outwards, or set HTTPS_PROXY; then: install.sh doctor"
      ;;
    *AGENT_TOKEN* | *"enrolment token"* | *"of this token"*)
      number=PO-9304 why="the control plane does not accept the token" fix="make a new one (pipeops-controlplane token create), set AGENT_TOKEN, run this again"
      ;;
    *x509*)
      number=PO-4015 why="the control plane's certificate is not trusted" fix="set PIPEOPS_CA_FILE to the CA that signed it, and run this again"
      ;;
    *ErrImagePull* | *ImagePullBackOff* | *"pull image"*)
      number=PO-9305 why="the image cannot be had: no way to the registry, or no such version" fix="set PIPEOPS_REGISTRY_MIRROR or PIPEOPS_IMAGE, or use an offline bundle"
      ;;
  esac
}

# ---------------------------------------------------------------- components
# What a cluster lacks (docs/cluster-owner/components.md). A Job of the agent's image installs it, with rights
# that go with the Job. Nothing waits for the components' own pods.

COMPONENTS_JOB=pipeops-components
# A test compares both with internal/components.
COMPONENTS_KNOWN=(storage cert-manager ingress vpa prometheus loki grafana opencost istio metrics-server)
COMPONENTS_NAMESPACES=(local-path-storage cert-manager nginx-ingress vpa istio-system)
COMPONENTS_WAIT=600

components_wanted=none components_running=no

# components_valid says whether COMPONENTS is a set or a list of components.
components_valid() {
  local name names
  case "$COMPONENTS" in "" | none | minimal | default | full) return 0 ;; esac
  IFS=', ' read -r -a names <<<"$COMPONENTS"
  for name in "${names[@]}"; do
    [[ " ${COMPONENTS_KNOWN[*]} " == *" $name "* ]] || return 1
  done
  COMPONENTS="$(IFS=, && echo "${names[*]}")"
}

# components_choose: in a cluster that this script has set up, the set of the preset once, or of one
# that is named; in one of others only what COMPONENTS names.
components_choose() {
  components_wanted="${COMPONENTS:-$(preset_components)}"
  if [[ -z $COMPONENTS && $decided == existing ]] || [[ -z $COMPONENTS$preset_named && -n $(state_names components-done) ]]; then
    components_wanted=none
  fi
  [[ -n $PIPEOPS_BUNDLE && $components_wanted != none ]] || return 0
  if compgen -G "$PIPEOPS_BUNDLE/charts/*.tgz" >/dev/null; then return 0; fi
  [[ -z $COMPONENTS ]] || fail "$EXIT_NETWORK" PO-9110 "the bundle has no charts of components" "it was made without them" \
    "make one that has: make bundle VERSION=$PIPEOPS_VERSION; or COMPONENTS=none"
  say "    note: no components are installed, as the bundle has no charts"
  components_wanted=none
}

# components_start has the Job begin, which continues while the agent registers.
components_start() {
  components_choose
  [[ $components_wanted != none ]] || return 0
  step "components: $components_wanted (COMPONENTS=none leaves them out)"
  ! would "install those that the cluster lacks, by a Job of the agent's image" || return 0
  components_verify
  [[ $decided != k3s ]] || k3s_settled
  components_before
  # Where the gateway is, an ingress controller would find its ports taken.
  local except=()
  [[ $with_control_plane == no || -n $COMPONENTS ]] || except=(--except ingress)
  components_job "$tmp_dir/agent.yaml" install --set "$components_wanted" "${except[@]}"
}

# components_present sets REPLY to the components that are installed, in a line.
components_present() {
  kube_read get secrets --all-namespaces -l owner=helm,pipeops.io/component \
    -o 'go-template={{range .items}}{{index .metadata.labels "pipeops.io/component"}}{{"\n"}}{{end}}' || return 1
  REPLY="$(sort -u <<<"$REPLY" | paste -sd ' ' - | sed 's/^ *//')"
}

# components_before notes down, once, what was there before this script installed any.
components_before() {
  local name
  [[ -z $(state_names components-before) ]] || return 0
  components_present || fail "$EXIT_CLUSTER" PO-9204 "the installed components cannot be listed" "kubectl says: $last_output" "use an administrator's kubeconfig, or COMPONENTS=none"
  record components-before "${REPLY:-none}"
  for name in "${COMPONENTS_NAMESPACES[@]}"; do
    [[ $namespaces_known == *";$name="* || $namespaces_known == "$name="* ]] || record namespace "$name"
  done
}

# components_added sets REPLY to those that are installed and were not before.
components_added() {
  local before name added=()
  before=" $(state_names components-before) "
  components_present || return 1
  for name in $REPLY; do
    [[ $before == *" $name "* ]] || added+=("$name")
  done
  REPLY="${added[*]}"
}

# components_job MANIFEST ARGUMENT... replaces the Job by a new one, with the agent's image in MANIFEST.
components_job() {
  local image code=0
  image="$(sed -n 's/^ *image: //p' "$1" | head -n 1)"
  shift
  components_end
  components_running=yes
  kube_apply_stdin < <(components_objects "$image" "$@") || code=$?
  ((code == 0)) || components_failed "the cluster refused the Job" "kubectl says: $last_output"
}

components_objects() {
  local image="$1" word arguments='"component"' charts=()
  shift
  if [[ -n $PIPEOPS_BUNDLE && $1 == install ]]; then
    set -- "$@" --charts /charts
  elif [[ -n $PIPEOPS_MIRROR && $1 == install ]]; then
    set -- "$@" --mirror "${PIPEOPS_MIRROR%/}/charts"
  fi
  for word in "$@"; do
    json_string "$word"
    arguments+=", $REPLY"
  done
  cat <<YAML
apiVersion: v1
kind: ServiceAccount
metadata: {name: $COMPONENTS_JOB, namespace: $NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "$COMPONENTS_JOB:$NAMESPACE"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: $COMPONENTS_JOB, namespace: $NAMESPACE}]
YAML
  [[ $1 != install ]] || components_charts
  cat <<YAML
---
apiVersion: batch/v1
kind: Job
metadata: {name: $COMPONENTS_JOB, namespace: $NAMESPACE}
spec:
  backoffLimit: 4 # for a network that is not there yet
  activeDeadlineSeconds: $COMPONENTS_WAIT
  template:
    spec:
      restartPolicy: Never
      serviceAccountName: $COMPONENTS_JOB
      tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule}]
      securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: components
          image: $image
          imagePullPolicy: IfNotPresent
          args: [$arguments]
          envFrom: [{configMapRef: {name: pipeops-agent}}]
          env:
            - name: HTTPS_PROXY
              valueFrom: {secretKeyRef: {name: pipeops-agent-proxy, key: HTTPS_PROXY, optional: true}}
            - {name: SSL_CERT_DIR, value: /etc/pipeops/ca} # in addition to the image's roots
          resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 512Mi}}
          terminationMessagePolicy: FallbackToLogsOnError
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
          volumeMounts:
            - {name: ca, mountPath: /etc/pipeops/ca, readOnly: true}
            - {name: charts, mountPath: /charts, readOnly: true}
      volumes:
        - {name: ca, configMap: {name: pipeops-agent-ca, optional: true}}
        - name: charts
          projected:
            sources: [$(IFS=, && echo "${charts[*]}")]
YAML
}

# components_verify compares the bundle's charts with its list of checksums.
components_verify() {
  local file name
  [[ -n $PIPEOPS_BUNDLE ]] || return 0
  for file in "$PIPEOPS_BUNDLE"/charts/*.tgz; do
    name="charts/${file##*/}"
    verify "$file" "$(sum_in "$PIPEOPS_BUNDLE/SHA256SUMS" "$name")" "$name"
  done
}

# components_charts prints a config map for each chart of the bundle, and adds to charts, in its caller.
components_charts() {
  local file name
  [[ -n $PIPEOPS_BUNDLE ]] || return 0
  for file in "$PIPEOPS_BUNDLE"/charts/*.tgz; do
    name="${file##*/}"
    charts+=("{configMap: {name: $COMPONENTS_JOB-${name%.tgz}}}")
    printf -- '---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: %s\n  labels: {app.kubernetes.io/name: %s}\nbinaryData:\n  %s: ' \
      "$COMPONENTS_JOB-${name%.tgz}" "$NAMESPACE" "$COMPONENTS_JOB" "$name"
    base64 <"$file" | tr -d '\n'
    echo
  done
}

JOB_TEMPLATE='go-template={{range .status.conditions}}{{if eq .status "True"}}{{.type}} {{end}}{{end}}'

# components_await shows what the Job says until it ends.
components_await() {
  local deadline=$((SECONDS + COMPONENTS_WAIT)) shown=0
  while :; do
    REPLY=""
    kube_read -n "$NAMESPACE" get "job/$COMPONENTS_JOB" -o "$JOB_TEMPLATE" || true
    local conditions="$REPLY"
    components_show
    case "$conditions" in
      *Complete*) break ;;
      *Failed*) components_failed "the Job failed" "${components_said:-it has said nothing: its image cannot be had, or its pod was not started}" ;;
    esac
    ((SECONDS < deadline)) || components_failed "the Job has not ended after $COMPONENTS_WAIT s" "${components_said:-its pod does not run}"
    sleep 1
  done
  components_end
}

# components_show says what is new in the log of the Job's newest pod.
components_said=""
components_show() {
  local pod line lines=()
  kube_read -n "$NAMESPACE" get pods -l "job-name=$COMPONENTS_JOB" --sort-by=.metadata.creationTimestamp \
    -o 'go-template={{range .items}}{{.metadata.name}}{{"\n"}}{{end}}' || return 0
  pod="$(tail -n 1 <<<"$REPLY")"
  [[ -n $pod ]] || return 0
  [[ $pod == "${components_pod:-}" ]] || components_pod="$pod" shown=0
  kube_read -n "$NAMESPACE" logs "$pod" || return 0
  [[ -n $REPLY ]] || return 0
  mapfile -t lines <<<"$REPLY"
  for line in "${lines[@]:shown}"; do
    say "    $line"
    components_said="$line"
  done
  shown="${#lines[@]}"
}

components_failed() {
  local what="$1" why="$2"
  components_end
  fail "$EXIT_COMPONENTS" PO-9308 "not all components are installed: $what" "$why" \
    "fix that, and run this again: it continues from there; COMPONENTS=none leaves them out"
}

# components_end takes away the Job and its rights.
components_end() {
  components_running=no
  logged "${kube[@]}" delete clusterrolebinding "$COMPONENTS_JOB:$NAMESPACE" --ignore-not-found || true
  logged "${kube[@]}" -n "$NAMESPACE" delete job "$COMPONENTS_JOB" --ignore-not-found --cascade=foreground --timeout 60s || true
  logged "${kube[@]}" -n "$NAMESPACE" delete serviceaccount "$COMPONENTS_JOB" --ignore-not-found || true
  logged "${kube[@]}" -n "$NAMESPACE" delete configmap -l "app.kubernetes.io/name=$COMPONENTS_JOB" --ignore-not-found || true
}

# components_finish is for when the agent is registered.
components_finish() {
  local name
  [[ $components_wanted != none ]] || return 0
  step "waiting until the components' objects are there; their pods start by themselves"
  components_await
  components_added || fail "$EXIT_CLUSTER" PO-9204 "the installed components cannot be listed" "kubectl says: $last_output" "run this again"
  for name in $REPLY; do record component "$name"; done
  record components-done "$components_wanted"
}

# uninstall_components takes away what components_start has brought, before the agent, whose image
# the Job has. Volumes and resource definitions stay, as `pipeops-agent component delete` has it.
uninstall_components() {
  local name present names=()
  [[ -n $(state_names components-before) ]] || return 0
  components_added || uninstall_blind "which components are installed"
  present="$REPLY"
  for name in $present; do
    # Of a run that broke off nothing more is known than what is there.
    if [[ -z $(state_names components-done) ]] || state_has component "$name"; then names+=("$name"); fi
  done
  ((${#names[@]} > 0)) || return 0
  step "components: ${names[*]}"
  components_job "$STATE_DIR/agent.yaml" delete "${names[@]}"
  components_await
}

# ---------------------------------------------------------------- one server
# The control plane as a service of this machine (docs/get-started/server.md): its settings, its
# programs, and what root needs to use it.

CONTROL_PLANE_UNITS=/etc/systemd/system
CONTROL_PLANE_UNIT=pipeops-controlplane.service
CONTROL_PLANE_ENV=/etc/pipeops/server.env            # ours
CONTROL_PLANE_USER_ENV=/etc/pipeops/controlplane.env # the user's, which counts more
CONTROL_PLANE_DATA=/var/lib/pipeops-controlplane
CONTROL_PLANE_PORTS="80 443 7000 8443 8444"
LETS_ENCRYPT=https://acme-v02.api.letsencrypt.org/directory

# server_settings completes the settings: what is given now, else what an earlier run was given, else
# what this machine suggests, which may differ from run to run.
server_settings() {
  local name
  for name in "${SERVER_SETTINGS[@]}"; do
    [[ -n ${!name:-} || ! -r $STATE_DIR/server ]] || printf -v "$name" %s "$(sed -n "s|^$name=||p" "$STATE_DIR/server" | head -n 1)"
  done
  CLUSTER_NAME="${CLUSTER_NAME:-$(server_name)}" # and stays: the agent is known by it
  server_given="$(for name in "${SERVER_SETTINGS[@]}"; do printf '%s=%s\n' "$name" "${!name:-}"; done)"
  PIPEOPS_ADDRESS="${PIPEOPS_ADDRESS:-${facts[ADDRESS]:-}}"
  PIPEOPS_DOMAIN="${PIPEOPS_DOMAIN:-$(server_free_domain)}"
  PIPEOPS_CONTROL_PLANE_URL="https://$PIPEOPS_ADDRESS:8443"
}
SERVER_SETTINGS=(PIPEOPS_ADDRESS CLUSTER_NAME PIPEOPS_DOMAIN PIPEOPS_NAME_SERVICE PIPEOPS_GATEWAY_CA)
server_given=""

# server_name is the host's name, in the form of a cluster's.
server_name() {
  local name
  name="$(hostname 2>/dev/null | cut -d . -f 1 | tr '[:upper:]' '[:lower:]' | tr -cd 'a-z0-9-' | sed 's/^-*//; s/-*$//')"
  echo "${name:-server}"
}

# server_free_domain is a domain that needs no set-up: a public DNS service answers for it with the
# address in its first label.
server_free_domain() {
  local service="${PIPEOPS_NAME_SERVICE:-sslip.io}"
  [[ $service != none && $PIPEOPS_ADDRESS =~ ^[0-9]+(\.[0-9]+){3}$ ]] || return 0
  echo "${PIPEOPS_ADDRESS//./-}.$service"
}

# server_check prints what is wrong with the settings of a server, a line each.
server_check() {
  [[ $PIPEOPS_ADDRESS =~ ^[A-Za-z0-9.:-]+$ && $PIPEOPS_ADDRESS != *:* ]] ||
    echo "PIPEOPS_ADDRESS=$PIPEOPS_ADDRESS: name this machine's IPv4 address or host name (--address)"
  [[ $PIPEOPS_DOMAIN =~ ^[a-z0-9-]+(\.[a-z0-9-]+)+$ ]] ||
    echo "PIPEOPS_DOMAIN=$PIPEOPS_DOMAIN: name a domain for Apps, for which *.DOMAIN leads to this machine in DNS (--domain apps.example.com)"
  [[ $PIPEOPS_NAME_SERVICE =~ ^[a-z0-9.-]*$ ]] ||
    echo "PIPEOPS_NAME_SERVICE=$PIPEOPS_NAME_SERVICE: use none, or the domain of a service like sslip.io"
  [[ -z $PIPEOPS_GATEWAY_CA || $PIPEOPS_GATEWAY_CA == internal || $PIPEOPS_GATEWAY_CA =~ ^https://[^[:space:]]+$ ]] ||
    echo "PIPEOPS_GATEWAY_CA=$PIPEOPS_GATEWAY_CA: use internal, or the https URL of an ACME directory"
}

# address_private ADDRESS: only machines of its network reach it (RFC 1918, 3927, 6598).
address_private() {
  [[ $1 =~ ^(10\.|127\.|169\.254\.|192\.168\.|172\.(1[6-9]|2[0-9]|3[01])\.|100\.(6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\.) ]]
}

# server_ca chooses who signs the certificates of Apps: Let's Encrypt, if it can reach this machine
# and this machine reaches it. Once chosen, it stays while it can reach this machine.
server_ca() {
  [[ -z $PIPEOPS_GATEWAY_CA ]] || return 0
  PIPEOPS_GATEWAY_CA=internal
  # The control plane has no proxy. Nothing from outside reaches a private address.
  if [[ -n $PIPEOPS_BUNDLE || -n ${facts[PROXY]:-} ]]; then return 0; fi
  if address_private "$PIPEOPS_ADDRESS" && [[ $PIPEOPS_DOMAIN == "$(server_free_domain)" ]]; then return 0; fi
  if grep -qsxF "PIPEOPS_GATEWAY_CA=$LETS_ENCRYPT" "$CONTROL_PLANE_ENV"; then
    PIPEOPS_GATEWAY_CA="$LETS_ENCRYPT"
    return 0
  fi
  ca_arguments
  ! logged curl -fsS --proto '=https' --connect-timeout 5 --max-time 15 "${ca_args[@]}" -o /dev/null "$LETS_ENCRYPT" ||
    PIPEOPS_GATEWAY_CA="$LETS_ENCRYPT"
}

# controlplane_ensure brings the control plane to the wanted version and settings, and starts it.
controlplane_ensure() {
  step "the control plane $PIPEOPS_VERSION at $PIPEOPS_CONTROL_PLANE_URL"
  ! would "install pipeops-controlplane, pipeops-runner and pipeops-agent, and start the control plane as a service" || return 0
  record controlplane service
  printf '%s\n' "$server_given" >"$STATE_DIR/server"
  server_ca
  controlplane_programs
  controlplane_config | put "$CONTROL_PLANE_ENV" 0600
  [[ -e $CONTROL_PLANE_USER_ENV ]] || echo "# Your settings of the control plane. They count more than those in $CONTROL_PLANE_ENV." | put "$CONTROL_PLANE_USER_ENV" 0600
  controlplane_dropin | put "$CONTROL_PLANE_UNITS/$CONTROL_PLANE_UNIT.d/server.conf" 0644
  # What the last start was of: a run that was interrupted before has left another sum.
  if [[ $(state_names started) == "$(controlplane_files)" ]] && systemctl is-active --quiet "$CONTROL_PLANE_UNIT"; then
    say "    it is installed and runs"
    return 0
  fi
  logged systemctl daemon-reload || true
  logged systemctl enable "$CONTROL_PLANE_UNIT" || true
  # The unit reports that it has started when agents are served.
  logged systemctl restart "$CONTROL_PLANE_UNIT" || controlplane_failed
  logged systemctl enable --now pipeops-controlplane-backup.timer || true
  state_replace started "$(controlplane_files)"
  rm -rf "$STATE_DIR/programs.before"
}

# controlplane_failed restores the earlier programs, if there are any.
controlplane_failed() {
  local name back=""
  logged journalctl -u "$CONTROL_PLANE_UNIT" -n 15 --no-pager -o cat || true
  local words="${last_output:-nothing}"
  if [[ -d $STATE_DIR/programs.before ]]; then
    for name in "${CONTROL_PLANE_PROGRAMS[@]}"; do
      [[ ! -x $STATE_DIR/programs.before/$name ]] || cp -p "$STATE_DIR/programs.before/$name" "$bin_dir/$name"
    done
    state_replace programs "before"
    back="; the version before does not start either"
    ! logged systemctl restart "$CONTROL_PLANE_UNIT" || back="; the version before runs again"
  fi
  fail "$EXIT_CONTROL_PLANE" PO-9205 "the control plane did not start$back" "it says: $words" "journalctl -u pipeops-controlplane -n 50 --no-pager"
}
CONTROL_PLANE_PROGRAMS=(pipeops-controlplane pipeops-runner pipeops-agent)

# controlplane_files prints a checksum of all that the service consists of.
controlplane_files() {
  { cat "$bin_dir/pipeops-controlplane" "$CONTROL_PLANE_UNITS"/pipeops-controlplane*.service "$CONTROL_PLANE_UNITS"/pipeops-controlplane*.timer \
    "$CONTROL_PLANE_UNITS/$CONTROL_PLANE_UNIT.d/server.conf" "$CONTROL_PLANE_ENV" "$CONTROL_PLANE_USER_ENV" 2>/dev/null || true; } |
    sha256sum | cut -d ' ' -f 1
}

controlplane_config() {
  cat <<ENV
# Made by PipeOps' install.sh server. Settings of yours go into $CONTROL_PLANE_USER_ENV.
PIPEOPS_ADVERTISE_API=https://$PIPEOPS_ADDRESS:8443
PIPEOPS_ADVERTISE_TUNNEL=$PIPEOPS_ADDRESS:7000
PIPEOPS_ADVERTISE_EDGE=$PIPEOPS_ADDRESS:8444
PIPEOPS_GATEWAY_DOMAIN=$PIPEOPS_DOMAIN
PIPEOPS_GATEWAY_CONSOLE=true
PIPEOPS_GATEWAY_CA=$PIPEOPS_GATEWAY_CA
ENV
}

controlplane_dropin() {
  cat <<UNIT
# Made by PipeOps' install.sh server.
[Service]
EnvironmentFile=
EnvironmentFile=$CONTROL_PLANE_ENV
EnvironmentFile=-$CONTROL_PLANE_USER_ENV
UNIT
}

# controlplane_programs installs the programs and the units of a release's archive.
controlplane_programs() {
  local name
  if [[ $(state_names programs) == "$PIPEOPS_VERSION" && -x $bin_dir/pipeops-controlplane && -x $bin_dir/pipeops-runner && -x $bin_dir/pipeops-agent ]]; then
    return 0
  fi
  programs_fetch linux
  if [[ -n $(state_names programs) && ! -d $STATE_DIR/programs.before ]]; then
    mkdir -p "$STATE_DIR/programs.before"
    for name in "${CONTROL_PLANE_PROGRAMS[@]}"; do
      [[ ! -x $bin_dir/$name ]] || cp -p "$bin_dir/$name" "$STATE_DIR/programs.before/"
    done
  fi
  for name in "${CONTROL_PLANE_PROGRAMS[@]}"; do
    program_install "$name" "$tmp_dir/programs/$name"
  done
  for name in "$CONTROL_PLANE_UNIT" pipeops-controlplane-backup.service pipeops-controlplane-backup.timer; do
    put "$CONTROL_PLANE_UNITS/$name" 0644 <"$tmp_dir/programs/deployments/systemd/$name"
  done
  state_replace programs "$PIPEOPS_VERSION"
}

# as_root runs a program of ours as root's own login would: sudo -E keeps the home of another user.
as_root() { env -u XDG_CONFIG_HOME -u PIPEOPS_CONTEXT -u PIPEOPS_RUNNER_CREDENTIALS HOME="$(root_home)" "$@"; }

root_home() { getent passwd 0 | cut -d : -f 6; }

# server_token makes the token of the agent on this machine, if it has to register.
server_token() {
  ! agent_registered || return 0
  AGENT_TOKEN="$(as_root "$bin_dir/pipeops-controlplane" token create --name "$CLUSTER_NAME" 2>"$tmp_dir/why")" ||
    fail "$EXIT_CONTROL_PLANE" PO-9205 "the control plane gave no token" "it says: $(tail -n 3 "$tmp_dir/why")" "pipeops-controlplane ready"
}

# server_access gives root the command lines, once for a name: as an operator, and as a Runner.
server_access() {
  local runner contexts
  runner="$(root_runner "$CLUSTER_NAME")"
  ! state_has access "$CLUSTER_NAME" || return 0
  step "root's command lines"
  contexts="$(root_home)/.config/pipeops"
  make_dir "${contexts%/*}"
  [[ -e $contexts ]] || record tree "$contexts"
  logged as_root "$bin_dir/pipeops-controlplane" login "$CONTROL_PLANE_DATA/admin.json" --context "$runner" ||
    fail "$EXIT_CONTROL_PLANE" PO-9205 "root cannot sign in" "pipeops-controlplane says: $last_output" "pipeops-controlplane ready"
  # The credentials go from one to the other, past files and arguments.
  as_root "$bin_dir/pipeops-controlplane" runner create "$runner" --force -o - 2>"$tmp_dir/why" |
    as_root "$bin_dir/pipeops-runner" login - --agent "$CLUSTER_NAME" >>"$tmp_dir/why" 2>&1 ||
    fail "$EXIT_CONTROL_PLANE" PO-9205 "root gets no credentials of a Runner" "$(tail -n 3 "$tmp_dir/why")" "pipeops-controlplane ready"
  record access "$CLUSTER_NAME"
}

# root_runner NAME is what root is called as a Runner, and its contexts: at most 63 characters.
root_runner() { echo "${1:0:58}-root"; }

# access_remove takes away root's contexts. Those of other control planes stay.
access_remove() {
  local name
  [[ -x $bin_dir/pipeops-runner && -x $bin_dir/pipeops-controlplane ]] || return 0
  for name in $(state_names access); do
    logged as_root "$bin_dir/pipeops-runner" context delete "$(root_runner "$name")" || true
    logged as_root "$bin_dir/pipeops-controlplane" context delete "$(root_runner "$name")" || true
  done
  [[ -z "$(as_root "$bin_dir/pipeops-runner" context list -o name 2>/dev/null)$(as_root "$bin_dir/pipeops-controlplane" context list -o name 2>/dev/null)" ]] || access_kept=yes
}
access_kept=no

# server_sample deploys an App from the agent's image, once, so that a public URL answers.
server_sample() {
  local image
  ! state_has sample hello || return 0
  step "a sample App"
  image="$(sed -n 's/^ *image: //p' "$tmp_dir/agent.yaml" | head -n 1)"
  if logged as_root "$bin_dir/pipeops-runner" deploy hello --image "$image" --port 8080 --probe-path / --memory 16Mi:64Mi --public -- sample; then
    record sample hello
    return 0
  fi
  say "    note: it was not deployed: ${last_output%%$'\n'*} (see: pipeops-runner status hello; the next run tries again)"
}

# server_url prints the sample's URL, or nothing.
server_url() {
  as_root "$bin_dir/pipeops-runner" status hello -o 'jsonpath={.status.publicUrls[0]}' 2>/dev/null || true
}

# server_told prints what a person does next. The link signs one browser in, so the log leaves it out.
server_told() {
  local link url
  link="$(as_root "$bin_dir/pipeops-controlplane" console --no-browser 2>/dev/null)" || true
  url="$(server_url)"
  say "==> done, after $SECONDS s"
  printf '    console:   %s\n' "${link:-pipeops-controlplane console}"
  [[ -z $url ]] || say "    sample:    $url"
  say "    deploy:    pipeops-runner deploy web --image docker.io/nginxinc/nginx-unprivileged:1.29 --port 8080 --public"
  say "    laptop:    ssh root@$PIPEOPS_ADDRESS pipeops-controlplane runner create laptop -o - | pipeops-runner login - --agent $CLUSTER_NAME"
  say "    a machine: pipeops-controlplane token create"
  if [[ $PIPEOPS_GATEWAY_CA == internal ]]; then
    say "    note: browsers do not trust the certificates yet: import what this prints: pipeops-controlplane gateway ca get"
  fi
  say "    ports:     80, 443 (also UDP), 7000, 8443 and 8444 have to be open"
}

controlplane_remove() {
  [[ -n $(state_names controlplane) ]] || return 0
  step "the control plane with its CA and its database"
  access_remove
  logged systemctl disable --now "$CONTROL_PLANE_UNIT" pipeops-controlplane-backup.timer || true
  rm -rf /var/lib/private/pipeops-controlplane* "$CONTROL_PLANE_DATA" "$CONTROL_PLANE_DATA"-backup
}

# ---------------------------------------------------------------- install

command_install() {
  if [[ -z $facts_file ]]; then
    facts_collect
    [[ $with_control_plane == no ]] || server_settings
    settings_check
  else
    facts_replay "$facts_file"
    [[ $with_control_plane == no ]] || server_settings
  fi
  decide
  decision_print
  decision_require
  state_open
  [[ $dry_run == yes ]] || preflight
  if [[ $NODE_TYPE == agent ]]; then
    install_worker
  else
    install_server
  fi
}

install_server() {
  case "$decided" in
    k3s)
      k3s_ensure
      kube_use
      [[ $dry_run == yes ]] || k3s_await
      ;;
    existing)
      kube_use
      step "cluster: ${kube[*]}"
      ;;
    *) docker_cluster_ensure ;;
  esac
  [[ $dry_run == yes || $decided == k3s ]] || kube_reachable
  [[ $with_control_plane == no ]] || server_ready
  kube_apply
  components_start
  if [[ $dry_run == yes ]]; then
    say "==> nothing was changed: this was a dry run"
    return 0
  fi
  if ! agent_await; then agent_failed; fi
  [[ $with_control_plane == no ]] || {
    server_finish
    return
  }
  say "==> $CLUSTER_NAME is registered with $PIPEOPS_CONTROL_PLANE_URL, after $SECONDS s"
  say "    kubectl:    ${kube[*]}"
  say "    dashboard:  pipeops-agent dashboard    (docs/cluster-owner/dashboard.md)"
  say "    workers:    bash join-worker.sh SERVER TOKEN    (docs/cluster-owner/install.md)"
  say "    installed:  $STATE_DIR/installed"
  say "    log:        ${log_to:-none}"
  components_finish
}

install_worker() {
  k3s_ensure
  [[ $dry_run == no ]] || {
    say "==> nothing was changed: this was a dry run"
    return 0
  }
  k3s_await
  say "==> this worker has joined $K3S_URL, after $SECONDS s"
}

# preflight finds out, before anything is changed, whether it can work at all.
preflight() {
  command -v curl >/dev/null || fail "$EXIT_MACHINE" PO-9012 "curl is not installed" "downloads and checks need it" "$(install_hint curl)"
  [[ $NODE_TYPE == server && $with_control_plane == no ]] || return 0
  local code=0
  control_plane_date || code=$?
  ((code == 0)) || preflight_unreachable "$code"
  clock_check
}

# control_plane_date asks the control plane for its time. Nothing secret is sent
# and nothing but the time is believed, so an unknown CA is not a reason to stop:
# the agent itself knows the CA by the token, and checks.
control_plane_date() {
  ca_arguments
  logged curl -sS -k --connect-timeout 10 --max-time 20 -o /dev/null -D "$tmp_dir/headers" "${PIPEOPS_CONTROL_PLANE_URL%/}/healthz"
}

preflight_unreachable() {
  local host="${PIPEOPS_CONTROL_PLANE_URL#https://}" why fix
  host="${host%/}"
  local code="$1"
  [[ $last_output != *"Resolving timed out"* ]] || code=6
  case "$code" in
    5 | 6) why="its name cannot be resolved" fix="check PIPEOPS_CONTROL_PLANE_URL and DNS: getent hosts ${host%%:*}" ;;
    7 | 28) why="it does not answer: $last_output" fix="open the firewall outwards, or set HTTPS_PROXY: curl -vk $PIPEOPS_CONTROL_PLANE_URL/healthz" ;;
    *) why="$last_output" fix="curl -vk $PIPEOPS_CONTROL_PLANE_URL/healthz" ;;
  esac
  if [[ $decided == existing ]]; then
    say "note: this machine does not reach the control plane ($why); the cluster may"
    return 0
  fi
  fail "$EXIT_NETWORK" PO-9101 "the control plane at $PIPEOPS_CONTROL_PLANE_URL is not reached" "$why" "$fix"
}

MAX_CLOCK_DIFFERENCE=300

# clock_check compares this machine's clock with the control plane's.
clock_check() {
  local theirs difference
  clock_difference || return 0
  ((difference <= MAX_CLOCK_DIFFERENCE)) ||
    fail "$EXIT_MACHINE" PO-4009 "this machine's clock is $difference s off the control plane's ($theirs)" \
      "certificates are not valid yet, or not any more, by a wrong clock" "timedatectl set-ntp true    (or: date -s '$theirs')"
}

# clock_difference sets theirs and difference, in its caller.
clock_difference() {
  local seconds
  theirs="$(sed -n 's/^[Dd]ate: *//p' "$tmp_dir/headers" 2>/dev/null | tr -d '\r' | tail -n 1)"
  [[ -n $theirs ]] && seconds="$(date -d "$theirs" +%s 2>/dev/null)" || return 1
  number "$seconds" || return 1
  seconds="$REPLY"
  difference=$(($(date +%s) - seconds))
  difference="${difference#-}"
}

# ---------------------------------------------------------------- server

# command_server makes this machine a server: Kubernetes, the control plane and an agent. It differs
# from command_install in what the agent registers with, which is here.
command_server() {
  CLUSTER_TYPE=k3s with_control_plane=yes
  command_install
}

# server_ready is what an agent on this machine needs of its control plane.
server_ready() {
  controlplane_ensure
  [[ $dry_run == yes ]] || server_token
}

# server_finish gives root what it needs to begin.
server_finish() {
  local code=0
  server_access
  server_sample
  (components_finish) || code=$? # what follows is true without them
  components_running=no
  server_told
  ((code == 0)) || {
    failed=yes
    exit "$code"
  }
}

# ---------------------------------------------------------------- pipeops-runner

# command_runner puts pipeops-runner of a release into a folder. It keeps no state: a CI job ends with
# its machine.
command_runner() {
  local dir="${PIPEOPS_BIN_DIR:-$bin_dir}" system
  facts_system
  case "${facts[OS]}" in
    linux) system=linux ;;
    macos) system=darwin ;;
    *) fail "$EXIT_MACHINE" PO-9004 "there is no pipeops-runner for $(uname -s) here" "the script knows Linux and macOS" "unpack the version's archive: docs/get-started/cli.md" ;;
  esac
  tmp_open
  [[ $PIPEOPS_VERSION != dev ]] || newest_version
  step "pipeops-runner $PIPEOPS_VERSION"
  ! would "put it into $dir" || return 0
  programs_fetch "$system"
  logged install -m 0755 "$tmp_dir/programs/pipeops-runner" "$dir/pipeops-runner" ||
    fail "$EXIT_MACHINE" PO-9115 "$dir/pipeops-runner cannot be written" "$last_output" "run it as root, or set PIPEOPS_BIN_DIR to a folder of yours"
  say "    installed $dir/pipeops-runner"
}

# ---------------------------------------------------------------- uninstall

with_apps=no

# command_uninstall takes away what the state lists, in the reverse order.
command_uninstall() {
  ((EUID == 0)) || [[ -s $STATE_DIR/installed || ! -d /var/lib/pipeops-install ]] ||
    fail "$EXIT_ROOT" PO-9003 "root has installed what is on this machine" "only root can remove it" "sudo bash install.sh uninstall"
  [[ -s $STATE_DIR/installed ]] || {
    say "nothing to remove: $STATE_DIR/installed does not list anything"
    return 0
  }
  facts_collect
  step "to be removed, as listed in $STATE_DIR/installed"
  sed 's/^/    /' "$STATE_DIR/installed"
  [[ $dry_run == no ]] || return 0
  state_open
  uninstall_confirm
  local remains=()
  uninstall_cluster_objects
  uninstall_machine
  uninstall_restore
  uninstall_prove
}

uninstall_confirm() {
  local what="all that is listed above"
  [[ -z $(state_names k3s)$(state_names cluster) ]] || what="this Kubernetes with everything in it"
  [[ -z $(state_names controlplane) ]] || what+=", and the control plane with its CA, its database and their backups"
  ask "Remove $what?" ||
    fail "$EXIT_DECISION" PO-9017 "it was not confirmed" "without a terminal it cannot ask" "run it with --yes"
}

# uninstall_cluster_objects: in a cluster that stays. One that was made by us
# goes as a whole.
uninstall_cluster_objects() {
  local call
  call="$(state_names agent)"
  [[ -n $call && -z $(state_names k3s)$(state_names cluster) ]] || return 0
  read -r -a kube <<<"$call"
  kube_reachable
  uninstall_apps
  uninstall_components
  step "the agent's objects"
  # Namespaces have their own rule, and go last.
  manifest_without_namespaces "$STATE_DIR/agent.yaml" |
    "${kube[@]}" delete --ignore-not-found --wait=true -f - >"$tmp_dir/delete.log" 2>&1 || remains+=("objects of the agent: $(tail -n 1 "$tmp_dir/delete.log")")
  logged "${kube[@]}" -n "$NAMESPACE" delete --ignore-not-found configmap/pipeops-agent configmap/pipeops-agent-ca secret/pipeops-agent \
    secret/pipeops-agent-proxy || true
  say "$(sed 's/^/    /' "$tmp_dir/delete.log")"
  uninstall_namespaces
  uninstall_cluster_prove
}

# uninstall_apps: Apps are taken down by the agent, so they go before it. What
# cannot be listed may be there: nothing is deleted on a guess.
uninstall_apps() {
  local apps
  kube_read get customresourcedefinitions/apps.pipeops.io --ignore-not-found -o name || uninstall_blind "whether Apps are known here"
  [[ -n $REPLY ]] || return 0
  kube_read get apps.pipeops.io --all-namespaces -o 'go-template={{range .items}}{{.metadata.namespace}}/{{.metadata.name}} {{end}}' || uninstall_blind "Apps"
  apps="$REPLY"
  [[ -n $apps ]] || return 0
  [[ $with_apps == yes ]] || fail "$EXIT_DECISION" PO-9401 "Apps run in this cluster: $apps" "without the agent's definition of an App they would all be deleted" \
    "delete them with it: install.sh uninstall --with-apps"
  step "Apps: $apps"
  logged "${kube[@]}" delete apps.pipeops.io --all --all-namespaces --cascade=foreground --timeout "${PIPEOPS_WAIT}s" ||
    fail "$EXIT_REMAINS" PO-9402 "Apps could not be deleted" "kubectl says: $last_output" "is the agent running? ${kube[*]} -n $NAMESPACE get pods"
}

# uninstall_blind WHAT ends it before anything was deleted.
uninstall_blind() {
  fail "$EXIT_CLUSTER" PO-9403 "the cluster does not tell: $1" "kubectl says: $last_output; what is not seen could be deleted, so nothing was" \
    "fix that, or use an administrator's kubeconfig, and run it again: ${kube[*]} get apps.pipeops.io --all-namespaces"
}

# manifest_without_namespaces leaves out the documents of kind Namespace.
manifest_without_namespaces() {
  awk 'function flush() {if (doc !~ /\nkind: Namespace\n/) printf "---\n%s", doc; doc = "\n"}
    BEGIN {doc = "\n"} /^---$/ {flush(); next} {doc = doc $0 "\n"} END {flush()}' "$1"
}

# uninstall_namespaces deletes those that we made, all at once: Kubernetes takes
# more than five seconds for each.
uninstall_namespaces() {
  local name kinds empty=()
  [[ -n $(state_names namespace) ]] || return 0
  namespaced_kinds || {
    remains+=("the namespaces, as the cluster does not tell what can be in them: $last_output")
    return 0
  }
  for name in $(state_names namespace); do
    if namespace_empty "$name" "$kinds"; then empty+=("$name"); fi
  done
  ((${#empty[@]} > 0)) || return 0
  logged "${kube[@]}" delete namespace "${empty[@]}" --ignore-not-found --timeout "${PIPEOPS_WAIT}s" || remains+=("of the namespaces ${empty[*]}: $last_output")
  say "    namespaces ${empty[*]}"
}

# namespaced_kinds sets kinds, in its caller, to all that a namespace can hold. Not
# counted: events and measurements, which come by themselves, Endpoints, which go
# with their Service, and Apps, which are gone by now with their definition.
namespaced_kinds() {
  kube_read api-resources --verbs=list --namespaced -o name || return 1
  kinds="$(grep -v -e '^events$' -e '^events\.events\.k8s\.io$' -e '\.metrics\.k8s\.io$' -e '^endpoints$' -e '^apps\.pipeops\.io$' <<<"$REPLY" | paste -sd , -)" || true
  [[ -n $kinds ]] || {
    last_output="kubectl api-resources lists nothing"
    return 1
  }
}

# A line an object: KIND/NAME, who manages it, and what owns it.
CONTENT_TEMPLATE='go-template={{range .items}}{{.kind}}/{{.metadata.name}}{{with .metadata.labels}}{{with index . "app.kubernetes.io/managed-by"}}|{{.}}{{end}}{{end}}{{range .metadata.ownerReferences}}<{{.kind}}{{end}}{{"\n"}}{{end}}'

# namespace_empty NAME KINDS returns whether a namespace has no objects of others. A namespace that
# cannot be read is kept.
namespace_empty() {
  local found
  kube_read -n "$1" get "$2" -o "$CONTENT_TEMPLATE" || {
    remains+=("the namespace $1, as the cluster does not tell what is in it: $last_output")
    return 1
  }
  found="$(uninstall_foreign <<<"$REPLY" | paste -sd ' ' -)"
  [[ -z $found ]] || {
    say "    kept the namespace $1: it has $found"
    return 1
  }
}

# uninstall_foreign passes what neither Kubernetes nor the agent has made. What is
# owned by something of a namespace goes with that, or is counted by it.
uninstall_foreign() {
  { grep -v -e '^$' -e '^ConfigMap/kube-root-ca.crt$' -e '^ServiceAccount/default$' \
    -e '^[A-Za-z]*/pipeops-agent' -e '^ConfigMap/pipeops-' -e '^ControllerRevision/.*|pipeops' \
    -e '<\(App\|Deployment\|ReplicaSet\|StatefulSet\|DaemonSet\|CronJob\|Job\|Service\|Pod\)$' || true; } | sed 's/[|<].*//'
}

# uninstall_cluster_prove: kubectl, which may be ours, and the list stay until the
# cluster is clear, so that the next run can go on.
uninstall_cluster_prove() {
  ((${#remains[@]} == 0)) || fail "$EXIT_REMAINS" PO-9404 "not all could be removed from the cluster:$(printf '\n    - %s' "${remains[@]}")" \
    "an object that kubectl did not list may be in use, so it was kept" "see what fails, and run it again: ${kube[*]} api-resources --verbs=list --namespaced"
}

uninstall_machine() {
  local role tool path
  for role in $(state_names k3s); do
    step "k3s ($role) with its data"
    local script="$bin_dir/k3s-uninstall.sh"
    [[ $role == server ]] || script="$bin_dir/k3s-agent-uninstall.sh"
    if [[ -x $script ]]; then
      logged "$script" || remains+=("k3s: $last_output")
    fi
    # What its own script leaves when it was never run to its end.
    [[ ! -e $K3S_CONFIG ]] || rm -rf /etc/rancher/k3s
  done
  controlplane_remove
  for tool in $(state_names cluster); do
    step "$tool cluster \"pipeops\""
    docker_cluster_delete "$tool" || remains+=("$tool cluster: $last_output")
  done
  step "files"
  while IFS= read -r path; do
    [[ -n $path ]] || continue
    rm -f "$path" || true
    if [[ -e $path ]]; then remains+=("$path"); else say "    $path"; fi
  done <<<"$(state_names file)"
  while IFS= read -r path; do
    [[ ! -d $path ]] || {
      [[ $access_kept == no ]] || {
        say "    kept $path, which has other contexts"
        continue
      }
      rm -rf "$path"
      say "    $path"
    }
  done <<<"$(state_names tree)"
  [[ -z $(state_names controlplane) ]] || logged systemctl daemon-reload || true
  while IFS= read -r path; do
    [[ -d $path ]] || continue
    rmdir "$path" 2>/dev/null || say "    kept $path, which is not empty"
  done <<<"$(state_names dir | sort -r)"
}

# uninstall_restore puts back what was there before.
uninstall_restore() {
  local path copy
  while read -r path copy; do
    [[ -n $path && -e $copy || -L $copy ]] || continue
    mkdir -p "${path%/*}"
    rm -rf "$path"
    cp -a "$copy" "$path"
    say "    put back $path"
  done <<<"$(state_names backup)"
}

uninstall_prove() {
  if ((${#remains[@]} > 0)); then
    fail "$EXIT_REMAINS" PO-9404 "not all could be removed:$(printf '\n    - %s' "${remains[@]}")" "see the log" "run it again"
  fi
  rm -rf "$STATE_DIR"
  locked=no tmp_dir=""
  say "==> everything that was installed is gone; the log stays at ${log_to:-nowhere}"
}

# ---------------------------------------------------------------- upgrade

# command_upgrade moves the agent to the version that was named, or to the newest,
# and back when it does not become healthy. Its settings and token stay as they are.
command_upgrade() {
  local call before
  facts_collect
  state_open
  call="$(state_names agent)"
  [[ -n $call && -r $STATE_DIR/agent.yaml ]] || fail "$EXIT_DECISION" PO-9307 "this installer has not installed an agent from here" \
    "$STATE_DIR does not list one" "install.sh install"
  read -r -a kube <<<"$call"
  kube_reachable
  upgrade_choose || return 0
  upgrade_server
  step "the agent to $PIPEOPS_VERSION"
  manifest_get
  if cmp -s "$tmp_dir/agent.yaml" "$STATE_DIR/agent.yaml"; then
    say "    it is that already"
    return 0
  fi
  ! would "apply its manifest, wait until it is healthy, and go back otherwise" || return 0
  before="$STATE_DIR/agent.previous.yaml"
  cp "$STATE_DIR/agent.yaml" "$before"
  kube_apply_stdin <"$tmp_dir/agent.yaml" || upgrade_back "the cluster refused it: $last_output"
  agent_await || upgrade_back "$agent_trouble"
  cp "$tmp_dir/agent.yaml" "$STATE_DIR/agent.yaml"
  say "==> upgraded, after $SECONDS s"
}

# upgrade_server moves the control plane of this machine, before the agents.
upgrade_server() {
  [[ -n $(state_names controlplane) && -z $PIPEOPS_MANIFEST ]] || return 0
  server_settings
  controlplane_ensure
}

# upgrade_choose finds the newest version if none was named. It returns whether there is something
# to do: an older offered version is not an upgrade.
upgrade_choose() {
  [[ -z $version_named && -z $PIPEOPS_MANIFEST ]] || return 0
  newest_version
  local runs
  runs="$(upgrade_runs)"
  say "    the newest version is $PIPEOPS_VERSION, installed is ${runs:-unknown}"
  if [[ -n $runs ]] && older "$PIPEOPS_VERSION" "$runs"; then
    say "    that is older: name it to go back to it (--version $PIPEOPS_VERSION)"
    return 1
  fi
}

# upgrade_runs is the version that runs. An agent that has updated itself is named by
# its digest alone: which version that is its record on the Deployment says.
upgrade_runs() {
  local found="" image note
  found="$("${kube[@]}" -n "$NAMESPACE" get deployment pipeops-agent -o "$RUNS_TEMPLATE" 2>/dev/null)" ||
    found="$(sed -n 's/^ *image: //p' "$STATE_DIR/agent.yaml" | head -n 1)"
  image="${found%%$'\n'*}" note="${found#*$'\n'}"
  local version='v[0-9]{1,}\.[0-9]{1,}\.[0-9]{1,}[0-9A-Za-z.-]*'
  if [[ $note == *"\"toImage\":\"$image\""* ]]; then
    sed -nE 's/.*"to":"('"$version"')".*/\1/p' <<<"$note"
    return
  fi
  sed -nE 's/.*:('"$version"')(@.*)?$/\1/p' <<<"$image"
}

RUNS_TEMPLATE='go-template={{(index .spec.template.spec.containers 0).image}}{{"\n"}}{{with .metadata.annotations}}{{index . "pipeops.io/self-update"}}{{end}}'

upgrade_back() {
  local why="$1"
  say "    $why: going back"
  kube_apply_stdin <"$STATE_DIR/agent.previous.yaml" || true
  if agent_await; then
    fail "$EXIT_AGENT" PO-9306 "$PIPEOPS_VERSION did not become healthy; the version before runs again" "$why" \
      "see its log: ${kube[*]} -n $NAMESPACE logs -l $AGENT_SELECTOR --previous"
  fi
  fail "$EXIT_AGENT" PO-9306 "neither $PIPEOPS_VERSION nor the version before became healthy" "$why; then: $agent_trouble" "install.sh doctor"
}

# ---------------------------------------------------------------- upgrade of k3s

upgrade_kubernetes=no # --kubernetes
node=""               # this machine's

# command_upgrade_kubernetes moves this machine's k3s to the wanted patch version, and back if the
# node does not become ready. Containers keep running while k3s restarts.
command_upgrade_kubernetes() {
  local role from
  facts_collect
  role="${facts[K3S_OURS]:-no}"
  [[ $role != no ]] || fail "$EXIT_DECISION" PO-9309 "this installer has not set up k3s here" "$STATE_DIR/installed does not list it" \
    "run it on the server, and on each worker; upgrade another Kubernetes as it was installed"
  [[ ${facts[ROOT]:-no} == yes ]] || fail "$EXIT_ROOT" PO-9003 "root is needed to upgrade k3s" "this runs as an ordinary user" \
    "sudo -E bash install.sh upgrade --kubernetes"
  state_open
  tmp_open
  upgrade_k3s_kube "$role"
  from="$(k3s_installed)"
  step "k3s ${from:-unknown} to $K3S_VERSION as $role"
  if upgrade_k3s_wanted "$from"; then
    upgrade_k3s "$role" "$from"
  else
    say "    it is that already"
    upgrade_uncordon
  fi
  [[ $role == agent ]] || upgrade_others
}

# upgrade_k3s_kube points kubectl to the cluster. A worker has its kubelet's rights alone: it reads
# its own node, and cannot drain it.
upgrade_k3s_kube() {
  NODE_TYPE="$1"
  node="$(hostname | tr '[:upper:]' '[:lower:]')"
  local config="$K3S_KUBECONFIG"
  [[ $1 == server ]] || config=/var/lib/rancher/k3s/agent/kubelet.kubeconfig
  kube=("$bin_dir/k3s" kubectl --kubeconfig "$config")
  kube_reachable
  kube_read get node "$node" -o name || fail "$EXIT_CLUSTER" PO-9204 "the cluster has no node $node" "kubectl says: $last_output" \
    "the node's name is to be the machine's: hostname"
}

k3s_installed() { "$bin_dir/k3s" --version 2>/dev/null | sed -nE 's/^k3s version ([^ ]+) .*/\1/p'; }

# k3s_number VERSION sets REPLY to a number that grows with the version, such as v1.36.4+k3s1.
k3s_number() {
  REPLY=0
  [[ $1 =~ ^v([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\+k3s([0-9]{1,3})$ ]] || return 1
  REPLY=$((((10#${BASH_REMATCH[1]} * 1000 + 10#${BASH_REMATCH[2]}) * 1000 + 10#${BASH_REMATCH[3]}) * 1000 + 10#${BASH_REMATCH[4]}))
}

# upgrade_k3s_wanted FROM answers whether there is something to do. It ends the script where
# the version is not a newer patch of the same minor version.
upgrade_k3s_wanted() {
  [[ $1 != "$K3S_VERSION" ]] || return 1
  local has wants minor="${1%.*}"
  k3s_number "$K3S_VERSION" || fail "$EXIT_USAGE" PO-9002 "K3S_VERSION=$K3S_VERSION is not a version of k3s" "it is to have the form of $RELEASE_K3S_VERSION" "unset K3S_VERSION"
  wants="$REPLY"
  k3s_number "$1" || fail "$EXIT_CLUSTER" PO-9309 "the version of the installed k3s is unknown" "$bin_dir/k3s --version does not tell one" "install.sh install"
  has="$REPLY"
  ((wants / 1000000 == has / 1000000)) || fail "$EXIT_DECISION" PO-9309 "k3s $K3S_VERSION is of another minor version than $1" \
    "there is no way back from it without a copy of the datastore, which this command does not make" \
    "name a patch of this one: K3S_VERSION=$minor.PATCH+k3s1; for another minor version see https://docs.k3s.io/upgrades"
  ((wants > has)) || fail "$EXIT_DECISION" PO-9309 "k3s $1 is newer than $K3S_VERSION" "upgrade does not go back" \
    "use a newer install.sh, or name a version: K3S_VERSION=VERSION"
}

# upgrade_k3s ROLE FROM: nothing is touched before all downloads are there.
upgrade_k3s() {
  [[ $1 == server ]] || upgrade_server_first
  ! would "download k3s, drain the node if there are others, replace $bin_dir/k3s, restart $(k3s_unit "$1"), wait until the node is ready, and go back otherwise" || return 0
  k3s_download
  [[ $1 == agent ]] || upgrade_drain
  cp -p "$bin_dir/k3s" "$STATE_DIR/k3s.previous"
  k3s_images
  program_install k3s "$tmp_dir/k3s"
  say "    restarting $(k3s_unit "$1")"
  k3s_restart "$1" || upgrade_k3s_back "$1" "$2" "the service does not start: ${last_output:-it says nothing}"
  upgrade_node_await "$K3S_VERSION" || upgrade_k3s_back "$1" "$2" "the node was not ready after $PIPEOPS_WAIT s"
  rm -f "$STATE_DIR/k3s.previous"
  upgrade_uncordon
  say "==> $node runs k3s $K3S_VERSION, after $SECONDS s"
}

# upgrade_server_first: a kubelet may not be newer than the API server.
upgrade_server_first() {
  local server wants
  k3s_number "$K3S_VERSION" || true
  wants="$REPLY"
  kube_read get --raw /version || fail "$EXIT_CLUSTER" PO-9203 "the server does not tell its version" "kubectl says: $last_output" "look at the server: systemctl status k3s"
  server="$(sed -nE 's/.*"gitVersion": *"([^"]*)".*/\1/p' <<<"$REPLY")"
  k3s_number "$server" || true
  ((REPLY >= wants)) || fail "$EXIT_DECISION" PO-9309 "the server runs ${server:-an unknown version}, which is older than $K3S_VERSION" \
    "a worker may not be newer than its server" "first on the server: bash install.sh upgrade --kubernetes"
  kube_read get node "$node" -o 'jsonpath={.spec.unschedulable}' || REPLY=""
  [[ $REPLY == true ]] || say "    note: $node is not drained: its pods keep running while k3s restarts"
}

# upgrade_drain moves the pods to other nodes, if there are any. A node that the operator has
# cordoned stays so.
upgrade_drain() {
  kube_read get nodes -o name || REPLY=""
  if [[ $REPLY != *$'\n'* ]]; then
    say "    note: $node is the only node: its pods keep running while k3s restarts"
    return 0
  fi
  kube_read get node "$node" -o 'jsonpath={.spec.unschedulable}' || REPLY=""
  [[ $REPLY == true ]] || : >"$STATE_DIR/k3s.cordoned"
  say "    draining $node, for $PIPEOPS_WAIT s at most"
  logged "${kube[@]}" drain "$node" "${drain_flags[@]}" --timeout "${PIPEOPS_WAIT}s" || {
    local why="$last_output"
    upgrade_uncordon
    fail "$EXIT_CLUSTER" PO-9310 "$node could not be drained, so nothing was upgraded" "kubectl says: $why" \
      "see what holds the pods: ${kube[*]} get poddisruptionbudgets -A; or allow more time: PIPEOPS_WAIT=600"
  }
}
drain_flags=(--ignore-daemonsets --delete-emptydir-data)

# upgrade_uncordon undoes upgrade_drain, also of a run that was killed.
upgrade_uncordon() {
  [[ -e $STATE_DIR/k3s.cordoned && $dry_run == no ]] || return 0
  logged "${kube[@]}" uncordon "$node" || {
    say "    note: $node is still cordoned: ${kube[*]} uncordon $node"
    return 0
  }
  rm -f "$STATE_DIR/k3s.cordoned"
}

k3s_restart() {
  local unit
  unit="$(k3s_unit "$1")"
  # Without a bound it would wait for ever for a server that does not let it in.
  case "${facts[INIT]}" in
    systemd) logged timeout "$((PIPEOPS_WAIT + 60))" systemctl restart "$unit" ;;
    *) logged timeout "$((PIPEOPS_WAIT + 60))" rc-service "$unit" restart ;;
  esac
}

# upgrade_node_await VERSION waits until the kubelet has that version and the node is ready.
upgrade_node_await() {
  local deadline=$((SECONDS + PIPEOPS_WAIT))
  until kube_read get node "$node" -o "$KUBELET_TEMPLATE" && [[ $REPLY == "$1 True" ]]; do
    ((SECONDS < deadline)) || return 1
    sleep 1
  done
}
KUBELET_TEMPLATE='go-template={{.status.nodeInfo.kubeletVersion}}{{range .status.conditions}}{{if eq .type "Ready"}} {{.status}}{{end}}{{end}}'

upgrade_k3s_back() {
  local role="$1" from="$2" why="$3" look
  look="journalctl -u $(k3s_unit "$role") -n 50 --no-pager"
  [[ ${facts[INIT]} == systemd ]] || look="tail -n 50 /var/log/$(k3s_unit "$role").log"
  say "    $why: going back to $from"
  cp -p "$STATE_DIR/k3s.previous" "$tmp_dir/k3s"
  program_install k3s "$tmp_dir/k3s"
  if k3s_restart "$role" && upgrade_node_await "$from"; then
    rm -f "$STATE_DIR/k3s.previous"
    upgrade_uncordon
    fail "$EXIT_CLUSTER" PO-9311 "k3s $K3S_VERSION did not become ready; $from runs again" "$why" "$look"
  fi
  fail "$EXIT_CLUSTER" PO-9311 "neither k3s $K3S_VERSION nor $from became ready" "$why" "$look"
}

# upgrade_others prints what is left to do: one node after the other.
upgrade_others() {
  local name version script=install.sh setting="" first=yes
  [[ $RELEASE_VERSION == dev ]] || script="$RELEASES_URL/$RELEASE_VERSION/install.sh"
  [[ $K3S_VERSION == "$RELEASE_K3S_VERSION" ]] || setting="K3S_VERSION=$K3S_VERSION "
  kube_read get nodes -o 'go-template={{range .items}}{{.metadata.name}} {{.status.nodeInfo.kubeletVersion}}{{"\n"}}{{end}}' || return 0
  while read -r name version; do
    [[ -n $name && $name != "$node" && $version != "$K3S_VERSION" ]] || continue
    [[ $first == no ]] || say "==> next, the other nodes, one after the other:"
    first=no
    say "    $name runs k3s $version"
    say "      here:       ${kube[*]} drain $name ${drain_flags[*]} --timeout ${PIPEOPS_WAIT}s"
    if [[ $script == https://* ]]; then
      say "      on $name:   curl -fsSL $script | sudo ${setting}bash -s upgrade --kubernetes"
    else
      say "      on $name:   sudo ${setting}bash install.sh upgrade --kubernetes"
    fi
    say "      here:       ${kube[*]} uncordon $name"
  done <<<"$REPLY"
}

# ---------------------------------------------------------------- doctor

doctor_failed=0
doctor_findings=()

# command_doctor checks one thing a line, with the fix beside what is wrong.
command_doctor() {
  [[ $output != env ]] || usage_error "-o env is for cluster-info: use table or json"
  facts_collect
  tmp_open
  doctor_machine
  doctor_server
  doctor_control_plane
  doctor_cluster
  doctor_agent
  if [[ $output == json ]]; then
    local IFS=,
    printf '[%s\n]\n' "${doctor_findings[*]}"
  elif ((doctor_failed > 0)); then
    say "$doctor_failed problems"
  else
    say "all is well"
  fi
  ((doctor_failed == 0)) || {
    failed=yes
    exit "$EXIT_MACHINE"
  }
}

# finding STATE NAME MESSAGE [FIX] is a line of the report, or an object of it.
finding() {
  local word field object=""
  case "$1" in
    ok) word="ok  " ;;
    failed) word=FAIL doctor_failed=$((doctor_failed + 1)) ;;
    warning) word=warn ;;
    skipped) word=skip ;;
  esac
  local line="$word  $2: $3${4:+ (fix: $4)}"
  [[ $output == json ]] || {
    say "$line"
    return 0
  }
  log "$line"
  for field in "name:$2" "state:$1" "message:$3" "fix:${4:-}"; do
    redact "${field#*:}"
    json_string "$REPLY"
    object+="${object:+, }\"${field%%:*}\": $REPLY"
  done
  doctor_findings+=($'\n'"  {$object}")
}

doctor_machine() {
  local has
  number "${facts[DISK_FREE_MB]:-0}" || true
  has="$REPLY"
  if ((has >= 1000)); then
    finding ok "disk" "$has MB free"
  else
    finding failed "disk" "$has MB free" "du -xh -d2 /var | sort -h | tail"
  fi
  number "${facts[MEMORY_MB]:-0}" || true
  has="$REPLY"
  if ((has >= MEMORY_WORKER_MB)); then
    finding ok "memory" "$has MB"
  else
    finding failed "memory" "$has MB" "use a larger machine"
  fi
}

doctor_control_plane() {
  [[ -n $PIPEOPS_CONTROL_PLANE_URL ]] || {
    finding skipped "control plane" "set PIPEOPS_CONTROL_PLANE_URL to check it"
    return 0
  }
  local host="${PIPEOPS_CONTROL_PLANE_URL#https://}" code=0 theirs difference
  control_plane_date || code=$?
  case "$code" in
    0) finding ok "control plane" "$PIPEOPS_CONTROL_PLANE_URL answers" ;;
    5 | 6) finding failed "control plane" "the name ${host%%[:/]*} cannot be resolved" "getent hosts ${host%%[:/]*}; cat /etc/resolv.conf" ;;
    *) finding failed "control plane" "$last_output" "open the firewall outwards, or set HTTPS_PROXY" ;;
  esac
  clock_difference || return 0
  if ((difference <= MAX_CLOCK_DIFFERENCE)); then
    finding ok "clock" "$difference s off the control plane's"
  else
    finding failed "clock" "$difference s off the control plane's" "timedatectl set-ntp true"
  fi
}

# doctor_server checks the control plane that runs on this machine.
doctor_server() {
  [[ -n $(state_names controlplane) ]] || return 0
  server_settings
  if logged as_root "$bin_dir/pipeops-controlplane" ready --url https://127.0.0.1:8443; then
    finding ok "control plane here" "it is ready"
  else
    finding failed "control plane here" "${last_output%%$'\n'*}" "journalctl -u pipeops-controlplane -n 50 --no-pager"
  fi
}

doctor_cluster() {
  local role call
  for role in $(state_names k3s); do
    if k3s_active "$role"; then
      finding ok "k3s" "the $role runs"
    else
      finding failed "k3s" "the $role does not run" "systemctl restart $(k3s_unit "$role"); journalctl -u $(k3s_unit "$role") -n 50"
    fi
  done
  call="$(state_names agent)"
  [[ -n $call ]] || {
    finding skipped "agent" "none was installed from here"
    return 0
  }
  read -r -a kube <<<"$call"
  if logged "${kube[@]}" get --raw /readyz --request-timeout 10s; then
    finding ok "Kubernetes" "the API answers"
  else
    finding failed "Kubernetes" "$last_output" "${kube[*]} get nodes"
    kube=()
  fi
}

doctor_agent() {
  ((${#kube[@]} > 0)) || return 0
  agent_look
  if [[ $agent_ready == yes ]]; then
    finding ok agent "$agent_phase"
  else
    finding failed agent "$agent_phase" "${kube[*]} -n $NAMESPACE logs -l $AGENT_SELECTOR --tail 20"
  fi
  [[ -n $agent_pod ]] || return 0
  doctor_agent_inside
}

# doctor_agent_inside has the agent check from inside the pod, where it can. Of its
# report those lines are told that are not well: STATUS CHECK DETAIL (fix: FIX).
doctor_agent_inside() {
  local code=0 report state name found fix by="${kube[*]} -n $NAMESPACE exec $agent_pod -- /pipeops-agent doctor" failures="$doctor_failed"
  kube_read -n "$NAMESPACE" exec "$agent_pod" -- /pipeops-agent doctor || code=$?
  report="$REPLY"
  while read -r state name found; do
    log "  | $state $name $found"
    [[ $state == failed || $state == warning ]] || continue
    fix="$by"
    if [[ $found == *" (fix: "*")" ]]; then
      fix="${found##* (fix: }" fix="${fix%)}" found="${found% (fix: *}"
    fi
    finding "$state" "agent's own check $name" "$found" "$fix"
  done <<<"$report"
  if [[ $last_output == *"unknown command"* ]]; then
    finding skipped "agent's own checks" "this version has none"
  elif ((code == 0)); then
    finding ok "agent's own checks" "none failed"
  elif ((doctor_failed == failures)); then
    finding failed "agent's own checks" "$last_output" "$by"
  fi
}

# ---------------------------------------------------------------- help, cluster-info

command_help() {
  cat <<'TEXT'
Puts the PipeOps agent on this machine or into a cluster, and looks after it. Or makes this machine
a server, which other machines can join.

  curl -fsSL https://github.com/pipeops/pipeops-vm-agent/releases/latest/download/install.sh | AGENT_TOKEN=... CLUSTER_NAME=... bash
  bash install.sh [COMMAND] [FLAGS]

Commands
  server         make this machine a server: k3s, the control plane with its gateway and console, an agent,
                 and a sample App at a public URL. It needs no token
  install        (default) set up Kubernetes where there is none, install the agent, wait until it is registered
  runner         put pipeops-runner alone into PIPEOPS_BIN_DIR (/usr/local/bin), as in a CI job
  cluster-info   what this machine is, and which Kubernetes would be chosen, and why
  upgrade        move the agent to the newest version, or that of --version, and back if it does not become healthy
  upgrade --kubernetes
                 move k3s to the version that this script pins, on this machine, and back if the node does not
                 become ready: first on the server, which then names the workers
  uninstall      remove what was installed, and nothing else
  doctor         check machine, network, clock, control plane, cluster and agent
  help           this

Flags
  --domain DOMAIN       server: domain of Apps, for which *.DOMAIN leads to this machine (by default
                        A-B-C-D.sslip.io, which needs no DNS of yours)
  --address ADDRESS     server: where other machines reach this one, if not at its own address
  --dry-run             say what would be done, and change nothing
  --yes, -y             answer yes to questions; without a terminal none is asked
  --policy PRESET       what Runners may do, if there is no policy yet: viewer, deploy (default) or full
  --context NAME        use this kubectl context, an existing cluster
  --cluster-type TYPE   k3s, k3d, kind, minikube or existing
  --version VERSION     version of the agent
  --facts FILE          decide by recorded facts (with --dry-run)
  --with-apps           uninstall: delete the Apps too
  --kubernetes          upgrade: k3s in place of the agent
  -o table|env|json     form of cluster-info; of doctor table or json

Environment
  AGENT_TOKEN, AGENT_TOKEN_FILE   enrolment token, or the file that holds it
  CLUSTER_NAME                    name that the control plane lists
  PIPEOPS_CONTROL_PLANE_URL       https://HOST[:PORT]; by default that in the token
  NODE_TYPE=agent K3S_URL K3S_TOKEN   join a k3s server as a worker
  COMPONENTS                      none, minimal, default, full, or names: what the cluster gets if it lacks it
  PRESET                          minimum, production, full-monitoring: resources of the agent, and components
  PIPEOPS_UPDATE_SIGNATURES       how many maintainers must have signed another version (1)
  PIPEOPS_NAME_SERVICE            server: service like sslip.io for machines without a domain, or none
  PIPEOPS_GATEWAY_CA              server: internal, or an ACME directory (Let's Encrypt, if it is reached)
  HTTPS_PROXY NO_PROXY PIPEOPS_CA_FILE PIPEOPS_MIRROR PIPEOPS_REGISTRY_MIRROR PIPEOPS_BUNDLE
  The rest, and the rules by which a Kubernetes is chosen: docs/cluster-owner/install.md

Exit codes
  0 done            4 this machine cannot       8 a decision of yours is needed
  1 unexpected      5 network                   9 the agent is not registered
  2 wrong settings  6 wrong checksum           10 another run is at work
  3 root is needed  7 the cluster is not there 11 something could not be removed
 12 the agent is registered, and not all components are installed
 13 the control plane on this machine does not run
TEXT
}

command_cluster_info() {
  if [[ -z $facts_file ]]; then facts_collect; else facts_replay "$facts_file"; fi
  facts_print "$output"
  [[ $output == table ]] || return 0
  decide
  decision_print
  local entry exit code what why fix
  for entry in "${obstacles[@]}"; do
    IFS='|' read -r exit code what why fix <<<"$entry"
    say "    in the way (exit code $exit, $code): $what: $why (fix: $fix)"
  done
  [[ ${facts[K3S_OURS]:-no} != server ]] || cluster_info_server
}

# cluster_info_server prints what a worker needs to join this server. The token itself stays in its file.
cluster_info_server() {
  local address=SERVER # of another machine, whose facts are replayed
  if [[ -z $facts_file ]]; then
    address="${facts[ADDRESS]:-}"
  fi
  say "    server:     https://${address:-SERVER}:6443"
  say "    token:      sudo cat /var/lib/rancher/k3s/server/node-token"
  say "    worker:     curl -fsSL ${NEWEST_URL%/*}/join-worker.sh | bash -s ${address:-SERVER} TOKEN"
}

# ---------------------------------------------------------------- main

command=install
facts_file=""
output=""
server_flag=""

usage_error() {
  printf 'error: %s\n  fix: install.sh help\n' "$1" >&2
  exit "$EXIT_USAGE"
}

arguments() {
  case "${1:-}" in
    install | server | runner | cluster-info | upgrade | uninstall | doctor | help)
      command="$1"
      shift
      ;;
    -h | --help) command=help ;;
    "" | -*) ;;
    *) usage_error "there is no command $1" ;;
  esac
  while (($# > 0)); do
    case "$1" in
      --dry-run) dry_run=yes ;;
      -y | --yes) assume_yes=yes ;;
      --with-apps) with_apps=yes ;;
      --kubernetes) upgrade_kubernetes=yes ;;
      --address | --domain | --policy | --context | --cluster-type | --version | --facts | -o)
        (($# > 1)) || usage_error "$1 needs a value"
        argument "$1" "$2"
        shift
        ;;
      -h | --help) command=help ;;
      *) usage_error "there is no flag $1" ;;
    esac
    shift
  done
  [[ -z $server_flag || $command == server ]] || usage_error "$server_flag is for server, not for $command"
  [[ $command != server || $NODE_TYPE == server && -z $KUBE_CONTEXT && ${CLUSTER_TYPE:-k3s} == k3s ]] ||
    usage_error "server sets up k3s as a server on this machine: leave out --context, --cluster-type and NODE_TYPE"
  [[ -z $output || $command == cluster-info || $command == doctor ]] || usage_error "-o is for cluster-info and doctor, not for $command"
  [[ $upgrade_kubernetes == no || $command == upgrade ]] || usage_error "--kubernetes is for upgrade, not for $command"
  [[ $upgrade_kubernetes == no || -z $version_named ]] || usage_error "--version and PIPEOPS_VERSION are of the agent: K3S_VERSION names that of k3s"
  output="${output:-table}"
  [[ -z $facts_file || $dry_run == yes || $command == cluster-info ]] || usage_error "--facts decides for another machine: it needs --dry-run"
}

argument() {
  case "$1" in
    --address) PIPEOPS_ADDRESS="$2" server_flag="$1" ;;
    --domain) PIPEOPS_DOMAIN="$2" server_flag="$1" ;;
    --policy) PIPEOPS_POLICY="$2" ;;
    --context) KUBE_CONTEXT="$2" ;;
    --cluster-type) CLUSTER_TYPE="$2" ;;
    --version) PIPEOPS_VERSION="$2" version_named=yes ;;
    --facts)
      facts_file="$2"
      [[ -r $2 ]] || usage_error "$2 cannot be read"
      ;;
    -o)
      output="$2"
      [[ $2 == table || $2 == env || $2 == json ]] || usage_error "-o $2: use table, env or json"
      ;;
  esac
}

main() {
  umask 022
  settings_load
  arguments "$@"
  ! state_has controlplane service || with_control_plane=yes # a server stays one
  traps_set
  case "$command" in
    help | cluster-info | runner) ;;
    *) [[ $dry_run == yes ]] || log_open ;;
  esac
  [[ $upgrade_kubernetes == no ]] || command=upgrade-kubernetes
  "command_${command//-/_}"
}

main "$@"
