main() {
  if [[ $# -ne 2 ]]; then
    echo "usage: join-worker.sh SERVER TOKEN    (on the server: sudo cat /var/lib/rancher/k3s/server/node-token)" >&2
    return 2
  fi
  local server="$1" token="$2" dir script code=0
  [[ $token != - ]] || IFS= read -r token
  [[ $server == https://* ]] || server="https://$server:6443"
  dir="$(mktemp -d)"
  script="$(installer "$dir")" || code=$?
  # The token continues through the environment.
  ((code != 0)) || NODE_TYPE=agent K3S_URL="$server" K3S_TOKEN="$token" bash "$script" install || code=$?
  rm -rf "$dir"
  return "$code"
}

main "$@"
