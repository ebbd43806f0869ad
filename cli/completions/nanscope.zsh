#compdef nanscope
# zsh completion for nanscope. `nanscope complete` computes the candidates.
_nanscope() {
  local offer answer word
  local -a answers plain open shown shown_open before
  before=("${(@Q)words[2,CURRENT-1]}")
  answers=("${(@f)$(${(Q)words[1]/#\~\//$HOME/} complete -- "${before[@]}" "${(Q)PREFIX}" 2>/dev/null)}")
  offer=${answers[1]}
  for answer in "${(@)answers[2,-1]}"; do
    word=${answer%%  *}
    # After = or : a value follows: add no space.
    if [[ $word == *[=:] ]]; then
      open+=("$word")
      shown_open+=("$answer")
    else
      plain+=("$word")
      shown+=("$answer")
    fi
  done
  (( ${#plain} )) && compadd -l -d shown -a plain
  (( ${#open} )) && compadd -l -S '' -d shown_open -a open
  case $offer in
    files)
      compset -P '--*='
      _files
      ;;
    commands) _command_names -e ;;
  esac
}
if [[ $funcstack[1] == _nanscope ]]; then
  _nanscope "$@"
else
  compdef _nanscope nanscope
fi
