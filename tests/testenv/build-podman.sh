#!/bin/bash
# build-podman.sh [CACHE_DIR]
# Builds (once) a Debian 13 root filesystem with podman, which has quadlet there, and with dnf, and prints its path. Like
# build-rootfs.sh, but a machine made of it runs the project with the Python of this host, because Debian 13 has another one.
# Needs root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
cache=${1:-${CM_TESTENV_CACHE:-/var/tmp/cm-testenv}}
suite=trixie
# the last line: what the modules of the host's Python are linked with
include=systemd,systemd-sysv,dbus,iproute2,procps,kmod,podman,crun,netavark,nftables,busybox-static,curl,dnf,rpm,createrepo-c
include+=,libexpat1,zlib1g,libbz2-1.0,liblzma5,libssl3t64,libffi8,libsqlite3-0,libreadline8t64,libuuid1

key=$( { echo "$suite $include"; cat "$0" "$here/debian.sh"; } | sha256sum | cut -c1-12)
dest=$cache/podman-$suite-$key
mkdir -p "$cache"
exec 9>"$cache/.podman.lock"; flock 9
if [ -e "$dest/.complete" ]; then echo "$dest"; exit 0; fi

tmp=$cache/.building-podman-$key
bootstrap "$suite" "$include" podman.socket podman-auto-update.timer

# a machine is an overlay, over which the kernel mounts no other one; and its cgroups have no controllers
printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\ngraphroot = "/var/lib/containers/storage"\n' > "$tmp/etc/containers/storage.conf"
printf '[containers]\npids_limit = 0\n' > "$tmp/etc/containers/containers.conf"

# see build-rootfs.sh; the only package is one that a machine without dpkg's records has for podman
mkdir -p "$tmp/etc/rpm" "$tmp/etc/yum.repos.d" "$tmp/var/lib/rpm"
echo '%_dbpath /var/lib/rpm' > "$tmp/etc/rpm/macros"
printf '[main]\ngpgcheck=0\n' > "$tmp/etc/dnf/dnf.conf"
printf '[cmtest]\nname=cmtest\nbaseurl=file:///srv/rpm\nenabled=1\n' > "$tmp/etc/yum.repos.d/cmtest.repo"
printf '%s\n' 'Name: podman' 'Version: 5.4.2' 'Release: 1' 'Summary: test package' 'License: MIT' 'BuildArch: noarch' \
  'Provides: system-release' 'Provides: system-release(releasever) = 13' '%description' 'test package' '%files' > "$tmp/root/podman.spec"
chroot "$tmp" rpmbuild -bb --quiet --define '_topdir /root/top' --define '_rpmdir /srv/rpm' /root/podman.spec >&2
chroot "$tmp" createrepo_c -q /srv/rpm >&2
chroot "$tmp" dnf -q -y --releasever=13 makecache >&2
rm -rf "$tmp/root/top" "$tmp/root/podman.spec"
# the Python of this host may be mounted over python3
chroot "$tmp" sh -c 'cp "$(readlink -f /usr/bin/python3)" /usr/bin/python-of-dnf'
chroot "$tmp" sh -c 'sed -i "1s|.*|#!/usr/bin/python-of-dnf|" "$(readlink -f /usr/bin/dnf)"'

finish "$dest" "$cache/podman-"
