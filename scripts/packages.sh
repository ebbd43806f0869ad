# shellcheck shell=bash
# Sourced by the other scripts: which packages of Debian or Ubuntu each needs, and how they are installed.
# Whatever a script, a build or a test uses is in one of these lists; scripts/check-fresh proves it.

build_packages=(clang lld cmake ninja-build pkg-config libsqlite3-dev libfmt-dev libcli11-dev nlohmann-json3-dev
  libtomlplusplus-dev libexpected-dev libpcre2-dev libutf8proc-dev libxxhash-dev libcpp-httplib-dev libeigen3-dev libpng-dev zlib1g-dev
  libimgui-dev libglfw3-dev libegl-dev libgl-dev libopengl-dev libfreetype-dev libegl-mesa0 libgl1-mesa-dri fonts-dejavu-core)
test_packages=(g++ libgtest-dev libgmock-dev sqlite3 clang-format clang-tidy git
  python3 python3-venv python3-dev python3-numpy python3-pytest python3-jsonschema pybind11-dev libxml2-utils
  xvfb xdotool libx11-dev chromium man-db zsh fish desktop-file-utils)
rank_packages=(libopenmpi-dev openmpi-bin)  # of the whole tier: 12 MB to fetch, 53 MB installed
bench_packages=(libopenblas-dev)
packing_packages=(g++ dpkg-dev file)
wheel_packages=(g++ python3 python3-venv python3-dev pybind11-dev patchelf)
fresh_packages=(debootstrap)

# install_missing PACKAGE...: installs those that dpkg does not know, and prints which.
install_missing() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then return 0; fi
  if ! command -v apt-get >/dev/null; then
    echo "nanscope: these packages are needed and apt-get is not here to install them: ${missing[*]}" >&2
    return 2
  fi
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "nanscope: run this as root, or install by hand: ${missing[*]}" >&2
      return 2
    fi
    as_root=(sudo)
  fi
  echo "Installing with apt-get: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# python_environment FOLDER LIST: a virtual environment for tests: Debian's packages of Python, and those of a list for pip.
python_environment() {
  local folder=$1 list=$2 wanted
  wanted=$(sha256sum < "$list")
  if [ "$(cat "$folder/wanted" 2>/dev/null)" = "$wanted" ]; then return 0; fi
  echo "Installing in $folder with pip: $(grep -v '^#' "$list" | tr '\n' ' ')"
  rm -rf "$folder"
  /usr/bin/python3 -m venv --system-site-packages "$folder"
  "$folder/bin/python" -m pip install -q --disable-pip-version-check -r "$list"
  echo "$wanted" > "$folder/wanted"
}
