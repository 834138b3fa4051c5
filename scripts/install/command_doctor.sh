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
