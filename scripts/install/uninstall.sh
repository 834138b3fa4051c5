main() {
  local dir script code=0
  dir="$(mktemp -d)"
  script="$(installer "$dir")" || code=$?
  ((code != 0)) || bash "$script" uninstall "$@" || code=$?
  rm -rf "$dir"
  return "$code"
}

main "$@"
