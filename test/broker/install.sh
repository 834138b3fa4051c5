#!/bin/sh
# Installs Debian's RabbitMQ without its service: this is run as root, once.
set -eu

export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1

# The package's scripts start the service unless policy-rc.d forbids it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 0755 "$policy"
fi

apt-get -q -o DPkg::Lock::Timeout=300 update
apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends rabbitmq-server

# Nor shall it come up at the next boot.
if command -v systemctl >/dev/null 2>&1; then
  systemctl disable --quiet rabbitmq-server.service epmd.socket epmd.service || true
fi
