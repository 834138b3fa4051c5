#!/bin/sh
# Installs Debian's PostgreSQL without a cluster and its service: this is run as root, once.
set -eu

export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1

# The package's scripts make a cluster and start it unless these two forbid it.
policy=/usr/sbin/policy-rc.d
none=/etc/postgresql-common/createcluster.d/pipeops-test.conf
made=
trap 'rm -f "$none" ${made:+"$made"}' EXIT
if [ ! -e "$policy" ]; then
  made=$policy
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 0755 "$policy"
fi
mkdir -p "${none%/*}"
echo 'create_main_cluster = false' >"$none"

apt-get -q -o DPkg::Lock::Timeout=300 update
apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends postgresql

# Nor shall it come up at the next boot.
if command -v systemctl >/dev/null 2>&1; then
  systemctl disable --quiet postgresql.service || true
fi
