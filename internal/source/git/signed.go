package git

import (
	"context"
	"io"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	store "github.com/go-git/go-git/v5/storage/memory"

	"github.com/pipeops/pipeops-vm-agent/internal/memory"
	"github.com/pipeops/pipeops-vm-agent/internal/signature"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// followTag remembers the tag that led to the commit. The signature of an annotated one may stand
// for the commit's.
func (at *located) followTag(ref runnerapi.GitRef) {
	if !at.leads(ref.Tag) {
		return
	}
	at.tagName = ref.Tag
	if _, annotated := at.refs.Peeled[tags+ref.Tag]; annotated {
		at.tag = at.refs.References[tags+ref.Tag]
	}
}

// checkSigned fetches the commit without its files, if it must be signed, and checks that. A server
// that cannot leave files out sends all of them.
func (at *located) checkSigned(ctx context.Context, l Limits) error {
	if len(at.remote.Signers) == 0 {
		return nil
	}
	pack, err := reserved(ctx, at, packp.FilterTreeDepth(0), l)
	if err != nil {
		return err
	}
	hold, err := memory.Acquire(ctx, at.remote.Namespace, "a commit of "+at.host, l.Unpacked)
	if err != nil {
		return err
	}
	defer hold.Release()
	_, _, err = at.open(pack, l)
	return err
}

// verify returns an *Error unless the commit, or the tag that was followed to it, is signed as the
// remote demands.
func (at *located) verify(objects *store.Storage, commit *object.Commit) error {
	if len(at.remote.Signers) == 0 {
		return nil
	}
	c := signature.Commit{Hash: commit.Hash.String(), TagName: at.tagName}
	var err error
	if c.Raw, err = rawOf(objects, plumbing.CommitObject, commit.Hash); err != nil {
		return broken(err)
	}
	if !at.tag.IsZero() {
		if c.Tag, err = rawOf(objects, plumbing.TagObject, at.tag); err != nil {
			return broken(err)
		}
	}
	for _, s := range at.remote.Signers {
		if refused := s.Verify(c, time.Now()); refused != nil {
			return failed(Reason(refused.Reason), refused.Fix, "%s", refused.Message)
		}
	}
	return nil
}

// rawOf returns an object as Git stores it.
func rawOf(objects *store.Storage, kind plumbing.ObjectType, hash plumbing.Hash) ([]byte, error) {
	o, err := objects.EncodedObject(kind, hash)
	if err != nil {
		return nil, err
	}
	r, err := o.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return io.ReadAll(r)
}
