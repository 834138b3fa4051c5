package stored

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// MaxRelease bounds a revision as JSON, in bytes. What internal/render accepts of a chart, and of
// its manifests, fits.
const MaxRelease = 16 << 20

// ofRelease bounds a revision. Its values, and the chart's, have most of the entries.
var ofRelease = decode.Limits{Bytes: MaxRelease, Values: 250_000, Depth: 200}

// content is the key of a Secret's data in which Helm keeps the revision.
const content = "release"

// maxTogether bounds the revisions that one query holds at the same time, as JSON, in bytes.
const maxTogether = 2 * MaxRelease

// bounded refuses a revision that would take too much memory, before Helm reads or writes it.
type bounded struct {
	corev1client.SecretInterface
	left  *int64 // what all that is read may still have, in bytes; nil for revisions that are not kept
	admit Admit  // nil admits all
	done  *func()
}

// Admit waits until reading a revision that takes so many bytes of memory fits, or refuses it. done
// is called when it was read.
type Admit func(bytes int64) (done func(), err error)

// perByte is how many bytes of memory the reading of a byte of JSON takes: the text is in memory up
// to three times, and its values beside it.
const perByte = 6

// Get implements corev1client.SecretInterface.
func (b bounded) Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Secret, error) {
	s, err := b.SecretInterface.Get(ctx, name, opts)
	if err != nil {
		return nil, err
	}
	fix := "delete it with kubectl: delete secret -n " + s.Namespace + " " + s.Name
	size, err := b.checkRevision(s, fix)
	if err == nil && b.left != nil {
		if *b.left -= int64(size); *b.left < 0 {
			err = problem.Errorf(problem.TooLarge, fix, "together, the releases to read have more than %d MiB", maxTogether>>20)
		}
	}
	return s, err
}

// Create implements corev1client.SecretInterface.
func (b bounded) Create(ctx context.Context, s *corev1.Secret, opts metav1.CreateOptions) (*corev1.Secret, error) {
	if _, err := (bounded{}).checkRevision(s, smaller); err != nil {
		return nil, err
	}
	return b.SecretInterface.Create(ctx, s, opts)
}

// Update implements corev1client.SecretInterface.
func (b bounded) Update(ctx context.Context, s *corev1.Secret, opts metav1.UpdateOptions) (*corev1.Secret, error) {
	if _, err := (bounded{}).checkRevision(s, smaller); err != nil {
		return nil, err
	}
	return b.SecretInterface.Update(ctx, s, opts)
}

const smaller = "use a smaller chart or smaller values"

// checkRevision refuses a Secret whose revision is beyond the limits, and returns the revision's
// size as JSON. Whether it is a revision at all is left to Helm.
func (b bounded) checkRevision(s *corev1.Secret, fix string) (size int, err error) {
	if s.Type != Type {
		return 0, problem.Errorf(problem.Invalid, fix, "Secret %s is not a release of Helm: its type is %q", s.Name, s.Type)
	}
	raw, err := b.unpacked(s.Data[content])
	if err == nil {
		err = ofRelease.CheckJSON(raw)
	}
	if errors.Is(err, errTooMuch) || decode.Exceeded(err) {
		return 0, problem.Errorf(problem.TooLarge, fix, "Secret %s holds a release that takes too much memory: %v", s.Name, err)
	}
	return len(raw), nil
}

var errTooMuch = fmt.Errorf("unpacked, it has more than %d MiB", MaxRelease>>20)

// unpacked returns a revision's JSON, once its reading is admitted. It measures what is packed
// before it keeps anything of it.
func (b bounded) unpacked(data []byte) ([]byte, error) {
	packed, err := base64.StdEncoding.AppendDecode(nil, data)
	if err != nil || !bytes.HasPrefix(packed, []byte{0x1f, 0x8b}) { // releases of early versions of Helm are not packed
		return packed, err
	}
	size, err := inflated(packed)
	if err != nil {
		return nil, err
	}
	if b.admit != nil {
		done, err := b.admit(perByte * size)
		if err != nil {
			return nil, err
		}
		*b.done = done
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	raw := make([]byte, size)
	_, err = io.ReadFull(unzipped, raw)
	return raw, err
}

// inflated returns how many bytes a gzip stands for.
func inflated(packed []byte) (int64, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, io.LimitReader(unzipped, MaxRelease+1))
	if n > MaxRelease {
		return n, errTooMuch
	}
	return n, err
}
