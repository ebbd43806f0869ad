# bash completion for nanscope. `nanscope complete` computes the candidates.
_nanscope() {
  local line=${COMP_LINE:0:COMP_POINT} offer typed cut='' mark before answer
  local -a words answers
  IFS=$' \t\n' read -ra words <<<"$line"
  if [[ $line == *[[:space:]] ]]; then words+=(""); fi
  typed=${words[-1]}
  mapfile -t answers < <("${words[0]/#\~\//$HOME/}" complete -- "${words[@]:1}" 2>/dev/null)
  if [[ ${#answers[@]} -eq 0 ]]; then return; fi
  offer=${answers[0]}
  # Readline replaces only the text after its last word break.
  for mark in = :; do
    before=${typed%"${typed##*"$mark"}"}
    if [[ $COMP_WORDBREAKS == *"$mark"* && ${#before} -gt ${#cut} ]]; then cut=$before; fi
  done
  COMPREPLY=()
  for answer in "${answers[@]:1}"; do
    answer=${answer%%  *}
    COMPREPLY+=("${answer#"$cut"}")
    if [[ $answer == *[=:] ]]; then compopt -o nospace 2>/dev/null; fi
  done
  case $offer in
    files)
      if [[ ${#COMPREPLY[@]} -eq 0 ]]; then
        compopt -o default 2>/dev/null
      else
        compopt -o filenames 2>/dev/null
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$typed")
      fi
      ;;
    commands) mapfile -t COMPREPLY < <(compgen -c -- "$typed") ;;
  esac
}
complete -F _nanscope nanscope
