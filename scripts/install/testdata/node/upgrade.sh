# The command with fakes of what is outside of it. That of systemctl has the node report the
# installed version, but for one that the file "broken" names.
set -Eeuo pipefail
for part in settings preset log facts decide state download pinned signature k3s kube await command_upgrade command_upgrade_kubernetes; do
  source "$PARTS/$part.sh"
done
declare -A facts=([PACKAGE_MANAGER]=apt-get)
command=test
lock_release() { return 0; }
settings_load
traps_set
tmp_open
bin_dir="$FAKE/bin" dry_run="${DRY_RUN:-no}"
hostname() { echo Here; }
facts_collect() { facts=([K3S_OURS]="$(<"$FAKE/role")" [ROOT]=${FAKE_ROOT:-yes} [INIT]=${FAKE_INIT:-systemd} [ARCH]=amd64 [SELINUX]=no); }
state_open() {
  tmp_dir="$STATE_DIR/tmp"
  mkdir -p "$tmp_dir" "$STATE_DIR/backups"
}
fetch() { cp "$FAKE/site/${1##*/}" "$2"; }
systemctl() {
  local version kubelet ready unschedulable
  echo "systemctl $*" >>"$FAKE/calls"
  version="$(k3s_installed)"
  read -r kubelet ready unschedulable <"$FAKE/nodes/here"
  ready=True
  [[ ! -e $FAKE/broken || $(<"$FAKE/broken") != *"$version"* ]] || ready=Unknown
  echo "$version $ready $unschedulable" >"$FAKE/nodes/here"
}
rc-service() { systemctl "$2" "$1"; }
timeout() {
  shift
  "$@"
}
command_upgrade_kubernetes
