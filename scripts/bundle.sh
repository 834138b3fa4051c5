#!/usr/bin/env bash
# Makes an offline bundle: all that install.sh downloads, in one archive, for
# machines without internet. Run it where there is some, from this repository:
#
#   scripts/bundle.sh --version v1.2.3 [--arch amd64] [--image dist/pipeops-agent-image.tar] [--charts dist/charts]
#     [--programs bin] [--output dist]
#
# On the machine: tar xf the archive, and PIPEOPS_BUNDLE=$PWD bash install.sh in it.

set -Eeuo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
# shellcheck source=scripts/install/settings.sh
source "$here/install/settings.sh"
# shellcheck source=scripts/install/log.sh
source "$here/install/log.sh"
# shellcheck source=scripts/install/download.sh
source "$here/install/download.sh"
# shellcheck source=scripts/install/pinned.sh
source "$here/install/pinned.sh"

declare -A facts=([PACKAGE_MANAGER]=none)
command=bundle
locked=no
lock_release() { [[ $locked == no ]]; } # one bundle does not disturb another
agent_token_kept() { return 1; }

arguments() {
  arch=amd64 image="" charts="" programs="" output=dist
  while (($# > 1)); do
    case "$1" in
      --version) PIPEOPS_VERSION="$2" ;;
      --arch) arch="$2" ;;
      --image) image="$2" ;;
      --charts) charts="$2" ;;
      --programs) programs="$2" ;;
      --output) output="$2" ;;
      *) break ;;
    esac
    shift 2
  done
  (($# == 0)) || fail "$EXIT_USAGE" "$1 is not known, or has no value" "see the head of $0" "scripts/bundle.sh --version v1.2.3"
}

# bundle_fetch HOST/PATH LIST NAME SETTING PINNED downloads NAME, verified as install.sh does,
# and the list of checksums that it is verified by where the user named its version.
bundle_fetch() {
  local folder="$1" list="$2" name="$3"
  mkdir -p "$root/$folder"
  say "    $folder/$name"
  fetch_pinned "https://$folder/$name" "$root/$folder/$name" "https://$folder/$list" "$name" "$4" "$5"
  fetch "https://$folder/$list" "$root/$folder/$list"
}

bundle_k3s() {
  local version="${K3S_VERSION/+/%2B}" suffix=""
  [[ $arch == amd64 ]] || suffix="-$arch"
  step "k3s $K3S_VERSION"
  bundle_fetch "github.com/k3s-io/k3s/releases/download/$version" "sha256sum-$arch.txt" "k3s$suffix" \
    PIPEOPS_K3S_SHA256 "$(k3s_pinned "k3s-linux-$arch")"
  bundle_fetch "raw.githubusercontent.com/k3s-io/k3s/$version" install.sh.sha256sum install.sh \
    PIPEOPS_K3S_INSTALL_SHA256 "$(k3s_pinned k3s-install.sh)"
  step "k3s' images"
  mkdir -p "$root/images"
  local site="https://github.com/k3s-io/k3s/releases/download/$version" images="k3s-airgap-images-$arch.tar.zst"
  fetch_pinned "$site/$images" "$root/images/$images" "$site/sha256sum-$arch.txt" "$images" \
    PIPEOPS_K3S_IMAGES_SHA256 "$(k3s_pinned "k3s-airgap-images-$arch")"
}

# bundle_release puts this repository's own files where the release has them.
bundle_release() {
  local folder="$root/github.com/pipeops/pipeops-vm-agent/releases/download/$PIPEOPS_VERSION" newest
  local parts=(images install.sh join-worker.sh uninstall.sh)
  step "the agent $PIPEOPS_VERSION"
  mkdir -p "$folder"
  sed "s|image: pipeops/agent:dev|image: pipeops/agent:$PIPEOPS_VERSION|" "$here/../deployments/agent.yaml" >"$folder/agent.yaml"
  [[ -z $programs ]] || bundle_programs "$folder"
  (cd "$folder" && sha256sum -- * >"$tmp_dir/SHA256SUMS" && mv "$tmp_dir/SHA256SUMS" .)
  # What install.sh finds where it asks for the newest version.
  newest="$root/${NEWEST_URL#https://}"
  mkdir -p "${newest%/*}"
  echo "$PIPEOPS_VERSION" >"$newest"
  [[ -z $image ]] || cp "$image" "$root/images/"
  cp "$here/install.sh" "$here/join-worker.sh" "$here/uninstall.sh" "$root/"
  sed -i "s/^RELEASE_VERSION=.*/RELEASE_VERSION=\"$PIPEOPS_VERSION\"/" "$root"/*.sh
  [[ -z $charts ]] || parts+=(charts)
  (cd "$root" && find "${parts[@]}" -type f -print0 | xargs -0 sha256sum >SHA256SUMS)
}

# bundle_programs FOLDER packs the programs that `install.sh server` installs, as a release has them.
bundle_programs() {
  local name="pipeops_${PIPEOPS_VERSION#v}_linux_$arch"
  mkdir -p "$tmp_dir/$name/deployments"
  cp -L "$programs"/pipeops-{agent,controlplane,runner} "$tmp_dir/$name/"
  cp -r "$here/../deployments/systemd" "$tmp_dir/$name/deployments/"
  tar -czf "$1/$name.tar.gz" -C "$tmp_dir" "$name"
}

# bundle_charts puts the components' charts where install.sh and a mirror have them.
bundle_charts() {
  [[ -n $charts ]] || return 0
  step "charts of components"
  mkdir -p "$root/charts"
  cp "$charts"/*.tgz "$charts/index.yaml" "$root/charts/"
}

main() {
  settings_load
  arguments "$@"
  traps_set
  tmp_open
  local name="pipeops-bundle-$PIPEOPS_VERSION-$arch"
  root="$tmp_dir/$name"
  bundle_k3s
  bundle_charts
  bundle_release
  mkdir -p "$output"
  tar -czf "$output/$name.tar.gz" -C "$tmp_dir" "$name"
  say "==> $output/$name.tar.gz ($(du -h "$output/$name.tar.gz" | cut -f 1))"
}

main "$@"
