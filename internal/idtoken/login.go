package idtoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"

	"golang.org/x/oauth2"
)

// Login is a sign-in that has begun. Everything of it follows from a secret that the browser keeps,
// so that a server keeps nothing, and any of several servers ends it.
type Login struct{ State, Nonce, Verifier string }

// LoginOf returns the sign-in of a browser's secret.
func LoginOf(secret string) Login {
	derive := func(what string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(what))
		return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	return Login{State: derive("state"), Nonce: derive("nonce"), Verifier: derive("verifier")}
}

// Challenge returns the challenge of the verifier, by the method S256.
func (l Login) Challenge() string { return oauth2.S256ChallengeFromVerifier(l.Verifier) }

// Same compares texts in constant time.
func Same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
