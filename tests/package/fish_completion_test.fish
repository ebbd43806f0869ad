#!/usr/bin/env fish
# fish_completion_test.fish NANSCOPE: what fish offers after a line.
set -gx PATH (dirname $argv[1]) $PATH
set folder (mktemp -d)
cd $folder
touch some.nanscope
$argv[1] completions fish | source

set -g failed 0
function offers # offers LINE WORD...
    set -l given (complete -C $argv[1] | string replace -r '\t.*' '' | sort)
    set -l wanted (printf '%s\n' $argv[2..-1] | sort)
    if test "$given" != "$wanted"
        echo "$argv[1]: offers '$given', not '$wanted'" >&2
        set -g failed 1
    end
end
offers 'nanscope rep' replay report
offers 'nanscope run --format j' json junit
offers 'nanscope run --format=j' --format=json --format=junit
offers 'nanscope run kv-sc' kv-scale-lock
offers 'nanscope replay so' some.nanscope
offers 'nanscope gui --csv=so' --csv=some.nanscope
offers 'nanscope replay some.nanscope --set kv.format=bf' kv.format=bf16
cd /
rm -r $folder
exit $failed
