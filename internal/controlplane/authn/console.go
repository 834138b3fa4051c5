package authn

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// consoleCodeLife is how long a code for signing in to the console is good.
	consoleCodeLife = 5 * time.Minute
	// consoleLife is how long a session in the console lasts at most, in use or not.
	consoleLife = 12 * time.Hour
	// consoleMost is how many codes, and how many sessions, an operator has at a time. The oldest
	// ends for another one.
	consoleMost = 20
)

// OpenIDPrefix begins the names of those who sign in by OpenID Connect. No operator with a
// certificate has such a name.
const OpenIDPrefix = "openid/"

// ConsoleCode returns a code with which a browser signs in to the console as an operator, once.
func (p *Authenticator) ConsoleCode(ctx context.Context, o store.Operator) (code string, expires time.Time, err error) {
	expires = p.Now().Add(consoleCodeLife)
	code, err = p.keepConsole(ctx, store.ConsoleSession{Kind: store.ConsoleCode, Operator: o.Name, Serial: o.Serial, ExpiresAt: expires})
	return code, expires, err
}

// EnterConsole uses a code up and opens the session that it is for. The ID is the session's secret.
// It returns store.ErrNotFound for a code that is wrong, used or late.
func (p *Authenticator) EnterConsole(ctx context.Context, code string) (id string, session store.ConsoleSession, err error) {
	err = p.Store.Update(ctx, func(tx *store.Tx) (err error) {
		session, err = tx.TakeConsoleCode(ctx, consoleDigest(code))
		return err
	})
	if err == nil && !p.Now().Before(session.ExpiresAt) {
		err = store.ErrNotFound
	}
	if err != nil {
		return "", session, err
	}
	session.Kind, session.ExpiresAt = store.ConsoleOpen, p.Now().Add(consoleLife)
	id, err = p.keepConsole(ctx, session)
	return id, session, err
}

// OpenConsole opens a session for an operator whom an identity provider has identified. The session
// keeps the role, and ends when the operator expires at the latest. The ID is the session's secret.
func (p *Authenticator) OpenConsole(ctx context.Context, o store.Operator) (id string, err error) {
	s := store.ConsoleSession{Kind: store.ConsoleOpen, Operator: o.Name, Serial: p.OpenID, Role: o.Role, ExpiresAt: p.Now().Add(consoleLife)}
	if o.ExpiresAt.Before(s.ExpiresAt) {
		s.ExpiresAt = o.ExpiresAt
	}
	return p.keepConsole(ctx, s)
}

// keepConsole stores a session or a code, and returns its secret.
func (p *Authenticator) keepConsole(ctx context.Context, s store.ConsoleSession) (secret string, err error) {
	secret = rand.Text()
	s.Digest, s.CreatedAt = consoleDigest(secret), p.Now()
	return secret, p.Store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.InsertConsoleSession(ctx, s); err != nil {
			return err
		}
		return tx.ForgetConsoleSessions(ctx, p.Now(), s.Operator, s.Kind, consoleMost)
	})
}

// consoleDigest is what the database has of a secret: a copy of it opens no session.
func consoleDigest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// ConsoleSession returns an open session, and its operator as the database has it now. It returns
// store.ErrNotFound once the session has ended, or the certificate that it is bound to.
func (p *Authenticator) ConsoleSession(ctx context.Context, id string) (store.ConsoleSession, store.Operator, error) {
	session, err := p.Store.ConsoleSession(ctx, store.ConsoleOpen, consoleDigest(id))
	if err != nil {
		return session, store.Operator{}, err
	}
	known, err := p.OperatorOfConsole(ctx, session)
	if problem.Is(err, controlapi.CodeCertificateUnknown) || problem.Is(err, controlapi.CodeCertificateExpired) {
		err = store.ErrNotFound
	}
	return session, known, err
}

// OperatorOfConsole identifies the operator of a session for a call. With an error it returns the
// name alone.
func (p *Authenticator) OperatorOfConsole(ctx context.Context, session store.ConsoleSession) (store.Operator, error) {
	named := store.Operator{Name: session.Operator}
	kept, err := p.Store.ConsoleSession(ctx, store.ConsoleOpen, session.Digest)
	if errors.Is(err, store.ErrNotFound) || err == nil && !p.Now().Before(kept.ExpiresAt) {
		return named, controlapi.Errorf(controlapi.CodeCertificateUnknown, "sign in again", "the session has ended")
	}
	if err != nil {
		return named, p.undecided(err)
	}
	if kept.Role != "" {
		if kept.Serial != p.OpenID {
			return named, controlapi.Errorf(controlapi.CodeCertificateUnknown, "sign in again", "the settings for signing in have changed")
		}
		return store.Operator{Name: kept.Operator, Role: kept.Role, CreatedAt: kept.CreatedAt, ExpiresAt: kept.ExpiresAt}, nil
	}
	known, err := p.knownOperator(ctx, kept.Operator, kept.Serial)
	if err == nil && !p.Now().Before(known.ExpiresAt) {
		return named, controlapi.Errorf(controlapi.CodeCertificateExpired, "have an admin make new credentials", "the certificate of operator %s has expired", known.Name)
	}
	return known, err
}

// LeaveConsole ends a session.
func (p *Authenticator) LeaveConsole(ctx context.Context, id string) error {
	return p.Store.Update(ctx, func(tx *store.Tx) error { return tx.EndConsoleSession(ctx, consoleDigest(id)) })
}
