#!/usr/bin/env bash
# install_test.sh BUILD: installs what was built, moves it, and uses it where nothing else can be found.
set -euo pipefail
build=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "install_test: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$folder/first" --strip > "$folder/install.log" || { cat "$folder/install.log" >&2; fail "cmake --install failed"; }
mv "$folder/first" "$folder/moved here"
prefix=$folder/moved\ here
mkdir "$folder/empty"
cd "$folder/empty"
ln -s "$prefix/bin/nanscope" "$folder/by-a-link"
unset NANSCOPE_SCENARIOS

for program in "$prefix/bin/nanscope" "$folder/by-a-link"; do
  files=$("$program" scenarios --format json | sed -n 's/^ *"file": "\(.*\)",*$/\1/p')
  [ "$(wc -l <<< "$files")" -gt 30 ] || fail "$program lists few scenarios: $files"
  while read -r file; do
    [[ "$file" == "$prefix/share/nanscope/scenarios/"* ]] || fail "$program lists $file, which is not installed"
  done <<< "$files"
done
"$prefix/bin/nanscope" run two-pass-variance > /dev/null || fail "an installed scenario does not run"
"$prefix/bin/nanscope" run weight-bit-flip > /dev/null || fail "a scenario with weights beside it does not run"
"$prefix/bin/nanscope" run loss-scale-overflow > /dev/null || fail "a scenario that trains on a text does not run"
if [ -e "$prefix/lib/nanscope/libnanscope_inject.so" ]; then
  said=$("$prefix/bin/nanscope" attach --run -- true 2>&1)
  [[ "$said" == *"nothing is recorded"* ]] || fail "attach --run does not find its library: $said"
fi
for file in share/nanscope/python/nanscope_capture.py share/doc/nanscope/README.md share/doc/nanscope/docs/capture.md \
    share/bash-completion/completions/nanscope share/fish/vendor_completions.d/nanscope.fish \
    share/zsh/site-functions/_nanscope; do
  [ -s "$prefix/$file" ] || fail "$file is not installed"
done
for command in '' $("$prefix/bin/nanscope" complete -- '' | tail -n +2 | cut -d' ' -f1); do
  ls "$prefix/share/man/man1/nanscope${command:+-$command}.1"* > /dev/null || fail "no manual page of '$command'"
done
# Debuggers and assertions are told the sources' paths, which only an optimised build does without.
source=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt")
if grep -q '^CMAKE_BUILD_TYPE:.*=Release$' "$build/CMakeCache.txt" &&
    grep -rlF -e "$source/" -e "$(cd "$build" && pwd -P)/" "$prefix"; then
  fail "these hold a path of the build"
fi
if command -v desktop-file-validate > /dev/null && [ -e "$prefix/share/applications" ]; then
  desktop-file-validate "$prefix/share/applications/nanscope.desktop" || fail "the desktop entry is not valid"
fi
