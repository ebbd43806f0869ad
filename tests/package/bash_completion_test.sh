#!/usr/bin/env bash
# bash_completion_test.sh NANSCOPE: what bash offers after a line, by the function that it calls when Tab is pressed.
set -euo pipefail
PATH=$(dirname "$1"):$PATH
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
touch 'kv one.toml' dump.nanscope
mkdir kvfolder
source <("$1" completions bash)

failed=0
# offers LINE WORD...: what is offered in place of the line's last word, as readline splits it.
offers() {
  COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
  COMPREPLY=()
  _nanscope || true  # compopt is for readline alone
  local wanted given
  wanted=$(printf '%s\n' "${@:2}" | sort)
  given=$(printf '%s\n' "${COMPREPLY[@]}" | sort -u)
  if [ "$wanted" != "$given" ]; then
    printf '%s\n  wanted: %s\n  given:  %s\n' "$1" "${wanted//$'\n'/ | }" "${given//$'\n'/ | }" >&2
    failed=1
  fi
}

offers 'nanscope rep' replay report
offers 'nanscope nothing-of-ours '
offers 'nanscope --v' --version
offers 'nanscope run --form' --format
offers 'nanscope run --format j' json junit
offers 'nanscope run --format=j' json junit
offers 'nanscope run --force --format ' text json junit markdown
offers 'nanscope run kv-scale-lock --device cpu:a' avx2 avx512
offers 'nanscope run kv' kv-asymmetric-no-epsilon kv-percentile-clips-spikes kv-scale-lock 'kv one.toml' kvfolder
offers 'nanscope run prefix-poison kv-s' kv-scale-lock
offers 'nanscope scenarios kv-s' kv-scale-lock
offers 'nanscope bits 430 -f e4m' e4m3 e4m3fnuz
offers 'nanscope replay x.nanscope --set kv.form' kv.format=
offers 'nanscope replay x.nanscope --set kv.format=b' bf16
offers 'nanscope diagnose dump --fail-on f16-overflow,kv-sc' f16-overflow,kv-scale-locked
offers 'nanscope diagnose dump --fail-on f16-overflow --brie' --brief
offers 'nanscope run --threads '
offers 'nanscope why dump.nanscope --at'
offers 'nanscope attach --run -- bashbu' bashbug
offers "$1 rep" replay report
offers 'nanscope replay dum'   # a file: readline's own names of files, by compopt
exit $failed
