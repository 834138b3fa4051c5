# ---------------------------------------------------------------- signatures
# Minisign's format, checked by minisign or by OpenSSL 3, whichever is there.

# signature_check FILE COMMENT: PIPEOPS_UPDATE_SIGNATURES of RELEASE_KEYS have signed FILE,
# and COMMENT beside it: the list of another version does not pass. FILE.minisig holds
# their signatures, four lines each.
signature_check() {
  local key keys signed=0
  IFS=, read -r -a keys <<<"$RELEASE_KEYS"
  ((${#keys[@]} > 0 || PIPEOPS_UPDATE_SIGNATURES > 1)) || return 0 # a script that no release stamped
  ((${#keys[@]} >= PIPEOPS_UPDATE_SIGNATURES)) || fail "$EXIT_USAGE" PO-9113 "$PIPEOPS_UPDATE_SIGNATURES signatures are more than the ${#keys[@]} keys of this script can make" \
    "PIPEOPS_UPDATE_SIGNATURES asks for them" "use install.sh of a release that trusts as many keys, or ask for fewer signatures"
  if ! signature_tool; then
    [[ ${PIPEOPS_ALLOW_UNSIGNED:-} == yes && $PIPEOPS_UPDATE_SIGNATURES == 1 ]] || fail "$EXIT_CHECKSUM" PO-9113 "the signature of $PIPEOPS_VERSION cannot be checked" \
      "neither minisign nor OpenSSL 3 is installed" "$(install_hint minisign); or set PIPEOPS_ALLOW_UNSIGNED=yes to go by its checksums alone"
    say "    note: the signature of $PIPEOPS_VERSION is not checked, only its checksums: PIPEOPS_ALLOW_UNSIGNED=yes"
    return 0
  fi
  signatures_split "$1.minisig"
  for key in "${keys[@]}"; do # a key counts once, however often it has signed
    signed_by "$1" "$key" "$2" || continue
    say "    signed by $key"
    ((++signed < PIPEOPS_UPDATE_SIGNATURES)) || return 0
  done
  ((signed == 0)) || fail "$EXIT_CHECKSUM" PO-9113 "the checksums of $PIPEOPS_VERSION have $signed of the $PIPEOPS_UPDATE_SIGNATURES signatures that PIPEOPS_UPDATE_SIGNATURES asks for" \
    "another maintainer has yet to sign them" "wait for that signature, or ask for fewer"
  fail "$EXIT_CHECKSUM" PO-9113 "the checksums of $PIPEOPS_VERSION are not signed by a key that this script trusts" \
    "they were changed on their way, or the maintainers have another key by now" "get install.sh of $PIPEOPS_VERSION from where you got this one; if it stays, do not use this source"
}

# signatures_split FILE puts each signature into its own file, below signatures_dir.
signatures_split() {
  signatures_dir="$tmp_dir/signatures"
  rm -rf "$signatures_dir"
  mkdir -p "$signatures_dir"
  head -n "$MAX_SIGNATURE_LINES" "$1" | awk -v dir="$signatures_dir" 'NR % 4 == 1 {n++} {print > (dir "/" n)}'
}
MAX_SIGNATURE_LINES=64 signatures_dir=""

# signed_by FILE KEY COMMENT
signed_by() {
  local signature
  for signature in "$signatures_dir"/*; do
    [[ -f $signature && $(trusted_comment "$signature") == "$3" ]] || continue
    ! "signature_by_$signature_tool" "$1" "$2" "$signature" || return 0
  done
  return 1
}

trusted_comment() { sed -n 's/^trusted comment: //p' "$1"; }

signature_tool=""
signature_tool() {
  if command -v minisign >/dev/null; then
    signature_tool=minisign
  elif [[ $(openssl version 2>/dev/null) == "OpenSSL "[3-9]* ]] && openssl dgst -blake2b512 /dev/null >/dev/null 2>&1; then # FIPS has no BLAKE2
    signature_tool=openssl
  else
    return 1
  fi
}

signature_by_minisign() { logged minisign -V -q -P "$2" -m "$1" -x "$3"; }

# signature_by_openssl FILE KEY SIGNATURE. Key and signature begin with 2 bytes for the
# algorithm and 8 for the key's number. The file's BLAKE2b digest is signed, and
# then the signature with the comment.
signature_by_openssl() {
  local dir="$tmp_dir/signature" comment
  rm -rf "$dir"
  mkdir -p "$dir"
  comment="$(trusted_comment "$3")"
  base64 -d <<<"$2" >"$dir/key" 2>/dev/null || return 1
  sed -n 2p "$3" | base64 -d >"$dir/signature" 2>/dev/null || return 1
  sed -n 4p "$3" | base64 -d >"$dir/global" 2>/dev/null || return 1
  [[ $(wc -c <"$dir/key") -eq 42 && $(wc -c <"$dir/signature") -eq 74 && $(head -c 2 "$dir/signature") == ED ]] || return 1
  cmp -s <(head -c 10 "$dir/key" | tail -c 8) <(head -c 10 "$dir/signature" | tail -c 8) || return 1
  { printf '\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00' && tail -c 32 "$dir/key"; } >"$dir/key.der"
  tail -c 64 "$dir/signature" >"$dir/bare"
  openssl dgst -blake2b512 -binary -out "$dir/digest" "$1" || return 1
  { cat "$dir/bare" && printf '%s' "$comment"; } >"$dir/commented"
  logged openssl pkeyutl -verify -pubin -inkey "$dir/key.der" -keyform DER -rawin -in "$dir/digest" -sigfile "$dir/bare" &&
    logged openssl pkeyutl -verify -pubin -inkey "$dir/key.der" -keyform DER -rawin -in "$dir/commented" -sigfile "$dir/global"
}
