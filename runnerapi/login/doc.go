// Package login is a Runner's login at the control plane: its credentials, which stay valid while
// the control plane's CA is rotated. A Runner that keeps its connections for long takes its
// certificate and its HTTP client from a Login, and has nothing else to do.
//
// Each answer to a Runner names the CA that issues certificates now (HeaderIssuer). A Runner whose
// certificate another CA issued requests the same certificate again (Path): with the same key,
// names and end, but from the current CA. Login writes it back to the file of credentials if
// possible.
package login
