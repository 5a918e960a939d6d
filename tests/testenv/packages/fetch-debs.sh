#!/bin/bash
# fetch-debs.sh ROOTFS
# Downloads (once) the Debian packages below, with what they need besides ROOTFS, as a repository
# for apt, and prints its path.  Nodes have no network: bind it and name it in a sources file.
set -euo pipefail
. "$(dirname "$0")/../debian.sh"
packages=(nginx openssh-server prometheus-node-exporter openssl curl cron sudo logrotate python3-apt redis-server)
rootfs=$1
cache=$(dirname "$rootfs")
key=$( { echo "$rootfs"; cat "$0"; } | sha256sum | cut -c1-12)
dest=$cache/debs-$key
exec 9>"$cache/.debs.lock"; flock 9
if [ -e "$dest/.complete" ]; then echo "$dest"; exit 0; fi

mirror=$(find_mirror bookworm)
tmp=$cache/.debs-$key
[ ! -e "$tmp" ] || rm -rf --one-file-system "$tmp"
mkdir -p "$tmp/apt/lists/partial" "$tmp/apt/archives/partial"
echo "deb $mirror bookworm main" > "$tmp/apt/sources.list"
# nothing of this machine's apt is read or written but how it reaches the mirror
apt() {
  apt-get -q -o "Dir::State::status=$rootfs/var/lib/dpkg/status" -o Dir::State::extended_states=/dev/null \
    -o "Dir::State::lists=$tmp/apt/lists" -o "Dir::Cache=$tmp/apt" \
    -o "Dir::Etc::sourcelist=$tmp/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::Etc::trustedparts=$rootfs/etc/apt/trusted.gpg.d" \
    -o APT::Architecture=amd64 -o APT::Install-Recommends=false -o APT::Sandbox::User=root -o Acquire::Languages=none \
    -o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false -o Acquire::Check-Date=false "$@" >&2
}
apt update
apt install -y --download-only -o Debug::NoLocking=1 "${packages[@]}"

cd "$tmp"
for deb in apt/archives/*.deb; do
  plain=$(basename "$deb" | sed 's/%3a/~/g')      # no ':' in file names, as in build-debs.sh
  mv "$deb" "$plain"
  dpkg-deb -f "$plain"
  printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$plain" "$(stat -c %s "$plain")" "$(sha256sum "$plain" | cut -d' ' -f1)"
done > Packages
{ printf 'Origin: debian\nSuite: debian\nDate: %s\nSHA256:\n' "$(LC_ALL=C date -Ru)"
  printf ' %s %s Packages\n' "$(sha256sum Packages | cut -d' ' -f1)" "$(stat -c %s Packages)"; } > Release
rm -rf apt
touch .complete
mv "$tmp" "$dest"
for old in "$cache"/debs-*; do                    # keep only the current one
  [ "$old" = "$dest" ] || rm -rf --one-file-system "$old"
done
echo "$dest"
