package credentials

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"unicode/utf8"
)

// operatorOID is the OID of the certificate extension with the operator who acts as a Runner
// (docs/adr/0068). It is derived from a UUID, as that of grants is.
var operatorOID = asn1.ObjectIdentifier{1, 2, 840, 113556, 1, 8000, 2554, 9658, 47248, 1455, 18325, 44072, 7298085, 16079078}

// maxOperator bounds the name of an operator, in bytes.
const maxOperator = 256

// OperatorExtension returns the extension for the certificate of an operator who acts as a Runner.
// It is not critical: it grants nothing, and an agent that does not know it leaves it out of its
// audit log.
func OperatorExtension(name string) (pkix.Extension, error) {
	if name == "" || len(name) > maxOperator {
		return pkix.Extension{}, fmt.Errorf("an operator's name has 1 to %d bytes", maxOperator)
	}
	value, err := asn1.MarshalWithParams(name, "utf8")
	if err != nil {
		return pkix.Extension{}, fmt.Errorf("operator: %w", err)
	}
	return pkix.Extension{Id: operatorOID, Value: value}, nil
}

// OperatorOf returns the operator who acts as the Runner of a certificate; empty for none.
func OperatorOf(cert *x509.Certificate) string {
	for _, e := range cert.Extensions {
		if !e.Id.Equal(operatorOID) {
			continue
		}
		var name string
		if rest, err := asn1.UnmarshalWithParams(e.Value, &name, "utf8"); err == nil && len(rest) == 0 && len(name) <= maxOperator && utf8.ValidString(name) {
			return name
		}
	}
	return ""
}
