// Package signature verifies by whom a Git commit or tag is signed: with a key of SSH
// (PROTOCOL.sshsig, as gpg.format=ssh makes it) or OpenPGP, or keyless with gitsign. It reads the
// objects as Git stores them: what `git verify-commit` and `git verify-tag` refuse, it refuses too.
package signature

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/sigstore/sigstore-go/pkg/verify"
)

// Reason is the stable name of a failure.
type Reason string

// The reasons.
const (
	Unsigned  Reason = "commit_unsigned"
	NotListed Reason = "signer_not_listed"
	Mismatch  Reason = "signature_mismatch"
	Expired   Reason = "signing_key_expired"
	Revoked   Reason = "signing_key_revoked"
	// Unsupported is a format, an algorithm or a form of the object that is not verified.
	Unsupported Reason = "signature_not_supported"
	// Unavailable is of a root of trust that cannot be fetched, as a repository is unreachable.
	Unavailable Reason = "unreachable"
)

// Error is why a commit is not accepted, with a fix.
type Error struct {
	Reason       Reason
	Message, Fix string
}

func (e *Error) Error() string { return e.Message + " (fix: " + e.Fix + ")" }

// The bounds of what is verified. Git servers bound commit messages to less.
const (
	maxObject    = 1 << 20
	maxSignature = 16 << 10
)

// Commit is a commit as Git stores it, with the annotated tag that was followed to it.
type Commit struct {
	Hash string // by which Git knows it
	Raw  []byte
	// Tag is the object of the annotated tag; nil if none was followed. TagName is the followed
	// tag.
	Tag     []byte
	TagName string
}

// Signers are those by one of whom a commit, or the tag that was followed to it, must be signed.
type Signers struct {
	Keys   []Key
	Source string // where the cluster's owner sets them, for fixes
	// Sigstore returns the public root of trust, for keyless signers without their own. It is nil
	// if there is none, and bounds its own time.
	Sigstore func() (*verify.Verifier, error)
}

func (s Signers) public() (*verify.Verifier, error) {
	if s.Sigstore == nil {
		return nil, errors.New("this verifier knows no root of trust of Sigstore")
	}
	return s.Sigstore()
}

// Verify returns an error unless one of the signers has signed the commit or its tag. OpenPGP keys
// must be valid at that time, as Git demands.
func (s Signers) Verify(c Commit, at time.Time) *Error {
	if plumbing.ComputeHash(plumbing.CommitObject, c.Raw).String() != c.Hash {
		return s.failed(Mismatch, "what the server sent is not commit %.12s", c.Hash)
	}
	refused := s.commit(c, at)
	if refused == nil {
		return nil
	}
	if c.Tag != nil {
		switch tag := s.tag(c, at); {
		case tag == nil:
			return nil
		case tag.Reason != Unsigned:
			return tag
		}
	}
	return refused
}

func (s Signers) commit(c Commit, at time.Time) *Error {
	what := fmt.Sprintf("commit %.12s", c.Hash)
	o, err := splitCommit(c.Raw)
	if err != nil {
		return s.failed(Unsupported, "%s %v", what, err)
	}
	return s.object(what, o, at)
}

// tag verifies the tag. A signed tag under another name was moved.
func (s Signers) tag(c Commit, at time.Time) *Error {
	what := fmt.Sprintf("tag %.100q", c.TagName)
	o, err := splitTag(c.Tag)
	if err != nil {
		return s.failed(Unsupported, "%s %v", what, err)
	}
	if refused := s.object(what, o.object, at); refused != nil {
		return refused
	}
	switch {
	case o.name != c.TagName:
		return s.failed(Mismatch, "%s is the signed tag %.100q under another name", what, o.name)
	case o.target != c.Hash:
		return s.failed(Mismatch, "%s is signed for another object than commit %.12s", what, c.Hash)
	}
	return nil
}

func (s Signers) object(what string, o object, at time.Time) *Error {
	var err error
	switch {
	case len(o.signature) == 0:
		return s.failed(Unsigned, "%s is not signed", what)
	case len(o.signature) > maxSignature:
		return s.failed(Unsupported, "%s has a signature of more than %d KiB", what, maxSignature>>10)
	}
	switch formatOf(o.signature) {
	case sshBegin:
		err = s.ssh(o)
	case pgpBegin:
		err = s.openPGP(o, at)
	case x509Begin:
		err = s.gitsign(o)
	default:
		err = refuse(Unsupported, "has a signature that is neither SSH's nor OpenPGP's nor gitsign's")
	}
	if r, ok := err.(*refusal); ok { //nolint:errorlint // never wrapped
		return s.failed(r.reason, "%s %s", what, r.text)
	}
	return nil
}

// refusal is an Error without its object.
type refusal struct {
	reason Reason
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(reason Reason, format string, args ...any) error {
	return &refusal{reason, fmt.Sprintf(format, args...)}
}

func (s Signers) failed(reason Reason, format string, args ...any) *Error {
	source := s.Source
	if source == "" {
		source = "signers in the cluster owner's policy"
	}
	fix := map[Reason]string{
		Unsigned:    "sign it (git commit --amend --no-edit -S) with a key of " + source + ", and push it",
		NotListed:   "sign it with a listed key, or have the owner of the cluster add this one to " + source,
		Mismatch:    "find out who changed it: then sign it again, and push it",
		Expired:     "have the owner of the cluster put the renewed key into " + source + ", or sign with another one",
		Revoked:     "sign it with another key of " + source,
		Unsupported: "sign it with SSH (git config gpg.format ssh), OpenPGP, SHA-256 or better, or gitsign (git config gitsign.rekorMode offline), and push it",
		Unavailable: "let the agent reach the public Sigstore, or have the owner of the cluster set trustedRoot in " + source,
	}[reason]
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...), Fix: fix}
}
