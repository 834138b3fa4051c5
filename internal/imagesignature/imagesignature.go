// Package imagesignature verifies who has signed an image, as cosign signs: by a key, or keyless,
// by a certificate of Sigstore's CA and an entry in its transparency log. It reads the tag
// sha256-DIGEST.sig with a payload of simple signing, and bundles that refer to the image; it makes
// no signatures.
package imagesignature

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/sigstore"
)

// Reason is the stable name of a failure.
type Reason string

// The reasons.
const (
	Unsigned  Reason = "image_unsigned"
	NotListed Reason = "image_signer_not_listed"
	// Unavailable is of a registry that does not give the signatures.
	Unavailable Reason = "image_signature_unavailable"
)

// Limits of what is done for others.
const (
	// patience bounds the look at one image.
	patience = 15 * time.Second
	// atWork is how many images are looked at at a time.
	atWork = 4
	// refusedFor is how long a refusal is kept: the image may be signed in the meantime.
	refusedFor = 10 * time.Second
	// maxUnreachable is how many images of a Runner may be looked at in a minute in vain.
	maxUnreachable = 16
	// maxKept bounds the images that are remembered.
	maxKept = 4096
)

// Request is an image that has to be signed.
type Request struct {
	Image   string   // with a digest
	Signers []Signer // of whom one has to have signed it
	// Runner brings the image into the namespace, where the Secrets to pull it with are.
	Runner, Namespace string
	PullSecrets       []string
}

// Config configures a Verifier.
type Config struct {
	// Secret returns the content of a pull secret (.dockerconfigjson); nil if there is none.
	Secret func(ctx context.Context, namespace, name string) ([]byte, error)
	// Guard decides to which hosts and addresses the agent connects.
	Guard egress.Guard
	// Transport fetches signatures, unguarded; nil for one with the system's roots and proxies.
	Transport http.RoundTripper
	Now       func() time.Time // time.Now when nil
	// Mirror is where the root of trust of keyless signatures is fetched; the zero value is the
	// public Sigstore's.
	Mirror sigstore.Mirror
}

// Verifier verifies the signatures of images, and remembers which ones are signed.
type Verifier struct {
	config    Config
	transport http.RoundTripper
	now       func() time.Time
	public    *sigstore.Public
	slots     chan struct{}

	mu          sync.Mutex
	known       map[string]outcome
	unreachable map[string][]time.Time // by Runner, when an image was looked at in vain
}

// outcome is what came of a look at an image. A signature stays valid: the digest cannot change.
type outcome struct {
	err error
	at  time.Time
}

// New returns a Verifier. It makes no requests.
func New(c Config) *Verifier {
	v := &Verifier{
		config: c, transport: c.Transport, now: c.Now, slots: make(chan struct{}, atWork),
		known: map[string]outcome{}, unreachable: map[string][]time.Time{},
	}
	if v.now == nil {
		v.now = time.Now
	}
	if v.transport == nil {
		t := proxy.FromEnvironment().Use(http.DefaultTransport.(*http.Transport).Clone())
		t.MaxIdleConns, t.ResponseHeaderTimeout = atWork, patience
		v.transport = c.Guard.Transport(t)
	}
	v.public = sigstore.NewPublic(v.transport, v.now, c.Mirror)
	return v
}

// Sigstore returns the root of trust of the public Sigstore, which other signatures need, too.
func (v *Verifier) Sigstore() (*verify.Verifier, error) {
	return v.public.Verifier(context.Background())
}

// Digest returns the reference of an image that names its digest; false for one that does not.
func Digest(image string) (name.Digest, bool) {
	ref, err := name.NewDigest(image, name.WeakValidation)
	return ref, err == nil && strings.HasPrefix(ref.DigestStr(), "sha256:")
}

// Verify returns nil if one of the signers has signed the image. It may contact the registry, and
// the public Sigstore.
func (v *Verifier) Verify(r Request) error {
	ref, ok := Digest(r.Image)
	if !ok {
		return problem.Errorf(problem.Invalid, "name the image by its digest", "%.200q has no digest", r.Image)
	}
	key := cacheKey(ref, r)
	if before, found := v.recall(key); found {
		return before.err
	}
	if err := v.admit(r.Runner, ref); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case v.slots <- struct{}{}:
		defer func() { <-v.slots }()
	case <-ctx.Done():
		return unavailable(ref, "the agent verifies the signatures of other images", "send it again")
	}
	err := v.look(ctx, ref, r)
	v.remember(key, r.Runner, err)
	return err
}

// cacheKey identifies a question. Signatures do not depend on who asks, but whether the registry
// shows them does.
func cacheKey(ref name.Digest, r Request) string {
	signers := make([]string, 0, len(r.Signers))
	for _, s := range r.Signers {
		signers = append(signers, s.ID())
	}
	slices.Sort(signers)
	return strings.Join([]string{ref.Name(), r.Namespace, strings.Join(r.PullSecrets, ","), strings.Join(signers, ",")}, " ")
}

func (v *Verifier) recall(key string) (outcome, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	o, found := v.known[key]
	if found && o.err != nil && v.now().Sub(o.at) > refusedFor {
		return outcome{}, false
	}
	return o, found
}

func (v *Verifier) remember(key, runner string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known) >= maxKept {
		clear(v.known)
	}
	now := v.now()
	v.known[key] = outcome{err, now}
	if problem.Is(err, problem.Code(Unavailable)) {
		v.unreachable[runner] = append(v.unreachable[runner], now)
	}
}

// admit refuses a Runner for whom many images could not be looked at: each takes its time.
func (v *Verifier) admit(runner string, ref name.Digest) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.now()
	recent := slices.DeleteFunc(v.unreachable[runner], func(at time.Time) bool { return now.Sub(at) > time.Minute })
	v.unreachable[runner] = recent
	if len(recent) == 0 {
		delete(v.unreachable, runner)
	}
	if len(recent) >= maxUnreachable {
		return unavailable(ref, "the registries of many images could not be reached within the last minute", "look whether the agent reaches the registries, and send it again")
	}
	return nil
}

// unavailable returns why signatures cannot be read. The same command may succeed later.
func unavailable(ref name.Digest, why, fix string) error {
	return problem.New(http.StatusServiceUnavailable, problem.Code(Unavailable), fix, "the signatures of image %s cannot be read: %s", ref.Name(), why).
		WithRetryAfter(refusedFor)
}

// look reads the signatures of an image, in both forms.
func (v *Verifier) look(ctx context.Context, ref name.Digest, r Request) error {
	auth, err := v.login(ctx, ref, r)
	if err != nil {
		return err
	}
	reg := registry{ctx: ctx, auth: auth, transport: v.transport}
	t := trial{signers: r.Signers, digest: ref.DigestStr(), public: func() (*verify.Verifier, error) { return v.public.Verifier(ctx) }}
	found := 0
	for _, read := range []func(name.Digest) ([]signature, error){reg.simple, reg.bundles} {
		signatures, err := read(ref)
		if err != nil {
			return unread(ref, err)
		}
		for _, s := range signatures {
			if ctx.Err() != nil {
				return unread(ref, ctx.Err())
			}
			if t.passes(s) {
				return nil
			}
		}
		found += len(signatures)
	}
	return t.refused(ref, found)
}

// refused returns why none of the signatures that were found counts.
func (t *trial) refused(ref name.Digest, found int) error {
	sign := "cosign sign --key KEY "
	if !slices.ContainsFunc(t.signers, func(s Signer) bool { return !s.keyless }) {
		sign = "cosign sign "
	}
	sign += ref.Name()
	switch {
	case found == 0:
		return problem.New(http.StatusForbidden, problem.Code(Unsigned), "sign it: "+sign,
			"image %s has no signature; the policy demands one of %s", ref.Name(), listed(t.signers, Signer.String, ", "))
	case t.away != nil:
		return unread(ref, t.away)
	}
	return problem.New(http.StatusForbidden, problem.Code(NotListed), "sign it as a listed signer: "+sign+"; or have the owner of the cluster add this one to imageSigners",
		"image %s has %d signatures, none of which is valid and by a listed signer: %s", ref.Name(), found, t.refusals())
}

// unread explains why a registry gave no signatures.
func unread(ref name.Digest, err error) error {
	var refused *egress.RefusedError
	var away *sigstore.RootError
	switch {
	case errors.As(err, &refused):
		return problem.New(http.StatusForbidden, problem.Code(cmp.Or(hostCode(refused), "address_forbidden")), refused.Fix(),
			"the signatures of image %s cannot be read: %v", ref.Name(), refused)
	case errors.As(err, &away):
		return unavailable(ref, away.Error(), away.Fix())
	case errors.Is(err, context.DeadlineExceeded):
		return unavailable(ref, "the registry did not answer in time", "look whether the agent reaches the registry, and send it again")
	}
	return unavailable(ref, said(err), "look whether the agent reaches the registry, and name the pull secret in imagePullSecrets if it needs one")
}

func hostCode(refused *egress.RefusedError) string {
	if refused.ByPolicy() {
		return "host_forbidden"
	}
	return ""
}
