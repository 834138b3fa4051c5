#!/bin/sh
# Installs what makes and boots test machines, from Debian: run as root, once.
set -eu

export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
apt-get -q -o DPkg::Lock::Timeout=300 update
apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends \
  debootstrap debian-archive-keyring systemd-container
