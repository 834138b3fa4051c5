package store

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Certificate is a record in the log of issued certificates.
type Certificate struct {
	Serial string `json:"serial"` // hexadecimal
	Role   string `json:"role"`
	// Name is an agent's ID, a Runner's or CA's name, or the names of a server.
	Name string `json:"name"`
	// Issuer is the key ID of the CA, in hexadecimal.
	Issuer    string    `json:"issuer"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	SHA256    string    `json:"sha256"` // of the whole certificate, in hexadecimal
	IssuedAt  time.Time `json:"issuedAt"`
	Reason    string    `json:"reason"`
}

const certificateColumns = `serial, role, name, issuer, not_before, not_after, sha256, issued_at, reason`

func scanCertificate(row scanner, c *Certificate) error {
	return row.Scan(&c.Serial, &c.Role, &c.Name, &c.Issuer, moment{&c.NotBefore}, moment{&c.NotAfter}, &c.SHA256, moment{&c.IssuedAt}, &c.Reason)
}

// certificateTable has the statements about the log of certificates.
type certificateTable struct{ table }

// AddCertificate appends to the log of issued certificates.
func (q certificateTable) AddCertificate(ctx context.Context, c Certificate) error {
	_, err := q.exec(ctx, `INSERT INTO certificates (`+certificateColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		c.Serial, c.Role, c.Name, c.Issuer, micros(c.NotBefore), micros(c.NotAfter), c.SHA256, micros(c.IssuedAt), c.Reason)
	return err
}

// CertificatesSince counts the certificates that were issued to a holder after that time.
func (q certificateTable) CertificatesSince(ctx context.Context, role, name string, after time.Time) (int, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT count(*) FROM certificates WHERE role = $1 AND name = $2 AND issued_at > $3`, role, name, micros(after)),
		func(row scanner, n *int) error { return row.Scan(n) })
}

// CertificatesWanted selects from the log of issued certificates; empty fields select all.
type CertificatesWanted struct {
	Roles  []string
	Names  []string
	Serial string
	SHA256 string
	Limit  int
}

// Certificates lists issued certificates, the newest first.
func (q certificateTable) Certificates(ctx context.Context, w CertificatesWanted) ([]Certificate, error) {
	var (
		where []string
		args  []any
	)
	only := func(column string, values ...string) {
		var list []string
		for _, v := range values {
			if v != "" {
				args = append(args, v)
				list = append(list, fmt.Sprintf("$%d", len(args)))
			}
		}
		if len(list) > 0 {
			where = append(where, column+" IN ("+strings.Join(list, ", ")+")")
		}
	}
	only("role", w.Roles...)
	only("name", w.Names...)
	only("serial", w.Serial)
	only("sha256", w.SHA256)
	query := `SELECT ` + certificateColumns + ` FROM certificates`
	if len(where) > 0 {
		query += ` WHERE ` + strings.Join(where, " AND ")
	}
	args = append(args, w.Limit)
	return all(ctx, q.q, scanCertificate, fmt.Sprintf("%s ORDER BY issued_at DESC, sha256 LIMIT $%d", query, len(args)), args...)
}

// ForgetCertificates deletes the records of certificates that ended before that time.
func (q certificateTable) ForgetCertificates(ctx context.Context, before time.Time) error {
	_, err := q.exec(ctx, `DELETE FROM certificates WHERE not_after < $1`, micros(before))
	return err
}
