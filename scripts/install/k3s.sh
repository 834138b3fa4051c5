# ---------------------------------------------------------------- k3s

bin_dir=/usr/local/bin
K3S_CONFIG=/etc/rancher/k3s/config.yaml.d/pipeops.yaml
K3S_KUBECONFIG=/etc/rancher/k3s/k3s.yaml

# k3s_ensure brings k3s to the wanted version and settings, and starts it. What
# is right already stays untouched, and running.
k3s_ensure() {
  local role="$NODE_TYPE"
  step "k3s $K3S_VERSION as $role"
  ! k3s_right "$role" || {
    say "    it is installed and runs"
    return 0
  }
  k3s_keep_others "$role"
  k3s_config | put "$K3S_CONFIG" 0600
  k3s_registries
  k3s_program
  k3s_images
  ! would "run k3s' own installer for its service, and start it" || return 0
  k3s_service "$role"
}

# k3s_keep_others keeps what k3s' own scripts would replace or take away, and is
# not k3s' yet.
k3s_keep_others() {
  if [[ $dry_run == yes ]] || state_has k3s "$1"; then return 0; fi
  local path
  for path in "$bin_dir/kubectl" "$bin_dir/crictl" "$bin_dir/ctr" /etc/rancher/k3s; do backup "$path"; done
  # k3s makes these; its own scripts take away what is in them.
  make_dir /etc/rancher
  make_dir /var/lib/rancher
  record k3s "$1"
}

# k3s_right says whether there is nothing to do.
k3s_right() {
  state_has k3s "$1" && k3s_version_is "$K3S_VERSION" && k3s_active "$1" &&
    [[ -f $K3S_CONFIG && "$(k3s_config)" == "$(<"$K3S_CONFIG")" ]] && k3s_env_right "$1" && k3s_registries_right
}

k3s_version_is() { [[ -x $bin_dir/k3s ]] && [[ "$("$bin_dir/k3s" --version 2>/dev/null)" == *" $1 "* ]]; }

k3s_unit() { if [[ $1 == agent ]]; then echo k3s-agent; else echo k3s; fi; }

k3s_active() {
  case "${facts[INIT]}" in
    systemd) systemctl is-active --quiet "$(k3s_unit "$1")" ;;
    openrc) rc-service "$(k3s_unit "$1")" status >/dev/null 2>&1 ;;
    *) return 1 ;;
  esac
}

# k3s_env_right: a worker that is given another server or token is set up again.
k3s_env_right() {
  [[ $1 == agent ]] || return 0
  local file=/etc/systemd/system/k3s-agent.service.env
  [[ ${facts[INIT]} != openrc ]] || file=/etc/rancher/k3s/k3s-agent.env
  [[ -r $file ]] && grep -qF "$K3S_URL" "$file" && [[ "$(<"$file")" == *"$K3S_TOKEN"* ]]
}

# k3s_config is our part of k3s' configuration: config.yaml stays the user's.
k3s_config() {
  local flag key seen="" value
  echo "# Made by PipeOps' install.sh. Settings of your own go into /etc/rancher/k3s/config.yaml."
  [[ $NODE_TYPE != server ]] || echo 'write-kubeconfig-mode: "0600"'
  for flag in "${k3s_flags[@]}"; do
    key="${flag%%=*}"
    case "$key" in
      kubelet-arg | kube-proxy-arg | tls-san | disable)
        [[ $seen != *" $key "* ]] || continue
        seen+=" $key "
        echo "$key+:" # added to the user's own
        for value in "${k3s_flags[@]}"; do
          [[ ${value%%=*} != "$key" ]] || echo "  - \"${value#*=}\""
        done
        ;;
      *) echo "$key: \"${flag#*=}\"" ;;
    esac
  done
}

K3S_REGISTRIES=/etc/rancher/k3s/registries.yaml

# k3s_registries has images come from a mirror.
k3s_registries() {
  [[ -n $PIPEOPS_REGISTRY_MIRROR ]] || return 0
  k3s_mirrors | put "$K3S_REGISTRIES" 0600
}

k3s_registries_right() { [[ -z $PIPEOPS_REGISTRY_MIRROR ]] || [[ -f $K3S_REGISTRIES && "$(k3s_mirrors)" == "$(<"$K3S_REGISTRIES")" ]]; }

k3s_mirrors() { printf 'mirrors:\n  "*":\n    endpoint:\n      - "%s"\n' "$PIPEOPS_REGISTRY_MIRROR"; }

k3s_url() { echo "https://github.com/k3s-io/k3s/releases/download/${K3S_VERSION/+/%2B}/$1"; }

k3s_program() {
  ! k3s_version_is "$K3S_VERSION" || return 0
  ! would "download $(k3s_url "$(k3s_file)"), verify it, and put it at $bin_dir/k3s" || return 0
  k3s_download
  program_install k3s "$tmp_dir/k3s"
}

# k3s_file is the program's name on k3s' site.
k3s_file() { if [[ ${facts[ARCH]} == amd64 ]]; then echo k3s; else echo "k3s-${facts[ARCH]}"; fi; }

# k3s_download puts the verified program at $tmp_dir/k3s.
k3s_download() {
  local name
  name="$(k3s_file)"
  say "    downloading k3s $K3S_VERSION"
  fetch_pinned "$(k3s_url "$name")" "$tmp_dir/k3s" "$(k3s_url "sha256sum-${facts[ARCH]}.txt")" "$name" \
    PIPEOPS_K3S_SHA256 "$(k3s_pinned "k3s-linux-${facts[ARCH]}")"
}

# k3s_images: what an offline bundle has in images goes where k3s takes it from.
k3s_images() {
  [[ -n $PIPEOPS_BUNDLE && -d $PIPEOPS_BUNDLE/images ]] || return 0
  local image to=/var/lib/rancher/k3s/agent/images
  for image in "$PIPEOPS_BUNDLE"/images/*; do
    ! would "copy ${image##*/} to $to" || continue
    verify "$image" "$(sum_in "$PIPEOPS_BUNDLE/SHA256SUMS" "images/${image##*/}")" "images/${image##*/}"
    make_dir "$to"
    cp "$image" "$to/"
    say "    image archive ${image##*/}"
  done
}

# k3s_service has k3s' own installer, of the same version, make the service: it
# knows systemd, OpenRC and SELinux. The token goes through the environment.
k3s_service() {
  local no_proxy_all
  no_proxy_all="$(no_proxy_list)"
  local raw="https://raw.githubusercontent.com/k3s-io/k3s/${K3S_VERSION/+/%2B}" code=0 skip=binary
  [[ -z $PIPEOPS_BUNDLE ]] || skip=true
  fetch_pinned "$raw/install.sh" "$tmp_dir/k3s-install.sh" "$raw/install.sh.sha256sum" install.sh \
    PIPEOPS_K3S_INSTALL_SHA256 "$(k3s_pinned k3s-install.sh)"
  say "    starting k3s"
  (
    export INSTALL_K3S_SKIP_DOWNLOAD="$skip" INSTALL_K3S_EXEC="$1" INSTALL_K3S_BIN_DIR="$bin_dir" INSTALL_K3S_FORCE_RESTART=true
    if [[ $1 == agent ]]; then export K3S_URL K3S_TOKEN; fi
    # shellcheck disable=SC2030 # for k3s alone
    if [[ -n ${facts[PROXY]:-} ]]; then export NO_PROXY="$no_proxy_all"; fi
    # Without a bound it would wait for ever for a server that does not let it in.
    logged timeout "$((PIPEOPS_WAIT + 60))" sh "$tmp_dir/k3s-install.sh" || {
      printf '%s' "${last_output//$'\n'/ }" >"$tmp_dir/why"
      exit 1
    }
  ) || code=$?
  ((code == 0)) || k3s_failed "k3s' own installer failed: $(<"$tmp_dir/why")"
}

# no_proxy_list keeps a proxy out of the cluster's own traffic.
no_proxy_list() {
  # shellcheck disable=SC2031 # a subshell sets it, from here
  local own="127.0.0.0/8,10.42.0.0/16,10.43.0.0/16,localhost,.svc,.cluster.local" theirs="${NO_PROXY:-${no_proxy:-}}"
  echo "${theirs:+$theirs,}$own"
}

k3s_failed() {
  local unit
  unit="$(k3s_unit "$NODE_TYPE")"
  [[ ${facts[INIT]} != systemd ]] || logged journalctl -u "$unit" -n 15 --no-pager -o cat || true
  local fix="journalctl -u $unit -n 50 --no-pager"
  [[ ${facts[INIT]} == systemd ]] || fix="tail -n 50 /var/log/$unit.log"
  [[ ${facts[SELINUX]} != enforcing ]] || fix+="; ausearch -m avc -ts recent"
  fail "$EXIT_CLUSTER" PO-9201 "$1" "k3s says: ${last_output:-nothing}" "$fix"
}

# k3s_await waits until the API answers and the node is ready.
k3s_await() {
  local deadline=$((SECONDS + PIPEOPS_WAIT)) said=""
  while ! node_ready; do
    k3s_active "$NODE_TYPE" || k3s_failed "k3s does not run"
    ((SECONDS < deadline)) || k3s_failed "Kubernetes was not ready after $PIPEOPS_WAIT s"
    [[ -n $said ]] || say "    waiting for Kubernetes"
    said=yes
    sleep 1
  done
  say "    Kubernetes is ready"
}

# k3s_settled waits until k3s has brought what it brings itself, so that it counts as there.
k3s_settled() {
  local file name deadline=$((SECONDS + 60)) dir=/var/lib/rancher/k3s/server/manifests
  for file in local-storage traefik metrics-server/metrics-apiservice; do
    name="${file##*/}"
    [[ -e $dir/$file.yaml && ! -e $dir/$file.yaml.skip ]] || continue
    until kube_read -n kube-system get "addons.k3s.cattle.io/$name" -o name; do
      ((SECONDS < deadline)) || {
        say "    note: k3s has not brought $name yet"
        return 0
      }
      sleep 1
    done
  done
}

node_ready() {
  local out
  if [[ $NODE_TYPE == server ]]; then
    [[ -r $K3S_KUBECONFIG ]] || return 1
    out="$("${kube[@]}" get nodes -o "$NODE_TEMPLATE" 2>/dev/null)" || return 1
    [[ $out == *" True"* ]]
  else
    local config=/var/lib/rancher/k3s/agent/kubelet.kubeconfig
    [[ -r $config ]] || return 1
    out="$("$bin_dir/k3s" kubectl --kubeconfig "$config" get node "$(hostname | tr '[:upper:]' '[:lower:]')" -o "$NODE_TEMPLATE" 2>/dev/null)" || return 1
    [[ $out == *" True"* ]]
  fi
}
NODE_TEMPLATE='go-template={{define "n"}}{{.metadata.name}}{{range .status.conditions}}{{if eq .type "Ready"}} {{.status}}{{"\n"}}{{end}}{{end}}{{end}}{{if .items}}{{range .items}}{{template "n" .}}{{end}}{{else if .status}}{{template "n" .}}{{end}}'
