package gatewaywire

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/http"
	"net/netip"
	"strings"
)

// maxEndpoint bounds an endpoint: the longest name in DNS.
const maxEndpoint = 253

// IsEndpoint reports whether a text names a load balancer: an IP address in its usual form, or a
// name in DNS. It does not report whether the address is public.
func IsEndpoint(text string) bool {
	if address, err := netip.ParseAddr(text); err == nil {
		return address.Zone() == "" && address.Unmap().String() == text
	}
	labels := strings.Split(text, ".")
	if len(text) > maxEndpoint || len(labels) < 2 {
		return false // a name without a dot is resolved by the search path of a machine
	}
	for _, label := range labels {
		if !isLabel(label) {
			return false
		}
	}
	return strings.Trim(labels[len(labels)-1][:1], "0123456789") != "" // 127.1 and 0x7f.1 are addresses to some
}

func isLabel(label string) bool {
	if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	return strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// What is particular to direct mode.
const (
	// HeaderKeyWanted in a public stream asks the agent which key its cluster presents for the
	// request's host. HeaderKey has it in the answer, and HeaderKeyReason why there is none.
	HeaderKeyWanted = "Pipeops-Key-Wanted"
	HeaderKey       = "Pipeops-Key"
	HeaderKeyReason = "Pipeops-Key-Reason"
	// ProtocolGateway is preferred by gateways over all other protocols in ALPN, so that a gateway
	// is recognized by another one.
	ProtocolGateway = "pipeops-gateway"
	// HeaderLoop and LoopID mark what a gateway sent to an endpoint (RFC 8586).
	HeaderLoop = "Cdn-Loop"
	LoopID     = "pipeops"
)

// KeyOf returns the SHA-256 of a certificate's public key, in hex.
func KeyOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// Looped reports whether a request came through a gateway already.
func Looped(h http.Header) bool {
	for _, line := range h.Values(HeaderLoop) {
		for id := range strings.SplitSeq(line, ",") {
			if id, _, _ = strings.Cut(id, ";"); strings.EqualFold(strings.TrimSpace(id), LoopID) {
				return true
			}
		}
	}
	return false
}
