package controlapi

import (
	"crypto/sha256"
	"encoding/hex"
)

// CAs are the CAs that an agent trusts from now on. During a rotation there are two.
type CAs struct {
	Bundle string `json:"caBundle" doc:"PEM: the CAs that the agent trusts for the control plane, frps and Runners."`
	Former string `json:"formerCas,omitempty" doc:"PEM: CAs that were trusted before. An enrolment token may name one of them still."`
}

// BundleHash returns how both sides name a bundle: the SHA-256 of its text.
func BundleHash(bundle string) string {
	sum := sha256.Sum256([]byte(bundle))
	return hex.EncodeToString(sum[:])
}
