# ---------------------------------------------------------------- server

# command_server makes this machine a server: Kubernetes, the control plane and an agent. It differs
# from command_install in what the agent registers with, which is here.
command_server() {
  CLUSTER_TYPE=k3s with_control_plane=yes
  command_install
}

# server_ready is what an agent on this machine needs of its control plane.
server_ready() {
  controlplane_ensure
  [[ $dry_run == yes ]] || server_token
}

# server_finish gives root what it needs to begin.
server_finish() {
  local code=0
  server_access
  server_sample
  (components_finish) || code=$? # what follows is true without them
  components_running=no
  server_told
  ((code == 0)) || {
    failed=yes
    exit "$code"
  }
}
