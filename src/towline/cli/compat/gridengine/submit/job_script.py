"""What runs as the job: a Grid Engine's variables, files for output, and the script itself."""

from __future__ import annotations

#: Variables of the submission that only this script reads.
SCRIPT, MODE, SHELL, OUT, ERR, IN = (
    f"QSUB_{name}" for name in ("SCRIPT", "MODE", "SHELL", "OUT", "ERR", "IN")
)
OFFSET, EXPAND, BESIDE, JOB = "QSUB_OFFSET", "QSUB_EXPAND", "QSUB_BESIDE", "QSUB_JOB"
#: Runs what that last one says, so that people who look at the job see what they typed.
COMMAND = ("/bin/sh", "-c", f'eval "${JOB}"')

#: POSIX sh, so that it runs on any machine; what belongs to the user comes in variables only.
TEXT = r"""
swap() { # the first word with every second replaced by the third, in $R
  R= V=$1
  while :; do
    case $V in
      *"$2"*) R=$R${V%%"$2"*}$3; V=${V#*"$2"} ;;
      *) R=$R$V; return ;;
    esac
  done
}
bad=
JOB_ID=$((TOWLINE_JOB - ${QSUB_OFFSET:-0}))
HOSTNAME=$(uname -n)
: "${USER:=$(id -un)}"
for name in $QSUB_EXPAND; do
  eval "value=\$$name"
  case $value in "~/"*) value=$HOME${value#"~"} ;; esac
  swap "$value" '$HOME' "$HOME"
  swap "$R" '$USER' "$USER"
  export "$name=$R"
done
place() { # where a stream goes, in $R
  swap "$1" '$JOB_ID' "$JOB_ID"
  swap "$R" '$TASK_ID' "$SGE_TASK_ID"
  swap "$R" '$HOSTNAME' "$HOSTNAME"
}
export JOB_ID HOSTNAME USER PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"
SGE_STDIN_PATH=/dev/null
if [ -n "$QSUB_IN" ]; then
  place "$QSUB_IN"
  case $R in "~/"*) R=$HOME${R#"~"} ;; esac
  swap "$R" '$HOME' "$HOME"; SGE_STDIN_PATH=$R
  if ! [ -r "$R" ]; then bad=$R; fi
fi
if [ "$QSUB_OUT" = joined ]; then
  exec 2>&1
elif [ -n "$QSUB_OUT" ]; then
  place "$QSUB_OUT"; SGE_STDOUT_PATH=$R
  place "$QSUB_ERR"; SGE_STDERR_PATH=$R
  export SGE_STDOUT_PATH SGE_STDERR_PATH
  exec >> "$SGE_STDOUT_PATH" || exit 1
  if [ "$QSUB_OUT" = "$QSUB_ERR" ]; then exec 2>&1; else exec 2>> "$SGE_STDERR_PATH"; fi
fi
if [ -n "$bad" ]; then echo "can't open input file \"$bad\" on $HOSTNAME" >&2; exit 1; fi
exec < "$SGE_STDIN_PATH"
export SGE_STDIN_PATH
mode=$QSUB_MODE shell=$QSUB_SHELL script=$QSUB_SCRIPT beside=$QSUB_BESIDE
unset QSUB_JOB QSUB_SCRIPT QSUB_MODE QSUB_SHELL QSUB_OUT QSUB_ERR QSUB_IN QSUB_OFFSET QSUB_EXPAND \
  QSUB_BESIDE
case $mode in
  exact) exec "$@" ;;
  binary) exec "${shell:-/bin/sh}" -c "$*" ;;
esac
# What lies beside the script can be imported, though a copy of it runs.
[ -z "$beside" ] || export PYTHONPATH="$beside${PYTHONPATH:+:$PYTHONPATH}"
folder=$(mktemp -d "${TMPDIR:-/tmp}/qsub-XXXXXX") || exit 1
JOB_SCRIPT=$folder/$JOB_ID
export JOB_SCRIPT
printf %s "$script" > "$JOB_SCRIPT" && chmod 700 "$JOB_SCRIPT" || exit 1
case ${shell:+chosen}$script in
  chosen*) "$shell" "$JOB_SCRIPT" "$@" ;;
  '#!'*) "$JOB_SCRIPT" "$@" ;;
  *) /bin/sh "$JOB_SCRIPT" "$@" ;;
esac
code=$?
rm -rf "$folder"
exit "$code"
"""
