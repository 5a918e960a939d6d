#!/bin/bash
# build-podman.sh [CACHE_DIR]
# Builds (once) a Debian 13 root filesystem with podman, which has quadlet there, and prints its path. Like build-rootfs.sh,
# but a machine made of it runs the project with the Python of this host, because Debian 13 has another one. Needs root.
set -euo pipefail
cache=${1:-${CM_TESTENV_CACHE:-/var/tmp/cm-testenv}}
suite=trixie
# the last line: what the modules of the host's Python are linked with
include=systemd,systemd-sysv,dbus,iproute2,procps,kmod,podman,crun,netavark,nftables,busybox-static,curl
include+=,libexpat1,zlib1g,libbz2-1.0,liblzma5,libssl3t64,libffi8,libsqlite3-0,libreadline8t64,libuuid1

key=$( { echo "$suite $include"; cat "$0"; } | sha256sum | cut -c1-12)
dest=$cache/podman-$suite-$key
mkdir -p "$cache"
exec 9>"$cache/.podman.lock"; flock 9
if [ -e "$dest/.complete" ]; then echo "$dest"; exit 0; fi

# the same mirror as build-rootfs.sh: it has all suites
mirror=${CM_TESTENV_MIRROR:-$(apt-get indextargets -o APT::Get::IndexTargets::ReleaseInfo=false --format '$(REPO_URI)' 'Created-By: Packages' |
  awk '$1 !~ /^file:|security/ { print; exit }')}
[ -n "$mirror" ] || { echo "no mirror in this machine's apt sources; set CM_TESTENV_MIRROR" >&2; exit 1; }

tmp=$cache/.building-podman-$key
build() {
  [ ! -e "$tmp" ] || rm -rf --one-file-system "$tmp"
  mmdebstrap --quiet --mode=root --variant=minbase --include="$include" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --aptopt='Acquire::Languages "none"' --aptopt='APT::Install-Recommends "false"' \
    --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Check-Date "false"' \
    --aptopt='Acquire::Retries "3"' --aptopt='Acquire::http::Timeout "30"' \
    "$suite" "$tmp" "$mirror" >&2
}
for n in 1 2 3; do build && break; [ "$n" -lt 3 ] || exit 1; sleep $((n * 5)); done

: > "$tmp/etc/hostname"; : > "$tmp/etc/machine-id"; rm -f "$tmp/etc/resolv.conf"
printf '127.0.0.1 localhost\n::1 localhost\n' > "$tmp/etc/hosts"
# as in build-rootfs.sh
for u in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
         e2scrub_reap.service fstrim.timer systemd-tmpfiles-clean.timer systemd-journald-audit.socket \
         sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount \
         dev-hugepages.mount dev-mqueue.mount getty@.service console-getty.service \
         podman.socket podman-auto-update.timer; do
  ln -sf /dev/null "$tmp/etc/systemd/system/$u"
done
# a machine is an overlay, over which the kernel mounts no other one; and its cgroups have no controllers
printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\ngraphroot = "/var/lib/containers/storage"\n' > "$tmp/etc/containers/storage.conf"
printf '[containers]\npids_limit = 0\n' > "$tmp/etc/containers/containers.conf"

touch "$tmp/.complete"
mv "$tmp" "$dest"
for old in "$cache"/podman-*; do                  # keep only the current one
  [ "$old" = "$dest" ] || ! [ -d "$old" ] || rm -rf --one-file-system "$old"
done
echo "$dest"
