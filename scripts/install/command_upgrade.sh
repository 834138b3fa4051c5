# ---------------------------------------------------------------- upgrade

# command_upgrade moves the agent to the version that was named, or to the newest,
# and back when it does not become healthy. Its settings and token stay as they are.
command_upgrade() {
  local call before
  facts_collect
  state_open
  call="$(state_names agent)"
  [[ -n $call && -r $STATE_DIR/agent.yaml ]] || fail "$EXIT_DECISION" PO-9307 "this installer has not installed an agent from here" \
    "$STATE_DIR does not list one" "install.sh install"
  read -r -a kube <<<"$call"
  kube_reachable
  upgrade_choose || return 0
  upgrade_server
  step "the agent to $PIPEOPS_VERSION"
  manifest_get
  if cmp -s "$tmp_dir/agent.yaml" "$STATE_DIR/agent.yaml"; then
    say "    it is that already"
    return 0
  fi
  ! would "apply its manifest, wait until it is healthy, and go back otherwise" || return 0
  before="$STATE_DIR/agent.previous.yaml"
  cp "$STATE_DIR/agent.yaml" "$before"
  kube_apply_stdin <"$tmp_dir/agent.yaml" || upgrade_back "the cluster refused it: $last_output"
  agent_await || upgrade_back "$agent_trouble"
  cp "$tmp_dir/agent.yaml" "$STATE_DIR/agent.yaml"
  say "==> upgraded, after $SECONDS s"
}

# upgrade_server moves the control plane of this machine, before the agents.
upgrade_server() {
  [[ -n $(state_names controlplane) && -z $PIPEOPS_MANIFEST ]] || return 0
  server_settings
  controlplane_ensure
}

# upgrade_choose finds the newest version if none was named. It returns whether there is something
# to do: an older offered version is not an upgrade.
upgrade_choose() {
  [[ -z $version_named && -z $PIPEOPS_MANIFEST ]] || return 0
  newest_version
  local runs
  runs="$(upgrade_runs)"
  say "    the newest version is $PIPEOPS_VERSION, installed is ${runs:-unknown}"
  if [[ -n $runs ]] && older "$PIPEOPS_VERSION" "$runs"; then
    say "    that is older: name it to go back to it (--version $PIPEOPS_VERSION)"
    return 1
  fi
}

# upgrade_runs is the version that runs. An agent that has updated itself is named by
# its digest alone: which version that is its record on the Deployment says.
upgrade_runs() {
  local found="" image note
  found="$("${kube[@]}" -n "$NAMESPACE" get deployment pipeops-agent -o "$RUNS_TEMPLATE" 2>/dev/null)" ||
    found="$(sed -n 's/^ *image: //p' "$STATE_DIR/agent.yaml" | head -n 1)"
  image="${found%%$'\n'*}" note="${found#*$'\n'}"
  local version='v[0-9]{1,}\.[0-9]{1,}\.[0-9]{1,}[0-9A-Za-z.-]*'
  if [[ $note == *"\"toImage\":\"$image\""* ]]; then
    sed -nE 's/.*"to":"('"$version"')".*/\1/p' <<<"$note"
    return
  fi
  sed -nE 's/.*:('"$version"')(@.*)?$/\1/p' <<<"$image"
}

RUNS_TEMPLATE='go-template={{(index .spec.template.spec.containers 0).image}}{{"\n"}}{{with .metadata.annotations}}{{index . "pipeops.io/self-update"}}{{end}}'

upgrade_back() {
  local why="$1"
  say "    $why: going back"
  kube_apply_stdin <"$STATE_DIR/agent.previous.yaml" || true
  if agent_await; then
    fail "$EXIT_AGENT" PO-9306 "$PIPEOPS_VERSION did not become healthy; the version before runs again" "$why" \
      "see its log: ${kube[*]} -n $NAMESPACE logs -l $AGENT_SELECTOR --previous"
  fi
  fail "$EXIT_AGENT" PO-9306 "neither $PIPEOPS_VERSION nor the version before became healthy" "$why; then: $agent_trouble" "install.sh doctor"
}
