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
