package webcerts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3"
)

// tagOperator marks a certificate that the operator brought.
const tagOperator = "operator"

// maxOwn bounds the operator's certificates.
const maxOwn = 1000

// ownFile is a certificate of the operator's in memory.
type ownFile struct {
	hash    string
	changed time.Time
}

func ofOperator(c certmagic.Certificate) bool { return c.HasTag(tagOperator) }

func (c *Certificates) hasOfOperator(host string) bool {
	return slices.ContainsFunc(c.cache.AllMatchingCertificates(host), func(c certmagic.Certificate) bool { return ofOperator(c) && !c.Expired() })
}

// isChallenge reports whether a handshake is the ACME CA's (RFC 8737).
func isChallenge(hello *tls.ClientHelloInfo) bool {
	return slices.Equal(hello.SupportedProtos, []string{acmez.ACMETLS1Protocol})
}

// ReadOwn reads the operator's certificates that have changed, and forgets those whose files are
// gone. What cannot be read stays as it was; the error names it, and OwnFault returns it until it
// is read.
func (c *Certificates) ReadOwn(ctx context.Context) error {
	if c.cfg.Own == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ownFault = c.readAllOwn(ctx)
	return c.ownFault
}

// OwnFault returns why the last ReadOwn has left certificates as they were; nil if it has not.
func (c *Certificates) OwnFault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ownFault
}

func (c *Certificates) readAllOwn(ctx context.Context) error {
	names, err := ownNames(c.cfg.Own)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if err := c.readOwn(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("the gateway's certificate %s: %w", filepath.Join(c.cfg.Own, name+".crt"), err))
		}
	}
	maps.DeleteFunc(c.own, func(name string, file ownFile) bool {
		gone := !slices.Contains(names, name)
		if gone {
			c.cache.Remove([]string{file.hash})
		}
		return gone
	})
	return errors.Join(errs...)
}

// ownNames returns the names of the certificates in a directory.
func ownNames(dir string) ([]string, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("the gateway's certificates: %w", err)
	}
	var names []string
	for _, file := range files {
		if name, ok := strings.CutSuffix(file.Name(), ".crt"); ok {
			names = append(names, name)
		}
	}
	if len(names) > maxOwn {
		return nil, fmt.Errorf("the gateway's certificates: %s has %d, which are more than %d", dir, len(names), maxOwn)
	}
	return names, nil
}

func (c *Certificates) readOwn(ctx context.Context, name string) error {
	cert, key := filepath.Join(c.cfg.Own, name+".crt"), filepath.Join(c.cfg.Own, name+".key")
	changed := time.Time{}
	for _, file := range []string{cert, key} {
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		if info.ModTime().After(changed) {
			changed = info.ModTime()
		}
	}
	had, known := c.own[name]
	if known && changed.Equal(had.changed) {
		return nil
	}
	hash, err := c.config.CacheUnmanagedCertificatePEMFile(ctx, cert, key, []string{tagOperator})
	if err != nil {
		return err
	}
	if known && had.hash != hash {
		c.cache.Remove([]string{had.hash})
	}
	c.own[name] = ownFile{hash, changed}
	return nil
}
