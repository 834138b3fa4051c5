# ---------------------------------------------------------------- one server
# The control plane as a service of this machine (docs/get-started/server.md): its settings, its
# programs, and what root needs to use it.

CONTROL_PLANE_UNITS=/etc/systemd/system
CONTROL_PLANE_UNIT=pipeops-controlplane.service
CONTROL_PLANE_ENV=/etc/pipeops/server.env            # ours
CONTROL_PLANE_USER_ENV=/etc/pipeops/controlplane.env # the user's, which counts more
CONTROL_PLANE_DATA=/var/lib/pipeops-controlplane
CONTROL_PLANE_PORTS="80 443 7000 8443 8444"
LETS_ENCRYPT=https://acme-v02.api.letsencrypt.org/directory

# server_settings completes the settings: what is given now, else what an earlier run was given, else
# what this machine suggests, which may differ from run to run.
server_settings() {
  local name
  for name in "${SERVER_SETTINGS[@]}"; do
    [[ -n ${!name:-} || ! -r $STATE_DIR/server ]] || printf -v "$name" %s "$(sed -n "s|^$name=||p" "$STATE_DIR/server" | head -n 1)"
  done
  CLUSTER_NAME="${CLUSTER_NAME:-$(server_name)}" # and stays: the agent is known by it
  server_given="$(for name in "${SERVER_SETTINGS[@]}"; do printf '%s=%s\n' "$name" "${!name:-}"; done)"
  PIPEOPS_ADDRESS="${PIPEOPS_ADDRESS:-${facts[ADDRESS]:-}}"
  PIPEOPS_DOMAIN="${PIPEOPS_DOMAIN:-$(server_free_domain)}"
  PIPEOPS_CONTROL_PLANE_URL="https://$PIPEOPS_ADDRESS:8443"
}
SERVER_SETTINGS=(PIPEOPS_ADDRESS CLUSTER_NAME PIPEOPS_DOMAIN PIPEOPS_NAME_SERVICE PIPEOPS_GATEWAY_CA)
server_given=""

# server_name is the host's name, in the form of a cluster's.
server_name() {
  local name
  name="$(hostname 2>/dev/null | cut -d . -f 1 | tr '[:upper:]' '[:lower:]' | tr -cd 'a-z0-9-' | sed 's/^-*//; s/-*$//')"
  echo "${name:-server}"
}

# server_free_domain is a domain that needs no set-up: a public DNS service answers for it with the
# address in its first label.
server_free_domain() {
  local service="${PIPEOPS_NAME_SERVICE:-sslip.io}"
  [[ $service != none && $PIPEOPS_ADDRESS =~ ^[0-9]+(\.[0-9]+){3}$ ]] || return 0
  echo "${PIPEOPS_ADDRESS//./-}.$service"
}

# server_check prints what is wrong with the settings of a server, a line each.
server_check() {
  [[ $PIPEOPS_ADDRESS =~ ^[A-Za-z0-9.:-]+$ && $PIPEOPS_ADDRESS != *:* ]] ||
    echo "PIPEOPS_ADDRESS=$PIPEOPS_ADDRESS: name this machine's IPv4 address or host name (--address)"
  [[ $PIPEOPS_DOMAIN =~ ^[a-z0-9-]+(\.[a-z0-9-]+)+$ ]] ||
    echo "PIPEOPS_DOMAIN=$PIPEOPS_DOMAIN: name a domain for Apps, for which *.DOMAIN leads to this machine in DNS (--domain apps.example.com)"
  [[ $PIPEOPS_NAME_SERVICE =~ ^[a-z0-9.-]*$ ]] ||
    echo "PIPEOPS_NAME_SERVICE=$PIPEOPS_NAME_SERVICE: use none, or the domain of a service like sslip.io"
  [[ -z $PIPEOPS_GATEWAY_CA || $PIPEOPS_GATEWAY_CA == internal || $PIPEOPS_GATEWAY_CA =~ ^https://[^[:space:]]+$ ]] ||
    echo "PIPEOPS_GATEWAY_CA=$PIPEOPS_GATEWAY_CA: use internal, or the https URL of an ACME directory"
}

# address_private ADDRESS: only machines of its network reach it (RFC 1918, 3927, 6598).
address_private() {
  [[ $1 =~ ^(10\.|127\.|169\.254\.|192\.168\.|172\.(1[6-9]|2[0-9]|3[01])\.|100\.(6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\.) ]]
}

# server_ca chooses who signs the certificates of Apps: Let's Encrypt, if it can reach this machine
# and this machine reaches it. Once chosen, it stays while it can reach this machine.
server_ca() {
  [[ -z $PIPEOPS_GATEWAY_CA ]] || return 0
  PIPEOPS_GATEWAY_CA=internal
  # The control plane has no proxy. Nothing from outside reaches a private address.
  if [[ -n $PIPEOPS_BUNDLE || -n ${facts[PROXY]:-} ]]; then return 0; fi
  if address_private "$PIPEOPS_ADDRESS" && [[ $PIPEOPS_DOMAIN == "$(server_free_domain)" ]]; then return 0; fi
  if grep -qsxF "PIPEOPS_GATEWAY_CA=$LETS_ENCRYPT" "$CONTROL_PLANE_ENV"; then
    PIPEOPS_GATEWAY_CA="$LETS_ENCRYPT"
    return 0
  fi
  ca_arguments
  ! logged curl -fsS --proto '=https' --connect-timeout 5 --max-time 15 "${ca_args[@]}" -o /dev/null "$LETS_ENCRYPT" ||
    PIPEOPS_GATEWAY_CA="$LETS_ENCRYPT"
}

# controlplane_ensure brings the control plane to the wanted version and settings, and starts it.
controlplane_ensure() {
  step "the control plane $PIPEOPS_VERSION at $PIPEOPS_CONTROL_PLANE_URL"
  ! would "install pipeops-controlplane, pipeops-runner and pipeops-agent, and start the control plane as a service" || return 0
  record controlplane service
  printf '%s\n' "$server_given" >"$STATE_DIR/server"
  server_ca
  controlplane_programs
  controlplane_config | put "$CONTROL_PLANE_ENV" 0600
  [[ -e $CONTROL_PLANE_USER_ENV ]] || echo "# Your settings of the control plane. They count more than those in $CONTROL_PLANE_ENV." | put "$CONTROL_PLANE_USER_ENV" 0600
  controlplane_dropin | put "$CONTROL_PLANE_UNITS/$CONTROL_PLANE_UNIT.d/server.conf" 0644
  # What the last start was of: a run that was interrupted before has left another sum.
  if [[ $(state_names started) == "$(controlplane_files)" ]] && systemctl is-active --quiet "$CONTROL_PLANE_UNIT"; then
    say "    it is installed and runs"
    return 0
  fi
  logged systemctl daemon-reload || true
  logged systemctl enable "$CONTROL_PLANE_UNIT" || true
  # The unit reports that it has started when agents are served.
  logged systemctl restart "$CONTROL_PLANE_UNIT" || controlplane_failed
  logged systemctl enable --now pipeops-controlplane-backup.timer || true
  state_replace started "$(controlplane_files)"
  rm -rf "$STATE_DIR/programs.before"
}

# controlplane_failed restores the earlier programs, if there are any.
controlplane_failed() {
  local name back=""
  logged journalctl -u "$CONTROL_PLANE_UNIT" -n 15 --no-pager -o cat || true
  local words="${last_output:-nothing}"
  if [[ -d $STATE_DIR/programs.before ]]; then
    for name in "${CONTROL_PLANE_PROGRAMS[@]}"; do
      [[ ! -x $STATE_DIR/programs.before/$name ]] || cp -p "$STATE_DIR/programs.before/$name" "$bin_dir/$name"
    done
    state_replace programs "before"
    back="; the version before does not start either"
    ! logged systemctl restart "$CONTROL_PLANE_UNIT" || back="; the version before runs again"
  fi
  fail "$EXIT_CONTROL_PLANE" PO-9205 "the control plane did not start$back" "it says: $words" "journalctl -u pipeops-controlplane -n 50 --no-pager"
}
CONTROL_PLANE_PROGRAMS=(pipeops-controlplane pipeops-runner pipeops-agent)

# controlplane_files prints a checksum of all that the service consists of.
controlplane_files() {
  { cat "$bin_dir/pipeops-controlplane" "$CONTROL_PLANE_UNITS"/pipeops-controlplane*.service "$CONTROL_PLANE_UNITS"/pipeops-controlplane*.timer \
    "$CONTROL_PLANE_UNITS/$CONTROL_PLANE_UNIT.d/server.conf" "$CONTROL_PLANE_ENV" "$CONTROL_PLANE_USER_ENV" 2>/dev/null || true; } |
    sha256sum | cut -d ' ' -f 1
}

controlplane_config() {
  cat <<ENV
# Made by PipeOps' install.sh server. Settings of yours go into $CONTROL_PLANE_USER_ENV.
PIPEOPS_ADVERTISE_API=https://$PIPEOPS_ADDRESS:8443
PIPEOPS_ADVERTISE_TUNNEL=$PIPEOPS_ADDRESS:7000
PIPEOPS_ADVERTISE_EDGE=$PIPEOPS_ADDRESS:8444
PIPEOPS_GATEWAY_DOMAIN=$PIPEOPS_DOMAIN
PIPEOPS_GATEWAY_CONSOLE=true
PIPEOPS_GATEWAY_CA=$PIPEOPS_GATEWAY_CA
ENV
}

controlplane_dropin() {
  cat <<UNIT
# Made by PipeOps' install.sh server.
[Service]
EnvironmentFile=
EnvironmentFile=$CONTROL_PLANE_ENV
EnvironmentFile=-$CONTROL_PLANE_USER_ENV
UNIT
}

# controlplane_programs installs the programs and the units of a release's archive.
controlplane_programs() {
  local name
  if [[ $(state_names programs) == "$PIPEOPS_VERSION" && -x $bin_dir/pipeops-controlplane && -x $bin_dir/pipeops-runner && -x $bin_dir/pipeops-agent ]]; then
    return 0
  fi
  programs_fetch linux
  if [[ -n $(state_names programs) && ! -d $STATE_DIR/programs.before ]]; then
    mkdir -p "$STATE_DIR/programs.before"
    for name in "${CONTROL_PLANE_PROGRAMS[@]}"; do
      [[ ! -x $bin_dir/$name ]] || cp -p "$bin_dir/$name" "$STATE_DIR/programs.before/"
    done
  fi
  for name in "${CONTROL_PLANE_PROGRAMS[@]}"; do
    program_install "$name" "$tmp_dir/programs/$name"
  done
  for name in "$CONTROL_PLANE_UNIT" pipeops-controlplane-backup.service pipeops-controlplane-backup.timer; do
    put "$CONTROL_PLANE_UNITS/$name" 0644 <"$tmp_dir/programs/deployments/systemd/$name"
  done
  state_replace programs "$PIPEOPS_VERSION"
}

# as_root runs a program of ours as root's own login would: sudo -E keeps the home of another user.
as_root() { env -u XDG_CONFIG_HOME -u PIPEOPS_CONTEXT -u PIPEOPS_RUNNER_CREDENTIALS HOME="$(root_home)" "$@"; }

root_home() { getent passwd 0 | cut -d : -f 6; }

# server_token makes the token of the agent on this machine, if it has to register.
server_token() {
  ! agent_registered || return 0
  AGENT_TOKEN="$(as_root "$bin_dir/pipeops-controlplane" token create --name "$CLUSTER_NAME" 2>"$tmp_dir/why")" ||
    fail "$EXIT_CONTROL_PLANE" PO-9205 "the control plane gave no token" "it says: $(tail -n 3 "$tmp_dir/why")" "pipeops-controlplane ready"
}

# server_access gives root the command lines, once for a name: as an operator, and as a Runner.
server_access() {
  local runner contexts
  runner="$(root_runner "$CLUSTER_NAME")"
  ! state_has access "$CLUSTER_NAME" || return 0
  step "root's command lines"
  contexts="$(root_home)/.config/pipeops"
  make_dir "${contexts%/*}"
  [[ -e $contexts ]] || record tree "$contexts"
  logged as_root "$bin_dir/pipeops-controlplane" login "$CONTROL_PLANE_DATA/admin.json" --context "$runner" ||
    fail "$EXIT_CONTROL_PLANE" PO-9205 "root cannot sign in" "pipeops-controlplane says: $last_output" "pipeops-controlplane ready"
  # The credentials go from one to the other, past files and arguments.
  as_root "$bin_dir/pipeops-controlplane" runner create "$runner" --force -o - 2>"$tmp_dir/why" |
    as_root "$bin_dir/pipeops-runner" login - --agent "$CLUSTER_NAME" >>"$tmp_dir/why" 2>&1 ||
    fail "$EXIT_CONTROL_PLANE" PO-9205 "root gets no credentials of a Runner" "$(tail -n 3 "$tmp_dir/why")" "pipeops-controlplane ready"
  record access "$CLUSTER_NAME"
}

# root_runner NAME is what root is called as a Runner, and its contexts: at most 63 characters.
root_runner() { echo "${1:0:58}-root"; }

# access_remove takes away root's contexts. Those of other control planes stay.
access_remove() {
  local name
  [[ -x $bin_dir/pipeops-runner && -x $bin_dir/pipeops-controlplane ]] || return 0
  for name in $(state_names access); do
    logged as_root "$bin_dir/pipeops-runner" context delete "$(root_runner "$name")" || true
    logged as_root "$bin_dir/pipeops-controlplane" context delete "$(root_runner "$name")" || true
  done
  [[ -z "$(as_root "$bin_dir/pipeops-runner" context list -o name 2>/dev/null)$(as_root "$bin_dir/pipeops-controlplane" context list -o name 2>/dev/null)" ]] || access_kept=yes
}
access_kept=no

# server_sample deploys an App from the agent's image, once, so that a public URL answers.
server_sample() {
  local image
  ! state_has sample hello || return 0
  step "a sample App"
  image="$(sed -n 's/^ *image: //p' "$tmp_dir/agent.yaml" | head -n 1)"
  if logged as_root "$bin_dir/pipeops-runner" deploy hello --image "$image" --port 8080 --probe-path / --memory 16Mi:64Mi --public -- sample; then
    record sample hello
    return 0
  fi
  say "    note: it was not deployed: ${last_output%%$'\n'*} (see: pipeops-runner status hello; the next run tries again)"
}

# server_url prints the sample's URL, or nothing.
server_url() {
  as_root "$bin_dir/pipeops-runner" status hello -o 'jsonpath={.status.publicUrls[0]}' 2>/dev/null || true
}

# server_told prints what a person does next. The link signs one browser in, so the log leaves it out.
server_told() {
  local link url
  link="$(as_root "$bin_dir/pipeops-controlplane" console --no-browser 2>/dev/null)" || true
  url="$(server_url)"
  say "==> done, after $SECONDS s"
  printf '    console:   %s\n' "${link:-pipeops-controlplane console}"
  [[ -z $url ]] || say "    sample:    $url"
  say "    deploy:    pipeops-runner deploy web --image docker.io/nginxinc/nginx-unprivileged:1.29 --port 8080 --public"
  say "    laptop:    ssh root@$PIPEOPS_ADDRESS pipeops-controlplane runner create laptop -o - | pipeops-runner login - --agent $CLUSTER_NAME"
  say "    a machine: pipeops-controlplane token create"
  if [[ $PIPEOPS_GATEWAY_CA == internal ]]; then
    say "    note: browsers do not trust the certificates yet: import what this prints: pipeops-controlplane gateway ca get"
  fi
  say "    ports:     80, 443 (also UDP), 7000, 8443 and 8444 have to be open"
}

controlplane_remove() {
  [[ -n $(state_names controlplane) ]] || return 0
  step "the control plane with its CA and its database"
  access_remove
  logged systemctl disable --now "$CONTROL_PLANE_UNIT" pipeops-controlplane-backup.timer || true
  rm -rf /var/lib/private/pipeops-controlplane* "$CONTROL_PLANE_DATA" "$CONTROL_PLANE_DATA"-backup
}
