package credentials

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"unicode/utf8"
)

// actorOID is the OID of the certificate extension with who acts as a Runner (docs/adr/0069). It is
// derived from a UUID, as that of grants is.
var actorOID = asn1.ObjectIdentifier{1, 2, 840, 113556, 1, 8000, 2554, 9658, 47248, 1455, 18325, 44072, 7298085, 16079078}

// MaxActor bounds the name of who acts as a Runner, in bytes.
const MaxActor = 512

// ActorExtension returns the extension for the certificate of who acts as a Runner: the name of an
// operator, or the claims of an ID token. It is not critical: it grants nothing, and an agent that
// does not know it leaves it out of its audit log.
func ActorExtension(name string) (pkix.Extension, error) {
	if name == "" || len(name) > MaxActor {
		return pkix.Extension{}, fmt.Errorf("who acts as a Runner has a name of 1 to %d bytes", MaxActor)
	}
	value, err := asn1.MarshalWithParams(name, "utf8")
	if err != nil {
		return pkix.Extension{}, fmt.Errorf("actor: %w", err)
	}
	return pkix.Extension{Id: actorOID, Value: value}, nil
}

// ActorOf returns who acts as the Runner of a certificate; empty for the Runner itself.
func ActorOf(cert *x509.Certificate) string {
	for _, e := range cert.Extensions {
		if !e.Id.Equal(actorOID) {
			continue
		}
		var name string
		if rest, err := asn1.UnmarshalWithParams(e.Value, &name, "utf8"); err == nil && len(rest) == 0 && len(name) <= MaxActor && utf8.ValidString(name) {
			return name
		}
	}
	return ""
}

// Extensions returns those of the certificate of a Runner as which someone acts: its grant, in the
// form of Grant.String, and the actor.
func Extensions(agents, actor string) ([]pkix.Extension, error) {
	grant, err := ParseGrant(agents)
	if err != nil {
		return nil, err
	}
	extensions, err := grant.Extensions()
	if err != nil {
		return nil, err
	}
	who, err := ActorExtension(actor)
	return append(extensions, who), err
}
