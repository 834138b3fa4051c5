// Package login is a Runner's login at the control plane: its credentials, which
// stay good while the control plane's CA is rotated. A Runner that keeps its
// connections for long takes its certificate and its HTTP client from a Login; it
// has nothing else to do.
//
// Each answer to a Runner names the CA that issues certificates now (HeaderIssuer).
// A Runner whose certificate another one issued asks for the same certificate again
// (Path): with the same key, names and end, but of the CA of now. It is written back
// to the file of credentials where that is possible.
package login
