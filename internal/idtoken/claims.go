package idtoken

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// Verified reports whether a claim is true. Some providers send booleans as text.
func Verified(claim json.RawMessage) bool {
	return string(claim) == `true` || string(claim) == `"true"`
}

// Names returns the names of a claim: a list, or a single one.
func Names(claim json.RawMessage) (names []string, ok bool) {
	var one string
	switch {
	case json.Unmarshal(claim, &names) == nil:
		return names, true
	case json.Unmarshal(claim, &one) == nil:
		return []string{one}, true
	}
	return nil, false
}

// UnverifiedIssuer returns the issuer that a token names; empty if it cannot be read.
func UnverifiedIssuer(raw string) string {
	parts := strings.Split(raw, ".")
	if len(parts) != 3 {
		return ""
	}
	var said struct {
		Issuer string `json:"iss"`
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &said) != nil {
		return ""
	}
	return said.Issuer
}
