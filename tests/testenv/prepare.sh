#!/bin/bash
# prepare.sh : all that nodes need from a mirror, before tests run without a network
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bash "$here/build-podman.sh" >/dev/null &
podman=$!
rootfs=$(bash "$here/build-rootfs.sh" | tail -n 1)
bash "$here/packages/fetch-debs.sh" "$rootfs" >/dev/null
wait "$podman"
