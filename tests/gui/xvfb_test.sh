#!/usr/bin/env bash
# A real window on a virtual display, used by another program's hand: xvfb_test.sh NANSCOPE X11_HAND.
# First a script watches what xdotool does: a file dropped, a cell clicked, a tab chosen, a command found and typed
# into the palette, another file dropped with Shift. Then nanscope alone, opened by argument and closed as a window manager closes.
set -euo pipefail
nanscope=$1
hand=$2
for tool in Xvfb xdotool; do
  if ! command -v "$tool" >/dev/null; then
    echo "skipped: $tool is not installed (scripts/packages.sh lists the packages)"
    exit 77
  fi
done

started_in=$PWD
folder=$(mktemp -d)
pids=()
clean_up() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap clean_up EXIT
fail() {
  cp "$folder"/steps.txt-*.png "$started_in" 2>/dev/null || true
  echo "xvfb_test: $*" >&2
  exit 1
}

cd "$folder"
export XDG_STATE_HOME=$folder/state
mkfifo number
Xvfb -displayfd 3 -screen 0 1280x900x24 -nolisten tcp 3>number 2>xvfb.log &
pids+=($!)
read -r -t 30 number < number || fail "Xvfb does not start: $(cat xvfb.log)"
export DISPLAY=:$number
"$nanscope" run kv-scale-lock -o run.nanscope >/dev/null

window_of() { xdotool search --sync --onlyvisible --pid "$1" 2>/dev/null | head -1; }
click() { xdotool mousemove --sync "$1" "$2"; sleep 0.1; xdotool mousedown 1; sleep 0.1; xdotool mouseup 1; }

# Each `where` prints where to press next; what follows it waits until somebody has.
cat > steps.txt <<'STEPS'
expect text "Drop a recording or a dump here"
where 600 400
expect place 2/0/1/inner_norm.out[7]
where "Bits"
expect view bits
wait settled
expect text "inner_norm"
where cell 1/0/0/attn_norm[2]
expect place 1/0/0/attn_norm[2]
wait settled
expect text "attn_norm"
where 600 400
expect view scales
where 600 400
expect text "twin.nanscope"
expect text "no difference"
expect view scales
picture end.png
STEPS
mkfifo said
"$nanscope" gui --script steps.txt --on-screen --size 1200x800 >said 2>errors &
watched=$!
pids+=("$watched")
exec 4<said
next() { read -r -t 60 x y <&4 || fail "the script ended: $(cat errors)"; }
next
window=$(window_of "$watched")
"$hand" drop "$window" "$folder/run.nanscope" || fail "the window does not take a file"
next
click "$x" "$y"
next
click "$x" "$y"
next
xdotool key ctrl+p
sleep 0.3
xdotool type --delay 30 "show scales"
sleep 0.3
xdotool key Return
next
cp run.nanscope twin.nanscope
xdotool keydown shift
"$hand" drop "$window" "$folder/twin.nanscope" || fail "the window does not take a second file"
xdotool keyup shift
wait "$watched" || fail "$(cat errors)"

# The same by sums of pixels, with nothing of ours beside the window itself.
printf 'view bits\nwait settled\nwhere "Bits"\nwhere cell 1/0/0/attn_norm[2]\n' > points.txt
{ read -r tab_x tab_y; read -r cell_x cell_y; } < <("$nanscope" gui run.nanscope --script points.txt --size 1200x800)
"$nanscope" gui run.nanscope --size 1200x800 2>errors &
alone=$!
pids+=("$alone")
window=$(window_of "$alone")
below() { "$hand" sum "$window" 190 440 500 300; }
# changed OLD: waits until the view below the front no longer has that sum, and has kept another for a while.
changed() {
  local sum last=
  for _ in $(seq 100); do
    sum=$(below)
    if [ "$sum" != "$1" ] && [ "$sum" = "$last" ]; then echo "$sum"; return; fi
    last=$sum
    sleep 0.2
  done
  fail "the view below the front does not change"
}
tensor=$(changed none)
click "$tab_x" "$tab_y"
bits=$(changed "$tensor")
click "$cell_x" "$cell_y"
changed "$bits" >/dev/null
"$hand" close "$window"
wait "$alone" || fail "closing ends with $?: $(cat errors)"
echo "dropped, clicked, typed, dropped with Shift, closed"
