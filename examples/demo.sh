#!/usr/bin/env bash
# The main job on this machine, with no configuration at all: run, look, results, stop.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
export TOWLINE_HOME="$work/towline" NO_COLOR=1
trap 'tow engine stop >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
mkdir "$work/project" && cp "$here/train.py" "$work/project/" && cd "$work/project"

# Prints a command as it would be typed, and runs it.
show() {
    printf '\n$'
    for word in "$@"; do
        case $word in *[!A-Za-z0-9_./:=-]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
    done
    printf '\n'
    "$@"
}

show tow run python3 train.py --lr 0.1
show tow run -d -t 'a long one' -- sh -c 'echo started; exec sleep 600'
show tow run -r '2:[]' -- sh -c 'echo "process $RANK of $WORLD_SIZE"'
show tow status
show tow ls 1
show cat job_results/1/model.txt
show tow results 1
show tow exec 1 -- cat model.txt
show tow stop 2
printf '\n$ tow run sh -c "exit 3"; echo "exit code $?"\n'
code=0; tow run sh -c 'exit 3' || code=$?
echo "exit code $code"
tow status --json | python3 -c '
import json, sys
jobs = {job["id"]: job for job in json.load(sys.stdin)["jobs"]}
assert [jobs[n]["state"] for n in (1, 3, 4)] == ["done", "done", "failed"], jobs
assert jobs[2]["state"] in ("stopping", "stopped") and jobs[4]["exit_code"] == 3, jobs
'
printf '\nThe demo worked.\n'
