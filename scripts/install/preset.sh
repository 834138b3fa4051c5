# ---------------------------------------------------------------- presets
# Resources of the agent and components by one word (docs/production/sizing.md). A test compares them
# with those of the agent's chart. The choice is kept for the next run.

PRESETS=(default minimum production full-monitoring)
# Less memory than this is remarked: a machine of 4 GiB, and one of 8 GiB, which show somewhat less.
MEMORY_PRODUCTION_MB=3700 MEMORY_FULL_MB=7500

preset_valid() { [[ -z $PRESET || " ${PRESETS[*]} " == *" $PRESET "* ]]; }

# preset_keep: settings_load reads it.
preset_keep() {
  [[ -z $PRESET ]] || printf '%s\n' "$PRESET" >"$STATE_DIR/preset"
}

# preset_components prints the set of components of the preset.
preset_components() {
  case "$PRESET" in
    minimum) echo minimal ;;
    full-monitoring) echo full ;;
    *) echo default ;;
  esac
}

# preset_resources prints the agent's CPU and memory requests, its memory limit and GOMEMLIMIT;
# nothing for those of the manifest.
preset_resources() {
  case "$PRESET" in
    minimum) echo 10m 32Mi 160Mi 116MiB ;;
    production | full-monitoring) echo 50m 64Mi 256Mi 192MiB ;;
  esac
}

# preset_apply puts the resources into the agent's manifest.
preset_apply() {
  local cpu request limit soft
  read -r cpu request limit soft < <(preset_resources) || return 0
  awk -v cpu="$cpu" -v request="$request" -v limit="$limit" -v soft="$soft" '
    /^          resources:$/ {inside = 1}
    inside && !/^           / && !/^          resources:$/ {inside = 0}
    inside && /^            limits:$/ {request = limit}
    inside && /^              cpu: / {sub(/cpu: .*/, "cpu: " cpu)}
    inside && /^              memory: / {sub(/memory: .*/, "memory: " request)}
    named {sub(/value: .*/, "value: " soft); named = 0}
    /^            - name: GOMEMLIMIT$/ {named = 1}
    {print}' "$1" >"$1.new"
  mv -f "$1.new" "$1"
}
