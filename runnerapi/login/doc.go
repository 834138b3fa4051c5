// Package login is a Runner's login at the control plane: its credentials, and the renewal of the
// certificate in them, also while the control plane's CA is rotated. A Runner that keeps its
// connections for long takes its certificate and its HTTP client from a Login, and has nothing else
// to do.
//
// A Runner renews its certificate (Path) when two thirds of the certificate's life are over. It
// keeps its key and names. Each answer to a Runner names the CA that issues certificates now
// (HeaderIssuer); a Runner whose certificate another CA issued renews it at once. Login writes the
// new certificate to the file of credentials if possible.
//
// A Runner that is bound to ID tokens has no credentials: Exchange gets them for a token of the
// job.
package login
