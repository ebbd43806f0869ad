# shellcheck shell=bash
# Sourced by scripts/demo and scripts/test.

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
