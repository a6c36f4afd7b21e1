#!/usr/bin/env bash
# A team's server on this machine: two members, a job of one of them, and what the other sees of it.
set -euo pipefail
work=$(mktemp -d /tmp/towline-demo.XXXXXX)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
server=""
trap 'if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi; rm -rf "$work"' EXIT

say() { printf '\n$ %s\n' "$*"; }

say "tow server init DIR --url https://127.0.0.1:$port --admin root"
printf 'a long password\n' | tow server init "$work/server" --url "https://127.0.0.1:$port" --host 127.0.0.1 \
    --port "$port" --admin root --registration open --password-stdin
sed -i 's/^isolation = .*/isolation = "none"/' "$work/server/server.toml"
printf 'default_cluster = "here"\n[clusters.here]\nmachines = ["this"]\n' >"$work/server/config.toml"

say "tow server run DIR"
tow server run "$work/server" >"$work/said" 2>&1 &
server=$!
until grep -q serving "$work/said"; do kill -0 "$server"; sleep 0.1; done
cat "$work/said"

tail -n +2 "$work/server/.pitconnect.txt" >"$work/certificate.pem"
for user in ann ben; do
    export TOWLINE_HOME="$work/$user"
    # Until there is a dialogue for it, members register with one request.
    curl -sS --cacert "$work/certificate.pem" "https://127.0.0.1:$port/v1/accounts" \
        -d "{\"name\": \"$user\", \"password\": \"a password of $user\"}" >/dev/null
    say "tow clusters add team --connect .pitconnect.txt --user $user"
    printf 'a password of %s\n' "$user" | tow clusters add team --connect "$work/server/.pitconnect.txt" --user "$user" --password-stdin
done

mkdir "$work/project" && cd "$work/project" && echo "hello from ann's folder" >data.txt
export TOWLINE_HOME="$work/ann"
say "ann: tow run -c team sh -c 'cat data.txt; echo made > result.txt'"
tow run -c team sh -c 'cat data.txt; echo made > result.txt'
say "ann: cat job_results/team-1/result.txt"
cat job_results/team-1/result.txt
export TOWLINE_HOME="$work/ben"
say "ben: tow @team log 1"
tow @team log 1 || true
