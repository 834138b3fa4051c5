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
