package policy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/imagesignature"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/sigstore"
)

// ImageSigners are those by one of whom images must be signed.
type ImageSigners struct {
	// Images are registries or repositories, as in Rule.Images. Absent, all images.
	Images []string `json:"images,omitzero"`
	// Keys are public keys in PEM.
	Keys []string `json:"keys,omitzero"`
	// Keyless are identities that sign without a key.
	Keyless []sigstore.Keyless `json:"keyless,omitzero"`
	// TrustedRoot is the trusted_root.json of the Sigstore of Keyless. Absent, the public one.
	TrustedRoot string `json:"trustedRoot,omitempty"`
}

// VerifyImage returns why an image is not signed as a rule demands.
type VerifyImage func(imagesignature.Request) error

// SetImages sets what verifies the signatures of images. Without it, the policy refuses images that
// have to be signed.
func (p *Policy) SetImages(verify VerifyImage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.images = verify
}

// signers returns the signers of an entry that was validated.
func (s ImageSigners) signers() (all []imagesignature.Signer) {
	for _, text := range s.Keys {
		if key, err := imagesignature.ReadKey(text); err == nil {
			all = append(all, key)
		}
	}
	var root sigstore.Root
	if s.TrustedRoot != "" {
		var err error
		if root, err = sigstore.ReadRoot(s.TrustedRoot); err != nil {
			return all
		}
	}
	for _, k := range s.Keyless {
		if signer, err := k.Signer(root); err == nil {
			all = append(all, imagesignature.Keyless(signer))
		}
	}
	return all
}

// signed checks that an image is signed as the rule demands, by each entry that covers it. What is
// verified is a digest, so the image must name one: a tag may stand for something else when it is
// pulled.
func (r ruling) signed(field, image string, pullSecrets []string) error {
	for _, entry := range r.ImageSigners {
		covered, err := entry.cover(image)
		switch {
		case err != nil:
			return r.refuse(field, "imageSigners", "demands signed images, and %.200q is not an image reference", image)
		case !covered:
			continue
		}
		if _, ok := imagesignature.Digest(image); !ok {
			return r.untagged(r.refuse(field, "imageSigners", "demands signed images by their digest, and %.200q names none", image), image)
		}
		if r.images == nil {
			return r.refuse(field, "imageSigners", "demands signed images, and this agent verifies no signatures of images")
		}
		if err := r.images(imagesignature.Request{
			Image: image, Signers: entry.signers(), Runner: r.intent.Runner, Namespace: r.intent.Namespace, PullSecrets: pullSecrets,
		}); err != nil {
			return r.ofRule(err, field)
		}
	}
	return nil
}

// untagged names the way to the digest as the fix.
func (r ruling) untagged(err error, image string) error {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		name, _, _ := strings.Cut(image, "@")
		p.Fix = fmt.Sprintf("name the digest: %.200s@sha256:… (crane digest %.200s prints it)", name, name)
	}
	return err
}

// ofRule names the rule and the field of an image that is not signed.
func (r ruling) ofRule(err error, field string) error {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok {
		return err
	}
	q := *p // it may be kept for others
	q.Detail = fmt.Sprintf("rule %q of the customer's policy: %s", r.Name, p.Detail)
	return q.WithField(field)
}

func (s ImageSigners) cover(image string) (bool, error) {
	repository, err := repositoryOf(image)
	return err == nil && (s.Images == nil || among(s.Images, repository)), err
}

// among reports whether a repository is one of the sources, or below one.
func among(sources []string, repository string) bool {
	for _, allowed := range sources {
		if repository == allowed || strings.HasPrefix(repository, allowed+"/") {
			return true
		}
	}
	return false
}

// imageSigners checks the entries of a rule.
func (c *checking) imageSigners(field string, all []ImageSigners) {
	if all != nil && len(all) == 0 || len(all) > maxImageSigners {
		c.add(field, "has to have 1 to %d entries; leave it out if images need not be signed", maxImageSigners)
		return
	}
	for n, s := range all {
		at := fmt.Sprintf("%s[%d]", field, n)
		c.sources(at+".images", s.Images)
		if s.Images != nil && len(s.Images) == 0 {
			c.add(at+".images", "is about no image: name some, or leave it out for all images")
		}
		if len(s.Keys)+len(s.Keyless) == 0 || len(s.Keys) > imagesignature.MaxKeys || len(s.Keyless) > sigstore.MaxKeyless {
			c.add(at, "has to have 1 to %d keys (public keys), or 1 to %d keyless (identity and issuer)", imagesignature.MaxKeys, sigstore.MaxKeyless)
			continue
		}
		for k, text := range s.Keys {
			if _, err := imagesignature.ReadKey(text); err != nil {
				c.add(fmt.Sprintf("%s.keys[%d]", at, k), "%v", err)
			}
		}
		c.keyless(at, s)
	}
}

// keyless checks the identities of an entry, and their root of trust.
func (c *checking) keyless(at string, s ImageSigners) {
	for k, signer := range s.Keyless {
		field := fmt.Sprintf("%s.keyless[%d]", at, k)
		_, err := signer.Signer(sigstore.Root{})
		if wrong, ok := errors.AsType[*sigstore.FieldError](err); ok {
			c.add(field+"."+wrong.Field, "%s", wrong.Message)
		} else if err != nil {
			c.add(field, "%v", err)
		}
	}
	if s.TrustedRoot == "" {
		return
	}
	if len(s.Keyless) == 0 {
		c.add(at+".trustedRoot", "is for keyless, which the entry does not have")
	}
	if _, err := sigstore.ReadRoot(s.TrustedRoot); err != nil {
		c.add(at+".trustedRoot", "%v", err)
	}
}

const maxImageSigners = 16

// sources checks registries and repositories.
func (c *checking) sources(field string, entries []string) {
	for i, entry := range entries {
		if err := checkSource(entry); err != nil {
			c.add(fmt.Sprintf("%s[%d]", field, i), "%v", err)
		}
	}
}

// summary returns by whom images are signed.
func (s ImageSigners) summary() string {
	signers := s.signers()
	names := make([]string, 0, len(signers))
	for _, signer := range signers {
		names = append(names, signer.String())
	}
	return fmt.Sprintf("images from %s are signed by %s, or refused", orNone(s.Images, "anywhere"), strings.Join(names, ", "))
}
