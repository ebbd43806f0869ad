# shellcheck shell=bash
# Sourced by the other scripts: how a preset is configured and built, with its progress.

# with_progress LOG COMMAND...: runs a build or ctest, keeps all that it prints in LOG and shows how far it is: on a
# terminal one line that changes, elsewhere a line every ten seconds. Returns what the command returns.
with_progress() {
  local log=$1
  shift
  NINJA_STATUS='[%f/%t] ' "$@" 2>&1 | tee "$log" | show_progress
  return "${PIPESTATUS[0]}"
}

show_progress() {
  local line done='' what wide=no start=$SECONDS next=$SECONDS
  if [ -t 1 ]; then wide=yes; fi
  while IFS= read -r line; do
    if [[ $line =~ ^\[[0-9]+/[0-9]+\] ]]; then  # ninja: [12/345] Building CXX object core/CMakeFiles/...
      done=${BASH_REMATCH[0]}
      what=${line##* }
      what=${what/CMakeFiles\//}
      what=${what%.o}
    elif [[ $line =~ ^\ *([0-9]+/[0-9]+)\ Test\ +\#[0-9]+:\ ([^ ]+) ]]; then  # ctest: 12/345 Test #12: Name ....
      done="[${BASH_REMATCH[1]}]"
      what=${BASH_REMATCH[2]}
    else
      continue
    fi
    if [ $wide = yes ]; then
      printf '\r\033[K%s %d s  %.60s' "$done" $((SECONDS - start)) "$what"
    elif [ $SECONDS -ge $next ]; then
      printf '%s %d s  %s\n' "$done" $((SECONDS - start)) "$what"
      next=$((SECONDS + 10))
    fi
  done
  if [ $wide = yes ] && [ -n "$done" ]; then printf '\r\033[K'; fi
}

# build PRESET [--into FOLDER] [-DNAME=VALUE]... TARGET...: configures and builds as CMakePresets.json says; prints the errors
# on failure.
build() {
  local preset=$1 dir=build/$1 targets=() target settings=()
  shift
  if [ "$preset" = default ]; then dir=build; fi
  if [ "${1:-}" = --into ]; then dir=$2 && shift 2; fi
  while [[ "${1:-}" = -D* ]]; do settings+=("$1") && shift; done
  mkdir -p "$dir"
  for target in "$@"; do targets+=(--target "$target"); done
  # A compiler cache, where there is one, has to accept precompiled headers.
  if command -v ccache >/dev/null; then
    settings+=("-DCMAKE_CXX_COMPILER_LAUNCHER=env;CCACHE_SLOPPINESS=pch_defines,time_macros;ccache")
  fi
  if ! cmake --preset "$preset" -B "$dir" ${settings[@]+"${settings[@]}"} > "$dir/build.log" 2>&1 ||
      ! with_progress "$dir/build.log" cmake --build "$dir" ${targets[@]+"${targets[@]}"}; then
    print_errors "$dir/build.log"
    return 1
  fi
}

print_errors() {
  grep -E -A12 'error|FAILED|Error' "$1" | head -60
  echo "the build failed; the whole log is in $1"
}
