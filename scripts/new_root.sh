# shellcheck shell=bash
# Sourced by scripts that try something in a new Debian or Ubuntu: how one is made, and how a command runs in it. They need
# root's rights, debootstrap and a network. NANSCOPE_MIRROR and NANSCOPE_UBUNTU_MIRROR name other mirrors.

# new_root RELEASE PACKAGE,...: makes a minimal system of a release (bookworm, trixie, noble) and prints its folder.
new_root() {
  local root mirror=${NANSCOPE_MIRROR:-http://deb.debian.org/debian} components=main log script=
  if [ "$1" = noble ]; then
    mirror=${NANSCOPE_UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}
    components=main,universe
  fi
  # An older debootstrap knows no newer Ubuntu by name; all of them are made in one way.
  if [ "$1" = noble ] && [ ! -e /usr/share/debootstrap/scripts/noble ]; then script=gutsy; fi
  root=$(mktemp -d)
  chmod 755 "$root"
  log=$(mktemp)
  if ! command -v debootstrap >/dev/null ||
      ! debootstrap --variant=minbase --components=$components --include="$2" "$1" "$root" "$mirror" $script > "$log" 2>&1; then
    tail -5 "$log" >&2
    rm -rf "$root" "$log"
    return 1
  fi
  rm -f "$log"
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  # A network with certificates of its own passes them on.
  if [ -f /etc/ssl/certs/ca-certificates.crt ]; then
    mkdir -p "$root/etc/ssl/certs"
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  fi
  echo "$root"
}

# inside_root ROOT USER FOLDER COMMAND...: runs a command as USER in a folder of the new system, with nothing of this one's
# environment but its way to the network. CI=true, so that tests skip nothing.
inside_root() {
  local root=$1 user=$2 folder=$3 home=/root passed=() name
  shift 3
  if [ "$user" != root ]; then home=/home/$user; fi
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL; do
    if [ -n "${!name:-}" ]; then passed+=("$name=${!name}"); fi
  done
  unshare --mount --pid --fork --kill-child bash -c '
    root=$1; shift
    mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount -t tmpfs tmpfs "$root/dev/shm" &&
      mount -t tmpfs tmpfs "$root/tmp" && exec chroot "$root" "$@"' _ "$root" \
    runuser -u "$user" -- env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME="$home" LC_ALL=C.UTF-8 CI=true \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt ${passed[@]+"${passed[@]}"} bash -c 'cd "$1" && shift && exec "$@"' _ "$folder" "$@"
}
