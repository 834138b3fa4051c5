package openid

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
)

// login is a sign-in that has begun. Everything of it follows from a secret that the browser keeps,
// so the control plane keeps nothing, and any of several control planes ends it.
type login struct{ state, nonce, verifier string }

func loginOf(secret string) login {
	derive := func(what string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(what))
		return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	return login{state: derive("state"), nonce: derive("nonce"), verifier: derive("verifier")}
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
