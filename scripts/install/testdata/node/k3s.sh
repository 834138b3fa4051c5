#!/bin/bash
# FAKE of k3s for TestUpgradeKubernetes: a program of the version VERSION, and kubectl for a cluster
# whose nodes are files of $FAKE, each with "KUBELET READY UNSCHEDULABLE".
set -eu
version=VERSION
if [[ $1 == --version ]]; then
  echo "k3s version $version (fake)"
  exit
fi
shift 3 # kubectl --kubeconfig FILE
echo "$*" >>"$FAKE/calls"
node() { read -r kubelet ready unschedulable <"$FAKE/nodes/$1"; }
case "$*" in
  "get --raw /readyz"*) echo ok ;;
  "get --raw /version") printf '{"major": "1", "gitVersion": "%s"}\n' "$(<"$FAKE/server")" ;;
  "get nodes -o name") ls "$FAKE/nodes" ;;
  "get nodes -o go-template"*)
    for file in "$FAKE"/nodes/*; do
      node "${file##*/}"
      echo "${file##*/} $kubelet"
    done
    ;;
  "get node "*"-o name") node "$3" && echo "node/$3" ;;
  "get node "*unschedulable*) node "$3" && { [[ $unschedulable == no ]] || echo true; } ;;
  "get node "*go-template*) node "$3" && echo "$kubelet $ready" ;;
  "drain "*)
    node "$2"
    echo "$kubelet $ready yes" >"$FAKE/nodes/$2"
    [[ ! -e $FAKE/undrainable ]] || { echo "error: pods web-0 cannot be evicted" && exit 1; }
    ;;
  "uncordon "*) node "$2" && echo "$kubelet $ready no" >"$FAKE/nodes/$2" ;;
  *) echo "a fake has no $*" && exit 1 ;;
esac
