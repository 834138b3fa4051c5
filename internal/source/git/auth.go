package git

import (
	"crypto/x509"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Auth is the content of a Secret: credentials, and which server to trust.
type Auth struct {
	Username, Password string
	Key                ssh.Signer
	Scope              runnerapi.GitURL // the repositories that it is for; only the remote's if zero
	Hosts              Hosts
	Roots              *x509.CertPool // the system's if nil
}

// Keys of the Secret.
const (
	keyURL        = "url"
	keyUsername   = "username"
	keyPassword   = "password"
	keyIdentity   = "identity"
	keyKnownHosts = "known_hosts"
	keyCA         = "ca.crt"
)

// ReadAuth returns a Secret's values for a repository. The Secret itself must name the repositories
// that it is for. Otherwise a Runner that may name a Secret could have it sent to its own server.
func ReadAuth(secret string, data map[string][]byte, u runnerapi.GitURL) (Auth, error) {
	bad := func(fix, format string, args ...any) error {
		e := failed(Credentials, fix, format, args...)
		e.Message = "Secret " + secret + ": " + e.Message
		return e
	}
	if len(data[keyURL]) == 0 {
		return Auth{}, bad("add the key url: the address of the repository, or the beginning of the addresses that it is for", "has no url")
	}
	scope, err := runnerapi.ParseGitURL(strings.TrimSpace(string(data[keyURL])))
	if err != nil {
		return Auth{}, bad("correct the key url", "its url %v", err)
	}
	if !u.Within(scope) {
		return Auth{}, bad("name the Secret that is for this repository; which ones a Secret is for stands in its key url", "is not for this repository")
	}
	auth := Auth{Scope: scope, Username: string(data[keyUsername]), Password: strings.TrimRight(string(data[keyPassword]), "\r\n")}
	if auth.Password != "" && auth.Username == "" {
		auth.Username = "git" // servers that use tokens accept any
	}
	if pem := data[keyCA]; len(pem) > 0 {
		auth.Roots = x509.NewCertPool()
		if !auth.Roots.AppendCertsFromPEM(pem) {
			return Auth{}, bad("put certificates in PEM into ca.crt", "ca.crt holds no certificate")
		}
	}
	if !u.SSH {
		return auth, nil
	}
	if auth.Key, err = ssh.ParsePrivateKey(data[keyIdentity]); err != nil {
		return Auth{}, bad("put a private key without passphrase, as ssh-keygen makes it, into identity", "identity is not a private key that can be used")
	}
	if auth.Hosts, err = ParseHosts(data[keyKnownHosts]); err != nil {
		return Auth{}, bad("put the server's lines, as ssh-keyscan prints them, into known_hosts", "known_hosts: %v", err)
	}
	return auth, nil
}
