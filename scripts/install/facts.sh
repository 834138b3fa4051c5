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
