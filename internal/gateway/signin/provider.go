// Package signin signs visitors of Apps in: by OpenID Connect at the provider that the App's route
// names, or by service tokens.
package signin

import "context"

// Provider identifies visitors, in the authorization code flow of OpenID Connect with PKCE. Its
// errors are problems of the package problem: Unavailable if the provider cannot be used now, and
// Unauthorized or Forbidden if it has not identified the visitor. They have neither codes nor
// secrets. Implementations are safe for concurrent use, bound the time of their calls, and are
// comparable: two that are equal are the same provider, with the same settings.
type Provider interface {
	// AuthorizeURL returns the https address to which a visitor's browser is sent. The provider
	// sends it back to redirect, which is https://HOST/.pipeops/callback, with a code and the
	// unchanged state, which has at most MaxState bytes of base64url. challenge is the verifier's
	// by the method S256 (RFC 7636).
	AuthorizeURL(ctx context.Context, redirect, state, nonce, challenge string) (string, error)
	// Exchange returns the person for whom the provider has issued a code to this redirect,
	// challenge and nonce. It succeeds at most once for a code.
	Exchange(ctx context.Context, redirect, code, verifier, nonce string) (Person, error)
}

// MaxState bounds a state, in bytes.
const MaxState = 2048

// Person is a visitor whom a provider has identified.
type Person struct {
	// Subject identifies the person at the provider, and never changes. It is not empty.
	Subject string
	// Email counts only if EmailVerified is set. It may be empty.
	Email         string
	EmailVerified bool
	// Name is for people; it may be empty.
	Name string
	// Groups are all that the provider names.
	Groups []string
}

// Source returns the provider of the control plane, or why there is none in a sentence that names
// the fix. One of both is empty.
type Source func() (p Provider, unmet string)
