# ---------------------------------------------------------------- signatures
# Minisign's format, checked by minisign or by OpenSSL 3, whichever is there.

# signature_check FILE COMMENT: FILE.minisig is one of RELEASE_KEYS', and what it
# signed beside the file is COMMENT: the list of another version does not pass.
signature_check() {
  local key keys
  [[ -n $RELEASE_KEYS ]] || return 0 # a script that no release stamped
  if ! signature_tool; then
    [[ ${PIPEOPS_ALLOW_UNSIGNED:-} == yes ]] || fail "$EXIT_CHECKSUM" "the signature of $PIPEOPS_VERSION cannot be checked" \
      "neither minisign nor OpenSSL 3 is installed" "$(install_hint minisign); or set PIPEOPS_ALLOW_UNSIGNED=yes to go by its checksums alone"
    say "    note: the signature of $PIPEOPS_VERSION is not checked, only its checksums: PIPEOPS_ALLOW_UNSIGNED=yes"
    return 0
  fi
  IFS=, read -r -a keys <<<"$RELEASE_KEYS"
  for key in "${keys[@]}"; do
    if "signature_by_$signature_tool" "$1" "$key" && [[ $(sed -n 's/^trusted comment: //p' "$1.minisig") == "$2" ]]; then
      say "    signed by $key"
      return 0
    fi
  done
  fail "$EXIT_CHECKSUM" "the checksums of $PIPEOPS_VERSION are not signed by a key that this script trusts" \
    "they were changed on their way, or the maintainers have another key by now" "get install.sh of $PIPEOPS_VERSION from where you got this one; if it stays, do not use this source"
}

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

signature_by_minisign() { logged minisign -V -q -P "$2" -m "$1"; }

# signature_by_openssl FILE KEY. Key and signature begin with 2 bytes for the
# algorithm and 8 for the key's number. The file's BLAKE2b digest is signed, and
# then the signature with the comment.
signature_by_openssl() {
  local dir="$tmp_dir/signature" comment
  rm -rf "$dir"
  mkdir -p "$dir"
  comment="$(sed -n 's/^trusted comment: //p' "$1.minisig")"
  base64 -d <<<"$2" >"$dir/key" 2>/dev/null || return 1
  sed -n 2p "$1.minisig" | base64 -d >"$dir/signature" 2>/dev/null || return 1
  sed -n 4p "$1.minisig" | base64 -d >"$dir/global" 2>/dev/null || return 1
  [[ $(wc -c <"$dir/key") -eq 42 && $(wc -c <"$dir/signature") -eq 74 && $(head -c 2 "$dir/signature") == ED ]] || return 1
  cmp -s <(head -c 10 "$dir/key" | tail -c 8) <(head -c 10 "$dir/signature" | tail -c 8) || return 1
  { printf '\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00' && tail -c 32 "$dir/key"; } >"$dir/key.der"
  tail -c 64 "$dir/signature" >"$dir/bare"
  openssl dgst -blake2b512 -binary -out "$dir/digest" "$1" || return 1
  { cat "$dir/bare" && printf '%s' "$comment"; } >"$dir/commented"
  logged openssl pkeyutl -verify -pubin -inkey "$dir/key.der" -keyform DER -rawin -in "$dir/digest" -sigfile "$dir/bare" &&
    logged openssl pkeyutl -verify -pubin -inkey "$dir/key.der" -keyform DER -rawin -in "$dir/commented" -sigfile "$dir/global"
}
