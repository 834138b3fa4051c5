# ---------------------------------------------------------------- pipeops-runner

# command_runner puts pipeops-runner of a release into a folder. It keeps no state: a CI job ends with
# its machine.
command_runner() {
  local dir="${PIPEOPS_BIN_DIR:-$bin_dir}" system
  facts_system
  case "${facts[OS]}" in
    linux) system=linux ;;
    macos) system=darwin ;;
    *) fail "$EXIT_MACHINE" PO-9004 "there is no pipeops-runner for $(uname -s) here" "the script knows Linux and macOS" "unpack the version's archive: docs/get-started/cli.md" ;;
  esac
  tmp_open
  [[ $PIPEOPS_VERSION != dev ]] || newest_version
  step "pipeops-runner $PIPEOPS_VERSION"
  ! would "put it into $dir" || return 0
  programs_fetch "$system"
  logged install -m 0755 "$tmp_dir/programs/pipeops-runner" "$dir/pipeops-runner" ||
    fail "$EXIT_MACHINE" PO-9115 "$dir/pipeops-runner cannot be written" "$last_output" "run it as root, or set PIPEOPS_BIN_DIR to a folder of yours"
  say "    installed $dir/pipeops-runner"
}
