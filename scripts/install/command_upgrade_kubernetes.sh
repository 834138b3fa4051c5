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
