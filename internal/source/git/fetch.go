package git

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/memory"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/signature"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Remote is a repository and how to get at it.
type Remote struct {
	URL string
	// Namespace is the one whose memory is taken (internal/memory).
	Namespace string
	Auth      Auth
	// Proxy returns the proxy for HTTPS; nil means none. SSH uses none.
	Proxy proxy.Func
	// Guard decides to which hosts and addresses the agent connects.
	Guard egress.Guard
	// Signers are by whose keys a commit must be signed: by one of each. None, if it need not be.
	Signers []signature.Signers
}

// CheckHost returns an error if the guard refuses the repository's host. It contacts no server.
func (r Remote) CheckHost() *Error {
	u, err := runnerapi.ParseGitURL(r.URL)
	if err != nil {
		return failed(NotGit, "correct url", "url %v", err)
	}
	if refused, ok := errors.AsType[*egress.RefusedError](r.Guard.CheckHost(u.Hostname())); ok {
		return forbidden(refused, u.Host)
	}
	return nil
}

// session is a conversation about one repository.
type session interface {
	advertised(ctx context.Context, only *refFilter) (*packp.AdvRefs, error)
	// upload sends a request and gives the answer.
	upload(ctx context.Context, request []byte) (io.ReadCloser, error)
	close()
}

// Fetch resolves the ref to a commit and, unless that is the known one, fetches its files: those of
// one folder, or all if the folder is empty. It returns nil files for the known commit, whose
// signature it checks again: the signers may be others by now. Its errors are *Error, except the
// context's and those of internal/memory, in which it reserves what the limits allow.
func Fetch(ctx context.Context, r Remote, ref runnerapi.GitRef, folder, known string, l Limits) (found Found, files Files, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.Time)
	defer cancel()
	at, err := locate(ctx, r, ref, l)
	if err != nil {
		return Found{}, nil, err
	}
	defer at.close()
	if at.hash.String() == known {
		return at.found(known), nil, at.checkSigned(ctx, l)
	}
	pack, err := reserved(ctx, at, smallFiles(l), l)
	if err != nil {
		return Found{}, nil, err
	}
	// Objects are unpacked, and then files made of them. The pack is in memory already.
	hold, err := memory.Acquire(ctx, r.Namespace, "a commit of "+at.host, 2*l.Unpacked)
	if err != nil {
		return Found{}, nil, err
	}
	defer hold.Release()
	commit, files, err := at.unpack(pack, folder, l)
	return at.found(commit), files, err
}

// Resolve resolves the ref to a commit without fetching its files. Its errors are those of Fetch.
func Resolve(ctx context.Context, r Remote, ref runnerapi.GitRef, l Limits) (Found, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Time)
	defer cancel()
	at, err := locate(ctx, r, ref, l)
	if err != nil {
		return Found{}, err
	}
	defer at.close()
	if err := at.checkSigned(ctx, l); err != nil {
		return Found{}, err
	}
	return at.found(at.hash.String()), nil
}

// located is a commit, and the session in which it was found.
type located struct {
	session
	refs *packp.AdvRefs
	hash plumbing.Hash
	// tag is the annotated tag that leads to the commit; else zero.
	tag     plumbing.Hash
	tagName string // of any tag that leads to the commit; empty if the ref is none
	host    string
	remote  Remote
}

// locate resolves the ref to a commit. The caller closes the result.
func locate(ctx context.Context, r Remote, ref runnerapi.GitRef, l Limits) (*located, error) {
	u, err := runnerapi.ParseGitURL(r.URL)
	if err != nil {
		return nil, failed(NotGit, "correct url", "url %v", err)
	}
	filter, err := only(ref)
	if err != nil {
		return nil, err
	}
	at := &located{session: newSession(u, r, l), host: u.Host, remote: r}
	if at.refs, err = at.advertised(ctx, filter); err == nil {
		ref, err = filter.found()
	}
	if err == nil {
		at.hash, err = resolve(at.refs, ref)
	}
	if err != nil {
		at.close()
		return nil, err
	}
	at.followTag(ref)
	return at, nil
}

func newSession(u runnerapi.GitURL, r Remote, l Limits) session {
	if u.SSH {
		return newSSH(u, r, l)
	}
	return newHTTPS(u, r, l)
}

func decodeAdvertised(r io.Reader, only *refFilter, host string) (*packp.AdvRefs, error) {
	refs := packp.NewAdvRefs()
	err := refs.Decode(only.of(r))
	switch {
	case err == nil:
		return refs, nil
	case errors.Is(err, errTooMuch), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return nil, network(err, host)
	case errors.Is(err, packp.ErrEmptyAdvRefs):
		return nil, failed(RefMissing, "push a commit", "the repository is empty")
	}
	return nil, failed(NotGit, "give the address that `git clone` takes", "%s does not answer as a Git server: %s", host, clip(err.Error()))
}

// resolve finds the commit, or the tag that leads to it.
func resolve(refs *packp.AdvRefs, ref runnerapi.GitRef) (plumbing.Hash, error) {
	if ref.Commit != "" {
		return plumbing.NewHash(ref.Commit), nil
	}
	if ref.Tag == "" && ref.Branch == "" {
		if refs.Head == nil {
			return plumbing.ZeroHash, failed(RefMissing, "name a branch in ref.branch", "the repository says of no branch that it is its default")
		}
		return *refs.Head, nil
	}
	name, kind, short := "refs/heads/"+ref.Branch, "branch", ref.Branch
	if ref.Tag != "" {
		name, kind, short = tags+ref.Tag, "tag", ref.Tag
		if commit, annotated := refs.Peeled[name]; annotated {
			return commit, nil
		}
	}
	if hash, ok := refs.References[name]; ok {
		return hash, nil
	}
	return plumbing.ZeroHash, failed(RefMissing, "correct ref."+kind+", or push it", "the repository has no %s %s", kind, clip(short))
}

// reserved gets a pack within the memory for it. A slow server holds up no more than that.
func reserved(ctx context.Context, at *located, filter packp.Filter, l Limits) ([]byte, error) {
	hold, err := memory.AcquireSlow(ctx, at.remote.Namespace, "a commit of "+at.host, l.Pack)
	if err != nil {
		return nil, err
	}
	defer hold.Release()
	return download(ctx, at, filter, l)
}

// smallFiles leaves out files that are too large to be wanted.
func smallFiles(l Limits) packp.Filter {
	return packp.FilterBlobLimit(uint64(l.File), packp.BlobLimitPrefixNone) //nolint:gosec // a limit of ours, above zero
}

// download gets the pack of one commit without its history, and of the tag that led to it.
func download(ctx context.Context, at *located, filter packp.Filter, l Limits) ([]byte, error) {
	request, err := requestFor(at.refs.Capabilities, filter)
	if err != nil {
		return nil, err
	}
	// A server may refuse a commit that no ref names. It comes with its tag.
	request.Wants = []plumbing.Hash{cmp.Or(at.tag, at.hash)}
	var body bytes.Buffer
	if err := request.UploadRequest.Encode(&body); err != nil {
		return nil, fmt.Errorf("encode the request for a pack: %w", err)
	}
	body.WriteString("0009done\n")
	answer, err := at.upload(ctx, body.Bytes())
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Close() }()
	// Twice the pack is more than all that stands around it.
	response := packp.NewUploadPackResponse(request)
	if err := response.Decode(io.NopCloser(limited(answer, 2*l.Pack))); err != nil {
		return nil, notGiven(ctx, err, at.hash, at.host)
	}
	var in io.Reader = response
	if request.Capabilities.Supports(capability.Sideband64k) {
		in = sideband.NewDemuxer(sideband.Sideband64k, response)
	}
	pack, err := io.ReadAll(limited(in, l.Pack))
	if err != nil {
		return nil, notGiven(ctx, err, at.hash, at.host)
	}
	return pack, nil
}

// requestFor asks for no history, and for nothing that the filter leaves out where the server can
// leave it out.
func requestFor(has *capability.List, filter packp.Filter) (*packp.UploadPackRequest, error) {
	if !has.Supports(capability.Shallow) {
		return nil, failed(NotGit, "use a server that has the capability shallow", "the server gives no commit without all its history")
	}
	r := packp.NewUploadPackRequest()
	set := []capability.Capability{capability.Shallow}
	for _, c := range []capability.Capability{capability.Sideband64k, capability.OFSDelta} {
		if has.Supports(c) {
			set = append(set, c)
		}
	}
	if has.Supports(capability.Filter) {
		set = append(set, capability.Filter)
		r.Filter = filter
	}
	for _, c := range set {
		if err := r.Capabilities.Set(c); err != nil {
			return nil, fmt.Errorf("ask for %s: %w", c, err)
		}
	}
	r.Depth = packp.DepthCommits(1)
	return r, nil
}

// notGiven returns why there is no pack.
func notGiven(ctx context.Context, err error, want plumbing.Hash, host string) error {
	if ctx.Err() != nil {
		return network(ctx.Err(), host)
	}
	if strings.Contains(err.Error(), "not our ref") || strings.Contains(err.Error(), "unadvertised object") {
		return failed(RefMissing, "correct ref.commit, or follow a branch or tag: not every server gives any commit", "the server does not give commit %s", want)
	}
	if errors.Is(err, errTooMuch) {
		return failed(TooLarge, "follow a smaller repository: one for what is deployed, without builds and media", "the repository has more than the agent takes of one")
	}
	return failed(Unreachable, "it is tried again; if it stays, look at the server", "%s broke off: %s", host, clip(err.Error()))
}

// limited returns a reader that fails, rather than ends, after n bytes.
func limited(r io.Reader, n int64) io.Reader { return &limitedReader{r, n} }

type limitedReader struct {
	io.Reader
	left int64
}

func (l *limitedReader) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, errTooMuch
	}
	return n, err
}

const maxClip = 200

// clip makes what a server or a user wrote fit for an error.
func clip(s string) string {
	return printable.Shorten(printable.Line(s, false), maxClip)
}
