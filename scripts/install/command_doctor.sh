# ---------------------------------------------------------------- doctor

doctor_failed=0

# command_doctor checks one thing a line, with the fix beside what is wrong.
command_doctor() {
  facts_collect
  tmp_open
  doctor_machine
  doctor_control_plane
  doctor_cluster
  doctor_agent
  ((doctor_failed == 0)) || {
    failed=yes
    say "$doctor_failed problems"
    exit "$EXIT_MACHINE"
  }
  say "all is well"
}

well() { say "ok    $1"; }
ill() {
  say "FAIL  $1 (fix: $2)"
  doctor_failed=$((doctor_failed + 1))
}

doctor_machine() {
  if ((facts[DISK_FREE_MB] >= 1000)); then
    well "disk: ${facts[DISK_FREE_MB]} MB free"
  else
    ill "disk: ${facts[DISK_FREE_MB]} MB free" "du -xh -d2 /var | sort -h | tail"
  fi
  if ((facts[MEMORY_MB] >= MEMORY_WORKER_MB)); then
    well "memory: ${facts[MEMORY_MB]} MB"
  else
    ill "memory: ${facts[MEMORY_MB]} MB" "use a larger machine"
  fi
}

doctor_control_plane() {
  [[ -n $PIPEOPS_CONTROL_PLANE_URL ]] || {
    say "skip  control plane: set PIPEOPS_CONTROL_PLANE_URL to check it"
    return 0
  }
  local host="${PIPEOPS_CONTROL_PLANE_URL#https://}" code=0 theirs difference
  control_plane_date || code=$?
  case "$code" in
    0) well "control plane: $PIPEOPS_CONTROL_PLANE_URL answers" ;;
    5 | 6) ill "control plane: the name ${host%%[:/]*} cannot be resolved" "getent hosts ${host%%[:/]*}; cat /etc/resolv.conf" ;;
    *) ill "control plane: $last_output" "open the firewall outwards, or set HTTPS_PROXY" ;;
  esac
  clock_difference || return 0
  if ((difference <= MAX_CLOCK_DIFFERENCE)); then
    well "clock: $difference s off the control plane's"
  else
    ill "clock: $difference s off the control plane's" "timedatectl set-ntp true"
  fi
}

doctor_cluster() {
  local role call
  for role in $(state_names k3s); do
    if k3s_active "$role"; then
      well "k3s: the $role runs"
    else
      ill "k3s: the $role does not run" "systemctl restart $(k3s_unit "$role"); journalctl -u $(k3s_unit "$role") -n 50"
    fi
  done
  call="$(state_names agent)"
  [[ -n $call ]] || {
    say "skip  agent: none was installed from here"
    return 0
  }
  read -r -a kube <<<"$call"
  if logged "${kube[@]}" get --raw /readyz --request-timeout 10s; then
    well "Kubernetes: the API answers"
  else
    ill "Kubernetes: $last_output" "${kube[*]} get nodes"
    kube=()
  fi
}

doctor_agent() {
  ((${#kube[@]} > 0)) || return 0
  agent_look
  if [[ $agent_ready == yes ]]; then
    well "agent: $agent_phase"
  else
    ill "agent: $agent_phase" "${kube[*]} -n $NAMESPACE logs -l $AGENT_SELECTOR --tail 20"
  fi
  [[ -n $agent_pod ]] || return 0
  # The agent's own checks, from inside the pod, where it has them.
  local code=0
  logged "${kube[@]}" -n "$NAMESPACE" exec "$agent_pod" -- /pipeops-agent doctor || code=$?
  if [[ $last_output == *"unknown command"* ]]; then
    say "skip  agent's own checks: this version has none"
  elif ((code == 0)); then
    well "agent's own checks"
  else
    ill "agent's own checks: $last_output" "${kube[*]} -n $NAMESPACE exec $agent_pod -- /pipeops-agent doctor"
  fi
}
