#!/bin/sh
# A FAKE of k3s' installer, for tests: makes the service, and the scripts with
# which k3s is taken away, where k3s' own would.
set -eu

role="$INSTALL_K3S_EXEC"
bin="$INSTALL_K3S_BIN_DIR"
[ "$INSTALL_K3S_SKIP_DOWNLOAD" != "" ] || exit 1
name=k3s
[ "$role" = server ] || name="k3s-$role"
unit="/etc/systemd/system/$name.service"

(
  umask 077
  export | sed -n "s/^export \(K3S_.*\)/\1/p; s/^export \(HTTPS_PROXY.*\)/\1/p" | tr -d "'" >"$unit.env"
)
cat >"$unit" <<UNIT
[Unit]
Description=FAKE k3s ($role)
[Service]
Type=notify
EnvironmentFile=-$unit.env
ExecStart=$bin/k3s $role
Restart=on-failure
RestartSec=1s
[Install]
WantedBy=multi-user.target
UNIT
for link in kubectl crictl ctr; do
  command -v "$link" >/dev/null || ln -sf k3s "$bin/$link"
done
cat >"$bin/$name-uninstall.sh" <<UNINSTALL
#!/bin/sh
set -x
systemctl disable --now $name
[ "$role" != server ] || $bin/k3s fake-uninstall
rm -f "$unit" "$unit.env"
systemctl daemon-reload
for link in kubectl crictl ctr; do
  [ ! -L "$bin/\$link" ] || rm -f "$bin/\$link"
done
rm -rf /etc/rancher/k3s /var/lib/rancher/k3s "$bin/k3s" "$bin/$name-uninstall.sh"
UNINSTALL
chmod 0755 "$bin/$name-uninstall.sh"
systemctl enable "$name"
systemctl daemon-reload
systemctl restart "$name"
