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

// RecoveryMessage returns what the holder of an expired certificate signs with its old key. The
// message covers the request for the new key, so that overhearing or replaying the proof is
// useless. It also covers the clock, which the control plane compares with its own.
func RecoveryMessage(csr string, clock time.Time) []byte {
	sum := sha256.Sum256([]byte(csr))
	return fmt.Appendf(nil, "pipeops agent recovery v1\n%s\n%x\n", clock.UTC().Format(time.RFC3339Nano), sum)
}

// SignRecovery returns the Proof of a RenewRequest, made with the old key.
func SignRecovery(key crypto.Signer, csr string, clock time.Time) (string, error) {
	digest := sha256.Sum256(RecoveryMessage(csr, clock))
	signature, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		return "", fmt.Errorf("prove the old key: %w", err)
	}
	return base64.StdEncoding.EncodeToString(signature), nil
}

// VerifyRecovery reports whether the request was signed with the key of the old certificate.
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
