RELEASE_VERSION="dev"
RELEASE_INSTALL_SHA256=""

# installer prints the path of install.sh: the one beside this script, or that of
# this release, downloaded into DIR and verified.
installer() {
  local here dir="$1" version="${PIPEOPS_VERSION:-$RELEASE_VERSION}"
  here="$(cd "$(dirname "${BASH_SOURCE[0]:-.}")" && pwd)"
  if [[ -f $here/install.sh ]]; then
    echo "$here/install.sh"
    return
  fi
  local path="github.com/pipeops/pipeops-vm-agent/releases/download/$version" name
  local wanted=(install.sh)
  [[ -n $RELEASE_INSTALL_SHA256 && $version == "$RELEASE_VERSION" ]] || wanted+=(SHA256SUMS)
  for name in "${wanted[@]}"; do
    curl --proto '=https' -fsSL --retry 2 -o "$dir/$name" "${PIPEOPS_MIRROR:-https:/}/$path/$name" || {
      echo "error: $name of $version cannot be downloaded (fix: put install.sh beside this script)" >&2
      return 5
    }
  done
  [[ ${#wanted[@]} -gt 1 ]] || echo "$RELEASE_INSTALL_SHA256  install.sh" >"$dir/SHA256SUMS"
  (cd "$dir" && grep ' install.sh$' SHA256SUMS | sha256sum -c --quiet) >&2 || {
    echo "error: install.sh is not what its publisher made (fix: run it again; if it stays, do not use this source)" >&2
    return 6
  }
  echo "$dir/install.sh"
}
