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
