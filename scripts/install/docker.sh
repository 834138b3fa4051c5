# ---------------------------------------------------------------- k3d, kind, minikube
# For development. Their kubeconfig is kept beside the state: the user's own, and
# its current context, stay as they are.

docker_cluster_ensure() {
  local tool="$decided" config="$STATE_DIR/kubeconfig"
  step "$tool cluster \"pipeops\""
  docker_tools_dir
  "tool_$tool"
  tool_kubectl
  kube=(kubectl --kubeconfig "$config")
  if state_has cluster "$tool" && "${kube[@]}" get --raw /readyz >/dev/null 2>&1; then
    say "    it is there and runs"
    return 0
  fi
  ! would "create it, with its kubeconfig at $config" || return 0
  record cluster "$tool"
  record file "$config"
  "create_$tool" "$config" || fail "$EXIT_CLUSTER" PO-9202 "$tool could not create the cluster" "$tool says: $last_output" \
    "docker info; docker system df; then run this again"
}

create_k3d() {
  k3d cluster list pipeops >/dev/null 2>&1 ||
    logged k3d cluster create pipeops --image "rancher/k3s:${K3S_VERSION/+/-}" --wait --timeout "${PIPEOPS_WAIT}s" \
      --kubeconfig-update-default=false --kubeconfig-switch-context=false || return 1
  (umask 077 && k3d kubeconfig get pipeops >"$1")
}

create_kind() { logged kind create cluster --name pipeops --kubeconfig "$1" --wait "${PIPEOPS_WAIT}s"; }

create_minikube() { KUBECONFIG="$1" logged minikube start -p pipeops --driver docker; }

docker_tools_dir() {
  ((EUID == 0)) || bin_dir="$STATE_DIR/bin"
  export PATH="$bin_dir:$PATH"
}

# tool_get NAME URL LIST_URL NAME_IN_LIST PINNED
tool_get() {
  ! command -v "$1" >/dev/null || return 0
  ! would "download $2, verify it, and put it at $bin_dir/$1" || return 0
  say "    downloading $1"
  fetch_pinned "$2" "$tmp_dir/$1" "$3" "$4" "PIPEOPS_${1^^}_SHA256" "$5"
  program_install "$1" "$tmp_dir/$1"
}

tool_os() { if [[ ${facts[OS]} == macos ]]; then echo darwin; else echo linux; fi; }

tool_k3d() {
  local base="https://github.com/k3d-io/k3d/releases/download/$RELEASE_K3D_VERSION" name
  name="k3d-$(tool_os)-${facts[ARCH]}"
  tool_get k3d "$base/$name" "$base/checksums.txt" "$name" "$name"
}

tool_kind() {
  local base="https://github.com/kubernetes-sigs/kind/releases/download/$RELEASE_KIND_VERSION" name
  name="kind-$(tool_os)-${facts[ARCH]}"
  tool_get kind "$base/$name" "$base/$name.sha256sum" "$name" "$name"
}

tool_minikube() {
  local base="https://github.com/kubernetes/minikube/releases/download/$RELEASE_MINIKUBE_VERSION" name
  name="minikube-$(tool_os)-${facts[ARCH]}"
  tool_get minikube "$base/$name" "$base/$name.sha256" "$name" "$name"
}

tool_kubectl() {
  local base
  base="https://dl.k8s.io/release/$RELEASE_KUBECTL_VERSION/bin/$(tool_os)/${facts[ARCH]}"
  tool_get kubectl "$base/kubectl" "$base/kubectl.sha256" kubectl "kubectl-$(tool_os)-${facts[ARCH]}"
}

docker_cluster_delete() {
  docker_tools_dir
  case "$1" in
    k3d) logged k3d cluster delete pipeops ;;
    kind) logged kind delete cluster --name pipeops ;;
    minikube) logged minikube delete -p pipeops ;;
  esac
}
