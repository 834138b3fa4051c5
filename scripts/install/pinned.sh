# ---------------------------------------------------------------- pinned programs
# The checksums that publishers list for the versions that settings.sh pins. A site that
# changes a download cannot change them. Replace them whenever you raise a version.

# pinned_sum FILE prints the SHA-256 of a pinned version's file; nothing where it is not known.
pinned_sum() {
  case "$1" in
    k3s-linux-amd64) echo 835873f37245fc615f547a2fe2af9402a347875f13fa64a1f136de644955ea3f ;;
    k3s-linux-arm64) echo c920706346d5ad4e5cd3c7bf1bb09ce71ebe07fec829e513e40f1caf98aed8bb ;;
    k3s-install.sh) echo 46177d4c99440b4c0311b67233823a8e8a2fc09693f6c89af1a7161e152fbfad ;;
    k3s-airgap-images-amd64) echo 9024613e2d468c51ba0e5ba21898604c41339354449fb3338cc6a7931189eb6a ;;
    k3s-airgap-images-arm64) echo 9d3c4c2197bcf857ca17633aa393bad683cc982ddd408620f93036a3cca953b5 ;;
    k3d-linux-amd64) echo dbaa79a76ace7f4ca230a1ff41dc7d8a5036a8ad0309e9c54f9bf3836dbe853e ;;
    k3d-linux-arm64) echo 0b8110f2229631af7402fb828259330985918b08fefd38b7f1b788a1c8687216 ;;
    k3d-darwin-amd64) echo fd0f8e9e8ea4d8bc3674572ca6ed0833b639bf57c43c708616d937377324cfea ;;
    k3d-darwin-arm64) echo 8da468daa7dc7cf7cdd4735f90a9bb05179fa27858250f62e3d8cdf5b5ca0698 ;;
    kind-linux-amd64) echo 517ab7fc89ddeed5fa65abf71530d90648d9638ef0c4cde22c2c11f8097b8889 ;;
    kind-linux-arm64) echo 7ea2de9d2d190022ed4a8a4e3ac0636c8a455e460b9a13ccf19f15d07f4f00eb ;;
    kind-darwin-amd64) echo 4f0b6e3b88bdc66d922c08469f05ef507d4903dd236e6319199bb9c868eed274 ;;
    kind-darwin-arm64) echo ceaf40df1d1551c481fb50e3deb5c3deecad5fd599df5469626b70ddf52a1518 ;;
    minikube-linux-amd64) echo d5cf561c71171152ff67d799f041ac0f65c235c87a1e9fc02a6a17b8226214d0 ;;
    minikube-darwin-amd64) echo 4c32b9e5fed64a311db9a40d6fdcc8fa794bc5bbc546545f4d187e9d416a74cb ;;
    minikube-darwin-arm64) echo 5e0914c3559f6713295119477a6f5dc29862596effbfc764a61757bb314901d2 ;;
    kubectl-linux-amd64) echo 90f75ea6ecc9ea5633262e1c0b83a40560003b30fc94a04cb099404fcef0c224 ;;
    kubectl-linux-arm64) echo ac69e06fd6860d69786692f5af1c3a1208ed54f8366a4d97ab15c172e99765ee ;;
    kubectl-darwin-amd64) echo d6af0a35e78865ab3352a3f76e7346041f6657d08641db1c1e93830210fce334 ;;
    kubectl-darwin-arm64) echo 4d79aa4ca3015d6c70ac593d8c387efe09f4000b5ff1098f42610e6030a8ccb3 ;;
  esac
}

# unpinned are files of pinned versions whose checksum is not filled in above yet. They go by the
# list of their own site, as versions do that the user named.
unpinned=(minikube-linux-arm64)

# pinned_settings are the user's own checksums, for versions and machines without one above.
pinned_settings=(PIPEOPS_K3S_SHA256 PIPEOPS_K3S_INSTALL_SHA256 PIPEOPS_K3S_IMAGES_SHA256 PIPEOPS_K3D_SHA256
  PIPEOPS_KIND_SHA256 PIPEOPS_MINIKUBE_SHA256 PIPEOPS_KUBECTL_SHA256)

# fetch_pinned URL FILE LIST_URL NAME SETTING PINNED: NAME at URL has the checksum that
# SETTING gives, or that of PINNED above. PINNED is empty for a version that the user named:
# that one goes by the list of its own site, and so do those of unpinned.
fetch_pinned() {
  local url="$1" file="$2" list="$3" name="$4" setting="$5" pinned="$6" wanted
  wanted="${!setting:-}"
  [[ -n $wanted || -z $pinned ]] || wanted="$(pinned_sum "$pinned")"
  if [[ -n $wanted ]]; then
    fetch "$url" "$file"
    verify "$file" "$wanted" "$name"
    return
  fi
  [[ -z $pinned || " ${unpinned[*]} " == *" $pinned "* || ${PIPEOPS_ALLOW_UNSIGNED:-} == yes ]] || fail "$EXIT_CHECKSUM" PO-9111 "this script has no checksum for $pinned" \
    "only its own site has one: $list" "check that list, and set $setting to the checksum; or set PIPEOPS_ALLOW_UNSIGNED=yes to go by the list alone"
  say "    note: $name is verified by the checksum of its own site alone; $setting sets yours"
  fetch_verified "$url" "$file" "$list" "$name"
}

# k3s_pinned FILE prints FILE, or nothing where the user named another version of k3s.
k3s_pinned() { [[ $K3S_VERSION != "$RELEASE_K3S_VERSION" ]] || echo "$1"; }
