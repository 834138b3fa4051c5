# ---------------------------------------------------------------- main

command=install
facts_file=""
output=""
server_flag=""

usage_error() {
  printf 'error: %s\n  fix: install.sh help\n' "$1" >&2
  exit "$EXIT_USAGE"
}

arguments() {
  case "${1:-}" in
    install | server | runner | cluster-info | upgrade | uninstall | doctor | help)
      command="$1"
      shift
      ;;
    -h | --help) command=help ;;
    "" | -*) ;;
    *) usage_error "there is no command $1" ;;
  esac
  while (($# > 0)); do
    case "$1" in
      --dry-run) dry_run=yes ;;
      -y | --yes) assume_yes=yes ;;
      --with-apps) with_apps=yes ;;
      --kubernetes) upgrade_kubernetes=yes ;;
      --address | --domain | --policy | --context | --cluster-type | --version | --facts | -o)
        (($# > 1)) || usage_error "$1 needs a value"
        argument "$1" "$2"
        shift
        ;;
      -h | --help) command=help ;;
      *) usage_error "there is no flag $1" ;;
    esac
    shift
  done
  [[ -z $server_flag || $command == server ]] || usage_error "$server_flag is for server, not for $command"
  [[ $command != server || $NODE_TYPE == server && -z $KUBE_CONTEXT && ${CLUSTER_TYPE:-k3s} == k3s ]] ||
    usage_error "server sets up k3s as a server on this machine: leave out --context, --cluster-type and NODE_TYPE"
  [[ -z $output || $command == cluster-info || $command == doctor ]] || usage_error "-o is for cluster-info and doctor, not for $command"
  [[ $upgrade_kubernetes == no || $command == upgrade ]] || usage_error "--kubernetes is for upgrade, not for $command"
  [[ $upgrade_kubernetes == no || -z $version_named ]] || usage_error "--version and PIPEOPS_VERSION are of the agent: K3S_VERSION names that of k3s"
  output="${output:-table}"
  [[ -z $facts_file || $dry_run == yes || $command == cluster-info ]] || usage_error "--facts decides for another machine: it needs --dry-run"
}

argument() {
  case "$1" in
    --address) PIPEOPS_ADDRESS="$2" server_flag="$1" ;;
    --domain) PIPEOPS_DOMAIN="$2" server_flag="$1" ;;
    --policy) PIPEOPS_POLICY="$2" ;;
    --context) KUBE_CONTEXT="$2" ;;
    --cluster-type) CLUSTER_TYPE="$2" ;;
    --version) PIPEOPS_VERSION="$2" version_named=yes ;;
    --facts)
      facts_file="$2"
      [[ -r $2 ]] || usage_error "$2 cannot be read"
      ;;
    -o)
      output="$2"
      [[ $2 == table || $2 == env || $2 == json ]] || usage_error "-o $2: use table, env or json"
      ;;
  esac
}

main() {
  umask 022
  settings_load
  arguments "$@"
  ! state_has controlplane service || with_control_plane=yes # a server stays one
  traps_set
  case "$command" in
    help | cluster-info | runner) ;;
    *) [[ $dry_run == yes ]] || log_open ;;
  esac
  [[ $upgrade_kubernetes == no ]] || command=upgrade-kubernetes
  "command_${command//-/_}"
}

main "$@"
