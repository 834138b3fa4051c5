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
