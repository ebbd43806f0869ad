# fish completion for nanscope. `nanscope complete` computes the candidates.
function __nanscope_complete
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l answers ($words[1] complete -- $words[2..-1] "$typed" 2>/dev/null)
    if test (count $answers) -gt 1
        string replace '  ' \t -- $answers[2..-1]
    end
    switch "$answers[1]"
        case files
            set -l before (string match -r '^--[^=]*=' -- "$typed")
            set -l path (string replace -r '^--[^=]*=' '' -- "$typed")
            for file in (__fish_complete_path "$path")
                printf '%s\n' "$before$file"
            end
        case commands
            __fish_complete_command
    end
end
complete -c nanscope -f -a '(__nanscope_complete)'
