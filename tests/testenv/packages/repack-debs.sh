#!/bin/sh
# repack-debs.sh DEBS OUT : RPMs with the names and files of the .debs in a directory, and of an empty python3, as a repository for dnf.
# They do in %post what Debian's scripts do and a service needs; as packages of Fedora, they start nothing.
# Needs dpkg-deb, rpmbuild (Debian package rpm) and createrepo_c (Debian package createrepo-c).
set -eu
debs=$1; out=$2; t=$(mktemp -d); mkdir -p "$out" "$t/files"
post() {
  case $1 in
  cron) echo 'getent group crontab || groupadd -r crontab';;
  openssh-server) echo 'getent passwd sshd || useradd -r -g nogroup -d /run/sshd -s /usr/sbin/nologin sshd
cp -n /usr/share/openssh/sshd_config /etc/ssh/sshd_config; ssh-keygen -q -A; mkdir -p /run/sshd';;
  prometheus-node-exporter) echo 'getent passwd prometheus || useradd -r -U -d /var/lib/prometheus -s /usr/sbin/nologin prometheus';;
  redis-tools) echo 'getent passwd redis || useradd -r -U -d /var/lib/redis -s /usr/sbin/nologin redis
mkdir -p /var/lib/redis /var/log/redis; chown redis: /var/lib/redis /var/log/redis';;
  redis-server) echo 'chown redis: /etc/redis/redis.conf; chmod 640 /etc/redis/redis.conf';;
  esac
  echo 'systemctl daemon-reload'
}
names=" $(for deb in "$debs"/*.deb; do dpkg-deb -f "$deb" Package; done | tr '\n' ' ')"
cat > "$t/all.spec" <<'X'
Name: repacked
Version: 1
Release: 1
Summary: packages of Debian
License: none
AutoReqProv: no
%description
packages of Debian
%package -n python3
Summary: nothing, because the machine has it
AutoReqProv: no
%description -n python3
nothing
%files -n python3
X
for deb in "$debs"/*.deb; do
  name=$(dpkg-deb -f "$deb" Package); d="$t/$name"
  dpkg-deb -x "$deb" "$d"
  for top in bin sbin lib; do
    [ ! -d "$d/$top" ] || { mkdir -p "$d/usr/$top"; cp -a "$d/$top/." "$d/usr/$top"; rm -r "${d:?}/$top"; }
  done
  rm -rf "$d/etc/init.d" "$d"/usr/share/doc "$d"/usr/share/man "$d"/usr/share/locale "$d"/usr/share/lintian
  (cd "$d"; find . ! -type d -path './etc/*' -printf '%%config(noreplace) "/%P"\n'; find . ! -type d ! -path './etc/*' -printf '"/%P"\n'
   find . -mindepth 1 -type d -empty -printf '%%dir "/%P"\n') > "$t/files/$name"
  needs=$(dpkg-deb -f "$deb" Depends Pre-Depends | tr ',|' '\n\n' | sed 's/^[A-Z][a-zD-]*://' | awk '{ print $1 }' |
    while read -r need; do case $names in *" $need "*) echo "$need";; esac; done | sort -u | tr '\n' ' ')
  { echo "%package -n $name"; echo 'Summary: a package of Debian'; echo 'AutoReqProv: no'; [ -z "$needs" ] || echo "Requires: $needs"
    echo "%description -n $name"; echo "$name"; echo "%post -n $name"; post "$name"; echo "%files -n $name -f $t/files/$name"; } >> "$t/all.spec"
done
{ echo '%install'; for name in $names; do echo "cp -a '$t/$name/.' %{buildroot}"; done; } >> "$t/all.spec"
rpmbuild -bb --quiet --define "_topdir $t/top" --define "_rpmdir $out" --define '_build_id_links none' --define 'debug_package %{nil}' \
  --define '__os_install_post %{nil}' --define '_binary_payload w1.gzdio' "$t/all.spec"
createrepo_c -q "$out"
rm -rf "$t"
