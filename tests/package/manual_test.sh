#!/usr/bin/env bash
# manual_test.sh NANSCOPE: man renders every page without a warning, and each option that help knows is in its page.
set -euo pipefail
nanscope=$1
if ! command -v man > /dev/null; then echo "skipped: man is not installed"; exit 77; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "manual_test: $*" >&2; exit 1; }

"$nanscope" manual --into "$folder"
for command in '' $("$nanscope" complete -- '' | tail -n +2 | cut -d' ' -f1); do
  page=$folder/nanscope${command:+-$command}.1
  said=$(LC_ALL=C.UTF-8 MANWIDTH=100 man --warnings -l "$page" 2>&1 > "$folder/text")
  [ -z "$said" ] || fail "man warns of $page: $said"
  # shellcheck disable=SC2086
  for option in $("$nanscope" $command --help | grep -oE '^ +-[^ ]+(, -[^ ]+)*' | grep -oE -- '-[a-z-]+'); do
    grep -qE -- "(^| )$option( |,|\$)" "$folder/text" || fail "$page does not tell of $option"
  done
  if command -v mandoc > /dev/null; then
    said=$(mandoc -T lint -W error "$page" 2>&1) || fail "mandoc: $said"
  fi
done
