# Sourced by scripts/demo, scripts/test and scripts/check-package: finds what is missing and installs it (Debian, Ubuntu).

build_packages=(g++ cmake ninja-build pkg-config libsqlite3-dev libfmt-dev libcli11-dev nlohmann-json3-dev
  libtomlplusplus-dev libexpected-dev libpcre2-dev libutf8proc-dev libxxhash-dev libeigen3-dev libpng-dev zlib1g-dev
  libimgui-dev libglfw3-dev libegl-dev libgl-dev libfreetype-dev libegl-mesa0 libgl1-mesa-dri fonts-dejavu-core)
demo_packages=(clang)
test_packages=(libgtest-dev libgmock-dev sqlite3 libopenblas-dev clang clang-format clang-tidy libclang-rt-14-dev
  python3 python3-jsonschema python3-dev python3-numpy python3-pytest pybind11-dev libxml2-utils xvfb xdotool libx11-dev chromium
  man-db zsh fish desktop-file-utils)
packing_packages=(dpkg-dev file)

# install_missing PACKAGE...: installs those that dpkg does not know, and says which.
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

# launcher_options: cmake options for ccache when it is there, which must be told that precompiled headers are as good.
launcher_options() {
  if command -v ccache >/dev/null; then echo "-DCMAKE_CXX_COMPILER_LAUNCHER=env;CCACHE_SLOPPINESS=pch_defines,time_macros;ccache"; fi
}
