# ---------------------------------------------------------------- downloads
# A mirror and an offline bundle have one form: https://HOST/PATH is at
# MIRROR/HOST/PATH, or in the file BUNDLE/HOST/PATH.

tmp_open() {
  [[ -n $tmp_dir ]] || tmp_dir="$(mktemp -d "${TMPDIR:-/tmp}/pipeops-install.XXXXXX")"
}

# ca_arguments sets ca_args for curl: the system's CAs and the one that was given.
ca_args=()
ca_arguments() {
  [[ -n $PIPEOPS_CA_FILE && ${#ca_args[@]} -eq 0 ]] || return 0
  local system
  for system in "${CURL_CA_BUNDLE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
    [[ -n $system && -r $system ]] || continue
    cat "$system" "$PIPEOPS_CA_FILE" >"$tmp_dir/ca.pem"
    ca_args=(--cacert "$tmp_dir/ca.pem")
    return 0
  done
  ca_args=(--cacert "$PIPEOPS_CA_FILE")
}

# fetch URL FILE: FILE is there whole, or the script ends.
fetch() {
  local url="$1" file="$2" from="$1" code=0
  tmp_open
  if [[ -n $PIPEOPS_BUNDLE ]]; then
    from="$PIPEOPS_BUNDLE/${url#https://}"
    [[ -r $from ]] || fail "$EXIT_NETWORK" PO-9110 "the bundle has no ${url#https://}" "it is of another version, or for another architecture" \
      "make one that fits: make bundle VERSION=$PIPEOPS_VERSION"
    cp "$from" "$file"
    return
  fi
  [[ -z $PIPEOPS_MIRROR ]] || from="${PIPEOPS_MIRROR%/}/${url#https://}"
  command -v curl >/dev/null || fail "$EXIT_MACHINE" PO-9012 "curl is not installed" "downloads need it" "$(install_hint curl)"
  ca_arguments
  log "fetch $from"
  # The system's own settings for proxies and CAs are curl's too.
  logged curl --proto '=https' --tlsv1.2 -fsSL --retry 2 --retry-delay 1 --connect-timeout 10 \
    --speed-limit 1000 --speed-time 30 "${ca_args[@]}" -o "$file.part" "$from" || code=$?
  ((code == 0)) || fetch_failed "$code" "$from"
  mv -f "$file.part" "$file"
}

# fetch_failed explains an exit code of curl.
fetch_failed() {
  local host="${2#https://}" number=PO-9102 why fix
  host="${host%%/*}"
  local code="$1"
  [[ $last_output != *"Resolving timed out"* ]] || code=6
  # What older and newer curls say of a proxy's answer to CONNECT.
  [[ $last_output != *"HTTP response code said error"* && $last_output != *CONNECT*response* ]] || code=proxy
  case "$code" in
    proxy) number=PO-9103 why="the proxy does not let it through: it wants an account, or forbids $host ($last_output)" fix="set HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT, or have $host allowed" ;;
    5) number=PO-9103 why="the proxy's name cannot be resolved" fix="check HTTPS_PROXY" ;;
    6) number=PO-9104 why="the name ${host%%:*} cannot be resolved: no DNS" fix="check: getent hosts ${host%%:*}; cat /etc/resolv.conf" ;;
    7 | 28) number=PO-9105 why="$host does not answer: a firewall, or a proxy is needed" fix="set HTTPS_PROXY, a mirror (PIPEOPS_MIRROR), or use an offline bundle" ;;
    18 | 56 | 92) number=PO-9106 why="the connection broke in the middle" fix="run it again" ;;
    22) number=PO-9107 why="$last_output" fix="check the version, and the mirror if there is one: curl -fI $2" ;;
    23) number=PO-9108 why="the disk is full, or it cannot be written" fix="df -h ${TMPDIR:-/tmp}" ;;
    35 | 60 | 77) number=PO-9109 why="the certificate of $host is not trusted: a wrong clock, or a proxy that looks into TLS" fix="check the clock (date), or set PIPEOPS_CA_FILE to the proxy's CA" ;;
    *) why="curl ended with $code: $last_output" fix="try it: curl -v -o /dev/null $2" ;;
  esac
  fail "$EXIT_NETWORK" "$number" "download of $2 failed" "$why" "$fix"
}

install_hint() {
  case "${facts[PACKAGE_MANAGER]:-none}" in
    apt-get) echo "apt-get update && apt-get install -y $1" ;;
    apk) echo "apk add $1" ;;
    none) echo "install $1" ;;
    zypper) echo "zypper --non-interactive install $1" ;;
    brew) echo "brew install $1" ;;
    *) echo "${facts[PACKAGE_MANAGER]} install -y $1" ;;
  esac
}

sha256_of() {
  if command -v sha256sum >/dev/null; then
    sha256sum "$1"
  else
    shasum -a 256 "$1"
  fi | cut -d ' ' -f 1
}

# verify FILE SUM NAME
verify() {
  local got
  [[ $2 =~ ^[0-9a-f]{64}$ ]] || fail "$EXIT_CHECKSUM" PO-9111 "there is no checksum for $3" "the list of checksums does not name it" "check the version"
  got="$(sha256_of "$1")"
  [[ $got == "$2" ]] || {
    rm -f "$1"
    fail "$EXIT_CHECKSUM" PO-9112 "$3 is not what its publisher made: its checksum is $got, not $2" \
      "the download was cut short or changed on its way (a proxy's page, a stale mirror)" "run it again; if it stays, do not use this source"
  }
  log "checksum of $3 is right: $got"
}

# sum_in LIST NAME prints the checksum that a list in sha256sum's format has. Some
# lists name files by the folder they were built in; some are one checksum without a name.
sum_in() {
  awk -v name="$2" 'NF == 1 {print $1; exit}
    {file = $2; sub(/^\*/, "", file); base = file; sub(/.*\//, "", base)}
    file == name || base == name {print $1; exit}' "$1"
}

# fetch_verified URL FILE LIST_URL NAME
fetch_verified() {
  local list
  tmp_open
  list="$tmp_dir/sums-$(tr -c 'a-zA-Z0-9.\n' _ <<<"$3")"
  [[ -s $list ]] || fetch "$3" "$list"
  fetch "$1" "$2"
  verify "$2" "$(sum_in "$list" "$4")" "$4"
}

# fetch_release NAME FILE gets a file of the release. Those of this script's own version are known by
# their checksums; of another version, the list of checksums has to be signed.
fetch_release() {
  local folder="$RELEASES_URL/$PIPEOPS_VERSION" known=""
  [[ $PIPEOPS_VERSION != "$RELEASE_VERSION" ]] || known="$(release_sum "$1")"
  tmp_open
  if [[ -z $known && $release_listed != "$PIPEOPS_VERSION" ]]; then
    fetch "$folder/SHA256SUMS" "$tmp_dir/SHA256SUMS"
    [[ -z $RELEASE_KEYS ]] || fetch "$folder/SHA256SUMS.minisig" "$tmp_dir/SHA256SUMS.minisig"
    signature_check "$tmp_dir/SHA256SUMS" "pipeops $PIPEOPS_VERSION SHA256SUMS"
    release_listed="$PIPEOPS_VERSION"
  fi
  [[ -n $known ]] || known="$(sum_in "$tmp_dir/SHA256SUMS" "$1")"
  fetch "$folder/$1" "$2"
  verify "$2" "$known" "$1"
}

# release_sum NAME prints the checksum that this script has for a file of its version, if it has one.
release_sum() { tr , '\n' <<<"$RELEASE_SHA256SUMS" | awk -v name="$1" '$2 == name {print $1}'; }
release_listed=""

# programs_fetch SYSTEM unpacks the release's programs for a system into tmp_dir/programs.
programs_fetch() {
  local archive="pipeops_${PIPEOPS_VERSION#v}_$1_${facts[ARCH]}"
  say "    downloading $archive"
  fetch_release "$archive.tar.gz" "$tmp_dir/programs.tar.gz"
  mkdir -p "$tmp_dir/programs"
  logged tar -xzf "$tmp_dir/programs.tar.gz" -C "$tmp_dir/programs" --strip-components=1 --no-same-owner ||
    fail "$EXIT_MACHINE" PO-9115 "$archive.tar.gz cannot be unpacked" "tar says: $last_output" "$(install_hint tar); df -h ${TMPDIR:-/tmp}"
}

# newest_version sets PIPEOPS_VERSION to what the release site calls the newest.
newest_version() {
  tmp_open
  fetch "$NEWEST_URL" "$tmp_dir/version.txt"
  PIPEOPS_VERSION="$(head -c 100 "$tmp_dir/version.txt" | head -n 1)"
  [[ $PIPEOPS_VERSION =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] ||
    fail "$EXIT_NETWORK" PO-9114 "the newest version cannot be found" "what is at $NEWEST_URL is not a version (a proxy's page?)" "name it: install.sh upgrade --version VERSION"
}

# older VERSION THAN, both vMAJOR.MINOR.PATCH[-PRERELEASE]; a prerelease comes before
# its release, and two of one release go by their letters.
older() {
  local one other part
  IFS=. read -r -a one <<<"${1%%-*}"
  IFS=. read -r -a other <<<"${2%%-*}"
  for part in 0 1 2; do
    local a="${one[part]#v}" b="${other[part]#v}"
    ((10#$a == 10#$b)) || return $((10#$a > 10#$b))
  done
  [[ $1 == *-* && ($2 != *-* || ${1#*-} < ${2#*-}) ]]
}

# program_install NAME FILE puts a verified program into its place.
program_install() {
  local path="$bin_dir/$1"
  backup "$path"
  record file "$path"
  make_dir "$bin_dir"
  chmod 0755 "$2"
  mv -f "$2" "$path.pipeops-new"
  mv -f "$path.pipeops-new" "$path"
  say "    installed $path"
  logged "$path" --version || logged "$path" version --client || (($? != 126)) || fail "$EXIT_MACHINE" PO-9115 "$path may not be executed" \
    "SELinux forbids it (SELINUX=${facts[SELINUX]}), or the file system is mounted noexec" \
    "restorecon -v $path; ausearch -m avc -ts recent; findmnt -T $path"
}
