#!/usr/bin/env bash
# A team's server on this machine: two nodes (as root: each an sshd in a network of its own), two
# members, a job of one of them, and what the other sees of it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d /tmp/towline-demo.XXXXXX)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
server="" nodes=""
leave() {
    for one in $server $nodes; do kill "$one" 2>/dev/null || true; wait "$one" 2>/dev/null || true; done
    rm -rf "$work"
}
trap leave EXIT

say() { printf '\n$ %s\n' "$*"; }
typed() { say "$@"; "$@"; }

python "$here/demo_nodes.py" >"$work/ssh_config" & nodes=$!
until [ -s "$work/ssh_config" ]; do kill -0 "$nodes"; sleep 0.1; done
TOWLINE_SSH_CONFIG=$(cat "$work/ssh_config")
export TOWLINE_SSH_CONFIG

say "tow server init DIR --url https://127.0.0.1:$port --admin root"
printf 'a long password\n' | tow server init "$work/server" --url "https://127.0.0.1:$port" --host 127.0.0.1 \
    --admin root --password-stdin
say "tow server run DIR"
tow server run "$work/server" >"$work/said" 2>&1 & server=$!
until grep -q serving "$work/said"; do kill -0 "$server"; sleep 0.1; done
cat "$work/said"

# Whoever is somebody has a home with the server's connect file in it.
as() { mkdir -p "$work/$1/project"; cp "$work/server/.pitconnect.txt" "$work/$1/"; export HOME="$work/$1"; cd "$HOME/project"; }

printf '\nThe administrator adds two nodes, and a short name for their GPUs.\n'
as root
say "pit add node:n0 endpoint=ssh://h1 isolation=none"
printf 'root\na long password\n' | pit add node:n0 endpoint=ssh://h1 isolation=none
typed pit add node:n1 endpoint=ssh://h2 isolation=none
say 'pit add alias:gtx1070 name="GeForce GTX 1070"'
pit add alias:gtx1070 name="GeForce GTX 1070"
typed pit show node:n0

printf '\nann and ben have an invitation each, and register with their first command.\n'
for user in ann ben; do
    code=$(tow server invite "$work/server")
    as "$user"
    say "$user: pit show me"
    printf '%s\nyes\n%s of the team\n%s@lab.org\n%s\npassword-of-%s\npassword-of-%s\n' \
        "$user" "$user" "$user" "$code" "$user" "$user" | pit show me
done

as ann
echo "hello from ann's folder" >data.txt
say "ann: pit run \"First light\" 2:[2:gtx1070] -d 'cat data.txt; nvidia-smi -L; sleep 1' -l"
pit run "First light" 2:[2:gtx1070] -d 'cat data.txt; nvidia-smi -L; sleep 1' -l
as ben
typed pit status
say "ben: pit log 1"
pit log 1 || true
