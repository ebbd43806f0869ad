#!/usr/bin/env zsh
# zsh_completion_test.zsh NANSCOPE: what zsh offers when Tab is pressed, in a terminal of its own.
emulate -L zsh
zmodload zsh/zpty || exit 77
nanscope=$1
folder=$(mktemp -d)
trap 'rm -rf $folder' EXIT
$nanscope completions zsh > $folder/_nanscope
print > $folder/some.nanscope

zpty shell 'TERM=dumb zsh -f -i'
# answer LINE: the line as it stands after Tab; between marks, because a terminal shows more than it was given.
answer() {
  local text
  zpty -w -n shell "$1"$'\t'
  zpty -w -n shell $'\x18'
  zpty -r -m shell text '*<<*>>*' || return
  print -r -- ${${text##*<<}%%>>*}
}
setup=(
  "cd $folder; PATH=${nanscope:h}:\$PATH; fpath=($folder \$fpath); PS1=''; autoload -U compinit; compinit -u -D"
  'show() { print -r -- "<<$BUFFER>>"; BUFFER=""; }; zle -N show; bindkey "^X" show; unsetopt automenu; print re"ady"'
)
for line in $setup; do zpty -w shell $line; done
zpty -r -m shell ignored '*ready*'

failed=0
completes() {  # completes LINE AFTER
  local given=$(answer $1)
  if [[ $given != $2 ]]; then print -u2 -r -- "$1: became '$given', not '$2'"; failed=1; fi
}
completes 'nanscope diag' 'nanscope diagnose '
completes 'nanscope run kv-sc' 'nanscope run kv-scale-lock '
completes 'nanscope run --format ju' 'nanscope run --format junit '
completes 'nanscope run --format=ju' 'nanscope run --format=junit '
completes 'nanscope replay so' 'nanscope replay some.nanscope '
completes 'nanscope replay some.nanscope --set kv.form' 'nanscope replay some.nanscope --set kv.format='
completes 'nanscope replay some.nanscope --set kv.format=bf' 'nanscope replay some.nanscope --set kv.format=bf16 '
zpty -d shell
exit $failed
