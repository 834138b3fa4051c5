# ---------------------------------------------------------------- help, cluster-info

command_help() {
  cat <<'TEXT'
Puts the PipeOps agent on this machine or into a cluster, and looks after it. Or makes this machine
a server, which other machines can join.

  curl -fsSL https://github.com/pipeops/pipeops-vm-agent/releases/latest/download/install.sh | AGENT_TOKEN=... CLUSTER_NAME=... bash
  bash install.sh [COMMAND] [FLAGS]

Commands
  server         make this machine a server: k3s, the control plane with its gateway and console, an agent,
                 and a sample App at a public URL. It needs no token
  install        (default) set up Kubernetes where there is none, install the agent, wait until it is registered
  runner         put pipeops-runner alone into PIPEOPS_BIN_DIR (/usr/local/bin), as in a CI job
  cluster-info   what this machine is, and which Kubernetes would be chosen, and why
  upgrade        move the agent to the newest version, or that of --version, and back if it does not become healthy
  upgrade --kubernetes
                 move k3s to the version that this script pins, on this machine, and back if the node does not
                 become ready: first on the server, which then names the workers
  uninstall      remove what was installed, and nothing else
  doctor         check machine, network, clock, control plane, cluster and agent
  help           this

Flags
  --domain DOMAIN       server: domain of Apps, for which *.DOMAIN leads to this machine (by default
                        A-B-C-D.sslip.io, which needs no DNS of yours)
  --address ADDRESS     server: where other machines reach this one, if not at its own address
  --dry-run             say what would be done, and change nothing
  --yes, -y             answer yes to questions; without a terminal none is asked
  --policy PRESET       what Runners may do, if there is no policy yet: viewer, deploy (default) or full
  --context NAME        use this kubectl context, an existing cluster
  --cluster-type TYPE   k3s, k3d, kind, minikube or existing
  --version VERSION     version of the agent
  --facts FILE          decide by recorded facts (with --dry-run)
  --with-apps           uninstall: delete the Apps too
  --kubernetes          upgrade: k3s in place of the agent
  -o table|env|json     form of cluster-info; of doctor table or json

Environment
  AGENT_TOKEN, AGENT_TOKEN_FILE   enrolment token, or the file that holds it
  CLUSTER_NAME                    name that the control plane lists
  PIPEOPS_CONTROL_PLANE_URL       https://HOST[:PORT]; by default that in the token
  NODE_TYPE=agent K3S_URL K3S_TOKEN   join a k3s server as a worker
  COMPONENTS                      none, minimal, default, full, or names: what the cluster gets if it lacks it
  PRESET                          minimum, production, full-monitoring: resources of the agent, and components
  PIPEOPS_UPDATE_SIGNATURES       how many maintainers must have signed another version (1)
  PIPEOPS_NAME_SERVICE            server: service like sslip.io for machines without a domain, or none
  PIPEOPS_GATEWAY_CA              server: internal, or an ACME directory (Let's Encrypt, if it is reached)
  HTTPS_PROXY NO_PROXY PIPEOPS_CA_FILE PIPEOPS_MIRROR PIPEOPS_REGISTRY_MIRROR PIPEOPS_BUNDLE
  The rest, and the rules by which a Kubernetes is chosen: docs/cluster-owner/install.md

Exit codes
  0 done            4 this machine cannot       8 a decision of yours is needed
  1 unexpected      5 network                   9 the agent is not registered
  2 wrong settings  6 wrong checksum           10 another run is at work
  3 root is needed  7 the cluster is not there 11 something could not be removed
 12 the agent is registered, and not all components are installed
 13 the control plane on this machine does not run
TEXT
}

command_cluster_info() {
  if [[ -z $facts_file ]]; then facts_collect; else facts_replay "$facts_file"; fi
  facts_print "$output"
  [[ $output == table ]] || return 0
  decide
  decision_print
  local entry exit code what why fix
  for entry in "${obstacles[@]}"; do
    IFS='|' read -r exit code what why fix <<<"$entry"
    say "    in the way (exit code $exit, $code): $what: $why (fix: $fix)"
  done
  [[ ${facts[K3S_OURS]:-no} != server ]] || cluster_info_server
}

# cluster_info_server prints what a worker needs to join this server. The token itself stays in its file.
cluster_info_server() {
  local address=SERVER # of another machine, whose facts are replayed
  if [[ -z $facts_file ]]; then
    address="${facts[ADDRESS]:-}"
  fi
  say "    server:     https://${address:-SERVER}:6443"
  say "    token:      sudo cat /var/lib/rancher/k3s/server/node-token"
  say "    worker:     curl -fsSL ${NEWEST_URL%/*}/join-worker.sh | bash -s ${address:-SERVER} TOKEN"
}
