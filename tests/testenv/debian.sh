# debian.sh: what build-rootfs.sh and build-podman.sh share. To be sourced, with `tmp` set to the root filesystem to build.

retry() { local n; for n in 1 2 3; do "$@" && return 0; echo "attempt $n failed: $*" >&2; sleep $((n*5)); done; return 1; }

# find_mirror SUITE: the mirror that this machine's own apt uses, for another suite the first one, because it has all of them;
# without ReleaseInfo=false a machine whose package lists are empty names none
find_mirror() {
  local found
  found=${CM_TESTENV_MIRROR:-$(apt-get indextargets -o APT::Get::IndexTargets::ReleaseInfo=false --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
    awk -v suite="$1" '$2 !~ /^file:|security/ { if ($1 == suite && !m) m = $2; if (!any) any = $2 } END { print m ? m : any }')}
  [ -n "$found" ] || { echo "no mirror in this machine's apt sources; set CM_TESTENV_MIRROR" >&2; return 1; }
  echo "$found"
}

bootstrap_once() {
  [ ! -e "$tmp" ] || rm -rf --one-file-system "$tmp"
  mmdebstrap --quiet --mode=root --variant=minbase --include="$2" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --aptopt='Acquire::Languages "none"' --aptopt='APT::Install-Recommends "false"' \
    --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Check-Date "false"' \
    --aptopt='Acquire::Retries "3"' --aptopt='Acquire::http::Timeout "30"' \
    "$1" "$tmp" "$3" >&2
}

# bootstrap SUITE PACKAGES [UNIT...]: the root filesystem of a machine, without the units that would disturb tests
bootstrap() {
  local suite=$1 packages=$2 mirror u
  shift 2
  mirror=$(find_mirror "$suite")
  command -v mmdebstrap >/dev/null || {
    retry apt-get update -q >&2
    retry env DEBIAN_FRONTEND=noninteractive apt-get install -y -q -o DPkg::Lock::Timeout=120 --no-install-recommends mmdebstrap >&2
  }
  retry bootstrap_once "$suite" "$packages" "$mirror"

  # identity is per node (written into its upper layer at creation)
  : > "$tmp/etc/hostname"; : > "$tmp/etc/machine-id"; rm -f "$tmp/etc/resolv.conf"
  printf '127.0.0.1 localhost\n::1 localhost\n' > "$tmp/etc/hosts"

  # units that would disturb tests (dpkg lock!), touch the host kernel, or cost boot time
  for u in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
           e2scrub_reap.service fstrim.timer systemd-tmpfiles-clean.timer systemd-journald-audit.socket \
           sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount \
           dev-hugepages.mount dev-mqueue.mount getty@.service console-getty.service "$@"; do
    ln -sf /dev/null "$tmp/etc/systemd/system/$u"
  done
}

# finish DEST PREFIX: move the complete filesystem into place, and keep only this one
finish() {
  local old
  touch "$tmp/.complete"
  mv "$tmp" "$1"
  for old in "$2"*; do
    [ "$old" = "$1" ] || ! [ -d "$old" ] || rm -rf --one-file-system "$old"
  done
  echo "$1"
}
