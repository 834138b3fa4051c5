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
