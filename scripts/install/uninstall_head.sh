#!/usr/bin/env bash
# Removes what install.sh has installed on this machine, and nothing else. Takes
# the flags of `install.sh uninstall`: --yes, --dry-run, --with-apps.
#
# Made from scripts/install/*.sh by `go generate ./scripts/install`. Do not edit.

set -euo pipefail
