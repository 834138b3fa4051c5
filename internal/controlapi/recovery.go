package controlapi

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"
)

// RecoveryMessage is what the holder of an expired certificate signs with its
// old key. It covers the request for the new key, so that whoever overhears or
// repeats the proof gains nothing, and the clock, which the control plane holds
// against its own.
func RecoveryMessage(csr string, clock time.Time) []byte {
	sum := sha256.Sum256([]byte(csr))
	return fmt.Appendf(nil, "pipeops agent recovery v1\n%s\n%x\n", clock.UTC().Format(time.RFC3339Nano), sum)
}

// SignRecovery makes the Proof of a RenewRequest with the old key.
func SignRecovery(key crypto.Signer, csr string, clock time.Time) (string, error) {
	digest := sha256.Sum256(RecoveryMessage(csr, clock))
	signature, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("prove the old key: %w", err)
	}
	return base64.StdEncoding.EncodeToString(signature), nil
}

// VerifyRecovery says whether the request was signed by the key that belongs to
// the public key of the old certificate.
func VerifyRecovery(public crypto.PublicKey, req RenewRequest) bool {
	key, ok := public.(*ecdsa.PublicKey)
	if !ok {
		return false
	}
	signature, err := base64.StdEncoding.DecodeString(req.Proof)
	if err != nil {
		return false
	}
	digest := sha256.Sum256(RecoveryMessage(req.CSR, req.Clock))
	return ecdsa.VerifyASN1(key, digest[:], signature)
}
