# ---------------------------------------------------------------- log, errors

log_to="" # empty until log_open
AGENT_TOKEN="${AGENT_TOKEN:-}" K3S_TOKEN="${K3S_TOKEN:-}"
dry_run=no

# log_open starts this run's part of the log file.
log_open() {
  local dir="${LOG_FILE%/*}"
  if mkdir -p "$dir" 2>/dev/null && (umask 077 && : >>"$LOG_FILE") 2>/dev/null; then
    log_to="$LOG_FILE"
    log "---- $command $PIPEOPS_VERSION, as $(id -un), bash $BASH_VERSION"
  else
    say "note: $LOG_FILE cannot be written, so there is no log" >&2
  fi
}

# redact sets REPLY to a text without secrets.
redact() {
  REPLY="$*"
  ((${#AGENT_TOKEN} < 8)) || REPLY="${REPLY//"$AGENT_TOKEN"/[AGENT_TOKEN]}"
  ((${#K3S_TOKEN} < 8)) || REPLY="${REPLY//"$K3S_TOKEN"/[K3S_TOKEN]}"
}

# log writes to the log file alone.
log() {
  [[ -n $log_to ]] || return 0
  redact "$*"
  printf '%(%Y-%m-%dT%H:%M:%S%z)T %4ss  %s\n' -1 "$SECONDS" "$REPLY" >>"$log_to"
}

# say tells the person, and the log.
say() {
  redact "$*"
  printf '%s\n' "$REPLY"
  log "$REPLY"
}

step() { say "==> $*"; }

# would says what a dry run leaves out; it answers whether this is one.
would() {
  [[ $dry_run == yes ]] || return 1
  say "  would $*"
}

# ERRORS is the page about every code, which internal/problem/catalog makes.
ERRORS=https://github.com/pipeops/pipeops-vm-agent/blob/main/docs/reference/errors.md

# fail EXIT CODE WHAT WHY FIX ends the script.
fail() {
  local text="error: $3
  why: $4
  fix: $5
  code: $2 $ERRORS#${2,,}"
  [[ -z $log_to ]] || text+="
  log: $log_to"
  say "$text" >&2
  failed=yes
  exit "$1"
}

# logged runs a command with all that it prints going into the log, and answers
# its exit code. The end of what it printed is in last_output.
last_output=""
logged() {
  log "+ $*"
  local line code=0 text
  text="$("$@" 2>&1 </dev/null)" || code=$?
  last_output=""
  [[ -n $text ]] || return "$code"
  while IFS= read -r line; do
    log "  | $line"
  done <<<"$text"
  redact "$(tail -n 5 <<<"$text")"
  last_output="$REPLY"
  return "$code"
}

# on_error is for failures without their own message.
on_error() {
  fail "$EXIT_UNEXPECTED" PO-9001 "line $1: \`$2\` failed unexpectedly" "this is a bug, or a machine that was not tried yet" \
    "run it again, and if it stays: report it with the log"
}

failed=no
tmp_dir=""
on_exit() {
  local code=$?
  [[ ${components_running:-no} == no ]] || components_end # its rights end with this run
  [[ -z $tmp_dir ]] || rm -rf "$tmp_dir"
  lock_release
  log "---- ends with exit code $code"
}

on_signal() {
  say "interrupted; run it again to go on where it stopped" >&2
  failed=yes
  exit "$1"
}

traps_set() {
  trap on_exit EXIT
  trap '[[ $failed == yes || $BASH_SUBSHELL -gt 0 ]] || on_error "$LINENO" "$BASH_COMMAND"' ERR
  trap 'on_signal 130' INT
  trap 'on_signal 143' TERM HUP
}

# ask puts a yes-or-no question, which only a terminal can answer.
ask() {
  local answer=""
  [[ $assume_yes == no ]] || return 0
  [[ ${facts[TERMINAL]:-no} == yes ]] || return 1
  printf '%s [y/N] ' "$1" >/dev/tty
  read -r answer </dev/tty
  log "asked: $1 answered: $answer"
  [[ $answer == [yY]* ]]
}
assume_yes=no
