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
