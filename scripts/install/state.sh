# ---------------------------------------------------------------- state
# What was installed, one thing a line, so that uninstall removes that and
# nothing else. Written before the thing is made: a run that dies leaves no orphan.

locked=no

state_open() {
  [[ $dry_run == no ]] || return 0
  (umask 077 && mkdir -p "$STATE_DIR/backups") 2>/dev/null || fail "$EXIT_ROOT" PO-9003 "$STATE_DIR cannot be made" "it belongs to another user" "sudo -E bash install.sh"
  lock_take
  tmp_dir="$STATE_DIR/tmp" # here, so that the next run removes what a killed one has left
  rm -rf "$tmp_dir"
  mkdir "$tmp_dir"
}

lock_take() {
  local holder
  if ! ln -s "$$" "$STATE_DIR/lock" 2>/dev/null; then
    holder="$(readlink "$STATE_DIR/lock" || true)"
    if [[ -n $holder ]] && kill -0 "$holder" 2>/dev/null && [[ $holder != "$$" ]] && runs_installer "$holder"; then
      fail "$EXIT_BUSY" PO-9016 "another run (process $holder) is at work" "two would get in each other's way" "wait for it: tail -f $LOG_FILE"
    fi
    ln -sfn "$$" "$STATE_DIR/lock" # of a run that was killed
  fi
  locked=yes
}

# runs_installer tells an installer from a process that got its number later.
runs_installer() {
  [[ ! -r /proc/$1/comm ]] || [[ $(<"/proc/$1/comm") == *sh ]]
}

lock_release() {
  [[ $locked == no ]] || rm -f "$STATE_DIR/lock"
}

# record KIND NAME...
record() {
  state_has "$@" || printf '%s\n' "$*" >>"$STATE_DIR/installed"
}

# state_replace KIND NAME: of a kind there is one.
state_replace() {
  [[ ! -r $STATE_DIR/installed ]] || sed -i "/^$1 /d" "$STATE_DIR/installed"
  record "$@"
}

state_has() {
  [[ -r $STATE_DIR/installed ]] && grep -qxF -- "$*" "$STATE_DIR/installed"
}

# state_names KIND prints the names of what was recorded of a kind.
state_names() {
  [[ -r $STATE_DIR/installed ]] || return 0
  sed -n "s|^$1 ||p" "$STATE_DIR/installed"
}

agent_token_kept() { [[ -n $(state_names agent) ]]; }

# make_dir makes a folder, and notes down which of those on the way there are new.
make_dir() {
  local path="$1" new=()
  while [[ ! -d $path ]]; do
    new+=("$path")
    path="${path%/*}"
    [[ -n $path ]] || break
  done
  for path in "${new[@]}"; do record dir "$path"; done
  mkdir -p "$1"
}

# put FILE MODE writes standard input to a file, when that is not what it holds.
# What was there before and is not ours is kept.
put() {
  local path="$1" mode="$2" new
  new="$(cat && printf .)" && new="${new%.}"
  if [[ -f $path ]] && [[ $new == "$(cat "$path" && printf .)" || $new. == "$(cat "$path" && printf .)" ]]; then
    return 0
  fi
  ! would "write $path" || return 0
  backup "$path"
  record file "$path"
  make_dir "${path%/*}"
  (umask 077 && printf '%s' "$new" >"$path.pipeops-new")
  chmod "$mode" "$path.pipeops-new"
  mv -f "$path.pipeops-new" "$path"
  say "    wrote $path"
}

# backup keeps a file that is not ours; uninstall puts it back.
backup() {
  [[ -e $1 ]] && ! state_has file "$1" || return 0
  local copy
  copy="$STATE_DIR/backups/$(tr / _ <<<"${1#/}")"
  cp -a "$1" "$copy"
  record backup "$1" "$copy"
  say "    kept a copy of $1 in $copy"
}
